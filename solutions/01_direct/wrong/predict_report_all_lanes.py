#! task: predict_report
#! fails: predict_report.prediction
#! why: counts a sector for each lane: two lanes of a row share one
predict_report = 32
