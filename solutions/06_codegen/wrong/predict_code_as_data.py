#! task: predict_code
#! fails: predict_code.prediction
#! why: takes a weight as code for as large as one in CSR
predict_code = 8 * 61135
