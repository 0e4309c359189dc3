#! task: predict_tf32
#! fails: predict_tf32.prediction
#! why: takes the distance of neighbours for the largest error
predict_tf32 = 2**-9
