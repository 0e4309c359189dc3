#! task: predict_useful_128
#! fails: predict_useful_128.prediction
#! why: counts one block of the two that a plane takes
predict_useful_128 = 128 / 169
