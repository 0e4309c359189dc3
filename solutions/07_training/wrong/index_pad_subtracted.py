#! task: output_index
#! fails: output_index.correct
#! why: subtracts the padding, as the forward pass does
def output_index(h, r, U, pad, P):
    p, between = divmod(h - pad - r, U)
    return p if between == 0 and 0 <= p < P else None
