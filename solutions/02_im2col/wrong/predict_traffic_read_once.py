#! task: predict_traffic
#! fails: predict_traffic.prediction
#! why: forgets that col is read again
predict_traffic = (3 + 27 + 1) / (3 + 1)
