#! task: tensor_strides
#! fails: tensor_strides.correct
#! why: gives NHWC's strides in the order of N, H, W, C
def tensor_strides(shape, layout):
    """Elements from one index to the next along N, C, H, W: a tuple of four ints."""
    N, C, H, W = shape
    if layout == "nchw":
        return (C * H * W, H * W, W, 1)
    return (C * H * W, W * C, C, 1)
