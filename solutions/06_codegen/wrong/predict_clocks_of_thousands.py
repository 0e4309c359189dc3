#! task: predict_clocks
#! fails: predict_clocks.prediction
#! why: takes a KiB for 1000 bytes
predict_clocks = 512 * 1000 / 2.5
