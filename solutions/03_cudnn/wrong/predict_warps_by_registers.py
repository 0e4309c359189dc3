#! task: predict_warps
#! fails: predict_warps.prediction
#! why: stops at equation (10)
predict_warps = 65536 // (128 * 16)
