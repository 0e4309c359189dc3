#! task: predict_utilisation
#! fails: predict_utilisation.prediction
#! why: takes the waves as if they could be cut
predict_utilisation = 1
