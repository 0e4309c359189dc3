"""What kernel tasks compute, by the name that a spec uses: one class a problem, one module a subject."""

from ..problem import Problem
from .convolution import Conv2d
from .sparse import Pad, SparseConv, Stretch
from .start import Mirror, Saxpy

PROBLEMS: dict[str, Problem] = {p.name: p for p in (Conv2d(), Pad(), Stretch(), SparseConv(), Saxpy(), Mirror())}
