#! task: predict_fmas
#! fails: predict_fmas.prediction
#! why: counts the multiply-adds and forgets the loads
predict_fmas = 61135
