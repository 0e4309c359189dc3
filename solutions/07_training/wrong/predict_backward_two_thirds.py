#! task: predict_backward
#! fails: predict_backward.prediction
#! why: counts a data gradient for the first layer too
predict_backward = 2 / 3
