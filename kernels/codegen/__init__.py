"""Weights as code: a sparse convolution whose non-zero weights are immediates of generated CUDA C++.

`tiling` says how a convolution is cut into blocks, `generator` writes the source of each kernel, `assembler` makes
machine code of many at a time and keeps it, `model` foresees what a choice costs, `tuner` measures it (`kept` holds
what it found), and `convolution` loads and runs. Source: the code-generation paper, 3.7.

convolution = codegen.Convolution(geometry, w)      # compiles; convolution.facts tells the time and the bytes
convolution.enqueue(x, y)                           # in CuPy's current stream, any number of images
"""

from .convolution import Convolution, Facts, check, prepared, run_on_engine
from .generator import Part, generate
from .model import Cost, cost, default_choice
from .tiling import Choice, Tiling
from .tuner import Trial, Tuned, tune

__all__ = [
    "Choice", "Convolution", "Cost", "Facts", "Part", "Tiling", "Trial", "Tuned",
    "check", "cost", "default_choice", "generate", "prepared", "run_on_engine", "tune",
]  # fmt: skip
