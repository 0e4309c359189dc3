#! task: tensor_strides
#! fails: tensor_strides.correct
#! why: counts bytes
def tensor_strides(shape, layout):
    """Elements from one index to the next along N, C, H, W: a tuple of four ints."""
    N, C, H, W = shape
    if layout == "nchw":
        return (4 * C * H * W, 4 * H * W, 4 * W, 4)
    return (C * H * W, 1, W * C, C)
