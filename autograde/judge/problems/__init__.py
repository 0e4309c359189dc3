"""What kernel tasks compute, by the name that a spec uses: one class a problem, one module a subject."""

from ..problem import Problem
from .convolution import Conv2d
from .sparse import Pad, SparseConv, Stretch
from .start import Mirror, Saxpy
from .training import DataGradient, WeightGradient

_ALL = (Conv2d(), Pad(), Stretch(), SparseConv(), DataGradient(), WeightGradient(), Saxpy(), Mirror())
PROBLEMS: dict[str, Problem] = {p.name: p for p in _ALL}
