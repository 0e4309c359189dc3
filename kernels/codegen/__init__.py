"""Weights as code: a sparse convolution whose non-zero weights are immediates of generated CUDA C++.

`tiling` says how a convolution is cut into blocks, `generator` writes the source of each kernel, `assembler` makes
machine code of many at a time and keeps it, `model` foresees what a choice costs, `tuner` measures it, and
`convolution` loads and runs. Source: the code-generation paper, 3.7.
"""

from .convolution import Convolution, Facts, check, prepared, run_on_engine
from .generator import Part, generate
from .model import Cost, cost, default_choice
from .tiling import Choice, Tiling

__all__ = [
    "Choice", "Convolution", "Cost", "Facts", "Part", "Tiling",
    "check", "cost", "default_choice", "generate", "prepared", "run_on_engine",
]  # fmt: skip
