#! task: stretched_column
#! fails: stretched_column.correct
#! why: takes neighbouring taps for neighbouring elements
def stretched_column(col, R, S, Hp, Wp, U, dil):
    s, r, c = col % S, col // S % R, col // (R * S)
    return (c * Hp + r) * Wp + s
