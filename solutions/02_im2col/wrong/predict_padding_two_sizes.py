#! task: predict_padding
#! fails: predict_padding.prediction
#! why: pads two of the three sizes
predict_padding = (64 * 64) / (50 * 64)
