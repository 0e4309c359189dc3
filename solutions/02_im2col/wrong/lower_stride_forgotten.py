#! task: lower
#! fails: lower.correct
#! why: takes neighbouring windows whatever the stride
import numpy as np


def lower(x, R, S, U, pad):
    """The windows of an image (C, H, W) as the columns of an array (C*R*S, P*Q), row by row of the output."""
    C, H, W = x.shape
    P, Q = (H + 2 * pad - R) // U + 1, (W + 2 * pad - S) // U + 1
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad)))
    col = np.zeros((C * R * S, P * Q), x.dtype)
    for c in range(C):
        for r in range(R):
            for s in range(S):
                taps = padded[c, r : r + P, s : s + Q]
                col[(c * R + r) * S + s] = taps[:P, :Q].reshape(-1)
    return col
