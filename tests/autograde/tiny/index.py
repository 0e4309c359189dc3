def source_index(p, q, r, s, U, pad, H, W):
    h, w = p * U - pad + r, q * U - pad + s
    return (h, w) if 0 <= h < H and 0 <= w < W else None
