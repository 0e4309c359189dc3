#! task: source_index
#! fails: source_index.correct
#! why: takes row H and column W for the image
def source_index(p, q, r, s, U, pad, H, W):
    h = p * U - pad + r
    w = q * U - pad + s
    return (h, w) if 0 <= h <= H and 0 <= w <= W else None
