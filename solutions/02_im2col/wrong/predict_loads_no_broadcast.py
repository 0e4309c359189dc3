#! task: predict_loads
#! fails: predict_loads.prediction
#! why: takes the load of one word by all lanes to cost four sectors
predict_loads = 64 * 256 * 72 / 32 * (4 + 4)
