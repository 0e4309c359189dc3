"""convladder: a ladder of convolution kernels, checked and measured with or without a GPU."""

__version__ = "0.1.0"
