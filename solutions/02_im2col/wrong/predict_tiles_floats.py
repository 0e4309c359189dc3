#! task: predict_tiles
#! fails: predict_tiles.prediction
#! why: divides the count before by 32, though a load of a was one sector and not four
predict_tiles = 64 * 256 * 72 / 32 * (1 + 4) / 32
