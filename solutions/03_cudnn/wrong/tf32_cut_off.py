#! task: to_tf32
#! fails: to_tf32.correct
#! why: cuts the bits off instead of rounding
import numpy as np


def to_tf32(x):
    """A float32 array rounded to TF32."""
    bits = x.view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)
