#! task: source_index
#! fails: source_index.correct
#! why: multiplies the tap by the stride, as if it were a dilation
def source_index(p, q, r, s, U, pad, H, W):
    h = (p + r) * U - pad
    w = (q + s) * U - pad
    return (h, w) if 0 <= h < H and 0 <= w < W else None
