#! task: tensor_strides
#! fails: tensor_strides.correct
#! why: takes the image's height for its width
def tensor_strides(shape, layout):
    """Elements from one index to the next along N, C, H, W: a tuple of four ints."""
    N, C, H, W = shape
    if layout == "nchw":
        return (C * H * W, H * W, H, 1)
    return (C * H * W, 1, W * C, C)
