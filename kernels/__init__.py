"""Everything that compiles, runs and checks a convolution kernel.

compile_cuda(source, on="sim" | "gpu") and launch(kernel, grid, block, args) run CUDA C++ on the engine or
on a GPU; conv2d(x, w, ..., method=...) runs a rung of the ladder or a library; oracle is the float64 reference.
"""

from . import oracle
from .arguments import out
from .launch import compile_cuda, launch
from .methods import conv2d, methods

__all__ = ["compile_cuda", "conv2d", "launch", "methods", "oracle", "out"]
