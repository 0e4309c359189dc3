#! task: stretched_column
#! fails: stretched_column.correct
#! why: moves the weights by the stride, which moves the windows only
def stretched_column(col, R, S, Hp, Wp, U, dil):
    s, r, c = col % S, col // S % R, col // (R * S)
    return (c * Hp + r * dil * U) * Wp + s * dil * U
