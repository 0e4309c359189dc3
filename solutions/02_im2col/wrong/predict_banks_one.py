#! task: predict_banks
#! fails: predict_banks.prediction
#! why: takes a column for a row: all lanes at once
predict_banks = 1
