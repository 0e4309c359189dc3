#! task: conv_layer_bytes
#! fails: conv_layer_bytes.correct
#! why: counts the input, which belongs to the layer below
def conv_layer_bytes(N, C, H, W, K, R, U, pad):
    return 2 * 4 * N * C * H * W, 3 * 4 * (K * C * R * R + K)
