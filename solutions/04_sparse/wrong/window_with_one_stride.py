#! task: window_start
#! fails: window_start.correct
#! why: the stride moves the window along a row and not down
def window_start(p, q, Wp, U):
    return p * Wp + q * U
