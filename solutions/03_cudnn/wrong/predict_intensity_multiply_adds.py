#! task: predict_intensity
#! fails: predict_intensity.prediction
#! why: counts a multiply-add as one operation
predict_intensity = 27 / (4 * (3 + 1))
