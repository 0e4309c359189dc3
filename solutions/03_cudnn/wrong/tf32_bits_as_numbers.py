#! task: to_tf32
#! fails: to_tf32.correct
#! why: returns the bits as an integer array
import numpy as np


def to_tf32(x):
    """A float32 array rounded to TF32."""
    bits = x.view(np.uint32) + np.uint32(0x1000)
    return (bits & np.uint32(0xFFFFE000))
