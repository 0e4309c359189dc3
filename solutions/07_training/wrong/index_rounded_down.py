#! task: output_index
#! fails: output_index.correct
#! why: rounds the quotient down where the stride steps over the row
def output_index(h, r, U, pad, P):
    p = (h + pad - r) // U
    return p if 0 <= p < P else None
