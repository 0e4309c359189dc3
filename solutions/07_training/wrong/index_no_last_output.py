#! task: output_index
#! fails: output_index.correct
#! why: forgets that there are P outputs only
def output_index(h, r, U, pad, P):
    p, between = divmod(h + pad - r, U)
    return p if between == 0 and p >= 0 else None
