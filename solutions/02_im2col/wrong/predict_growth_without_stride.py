#! task: predict_growth
#! fails: predict_growth.prediction
#! why: takes each element to stand in R*S windows, as without a stride
predict_growth = 11 * 11
