#! task: predict_busy
#! fails: predict_busy.prediction
#! why: takes the share of busy filters, not of busy passes
predict_busy = 31 / 32
