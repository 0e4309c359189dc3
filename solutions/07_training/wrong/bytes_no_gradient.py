#! task: conv_layer_bytes
#! fails: conv_layer_bytes.correct
#! why: counts values only
def conv_layer_bytes(N, C, H, W, K, R, U, pad):
    P = (H + 2 * pad - R) // U + 1
    Q = (W + 2 * pad - R) // U + 1
    return 4 * N * K * P * Q, 4 * (K * C * R * R + K)
