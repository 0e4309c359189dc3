#! task: forward_arguments
#! fails: forward_arguments.hidden
#! why: rounds the output's size up: right wherever the stride divides
def forward_arguments(x_shape, w_shape, stride, pad, layout, tf32):
    """(y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, d_layout, w_layout)"""
    N, C, H, W = x_shape
    K, _, R, S = w_shape
    P = (H + 2 * pad - R) // stride + 1
    Q = -(-(W + 2 * pad - S) // stride) + 1
    y_shape, number = ((N, K, P, Q), 0) if layout == "nchw" else ((N, P, Q, K), 1)
    tensor_core = "always" if tf32 else "never"
    return y_shape, (pad, pad), (stride, stride), (1, 1), 1, tensor_core, number, number
