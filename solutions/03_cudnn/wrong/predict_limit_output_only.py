#! task: predict_limit
#! fails: predict_limit.prediction
#! why: forgets to read the input
predict_limit = 4 * 4095 * 4095 / (3000 * 1000)
