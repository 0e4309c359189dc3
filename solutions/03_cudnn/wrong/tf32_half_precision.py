#! task: to_tf32
#! fails: to_tf32.correct
#! why: rounds to half precision, which has as many bits of fraction and a smaller range
import numpy as np


def to_tf32(x):
    """A float32 array rounded to TF32."""
    return x.astype(np.float16).astype(np.float32)
