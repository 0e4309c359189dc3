#! task: predict_break_even
#! fails: predict_break_even.prediction
#! why: gives the share of weights that is left, not of those that are zero
predict_break_even = 32 / 128
