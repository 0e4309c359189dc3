#! task: predict_rows
#! fails: predict_rows.prediction
#! why: takes the report's stores to coalesce
predict_rows = 4
