#! task: predict_gemv_rows
#! fails: predict_gemv_rows.prediction
#! why: divides the row's 288 bytes into sectors
predict_gemv_rows = 72 * 4 / 32
