#! task: predict_sparsity
#! fails: predict_sparsity.prediction
#! why: divides by the filters and multiplies by their size, as the paper prints it
predict_sparsity = 1 - 61135 / 384 * 256 * 3 * 3
