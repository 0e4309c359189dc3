#! task: forward_arguments
#! fails: forward_arguments.correct
#! why: forgets the stride in the output's size
def forward_arguments(x_shape, w_shape, stride, pad, layout, tf32):
    """(y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, d_layout, w_layout)"""
    N, C, H, W = x_shape
    K, _, R, S = w_shape
    P = H + 2 * pad - R + 1
    Q = W + 2 * pad - S + 1
    y_shape, number = ((N, K, P, Q), 0) if layout == "nchw" else ((N, P, Q, K), 1)
    tensor_core = "always" if tf32 else "never"
    return y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, number, number
