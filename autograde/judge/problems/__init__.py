"""What kernel tasks compute, by the name that a spec uses: one class a problem, one module a subject."""

from ..problem import Problem
from .convolution import Conv2d
from .generated import GeneratedConv
from .lowering import Im2col, Product, ProductByRows, Turned
from .sparse import Pad, SparseConv, Stretch
from .start import Mirror, Saxpy
from .training import DataGradient, WeightGradient

_ALL: tuple[Problem, ...] = (
    Conv2d(), Im2col(), Product(), ProductByRows(), Turned(), Pad(), Stretch(), SparseConv(), GeneratedConv(),
    DataGradient(), WeightGradient(), Saxpy(), Mirror(),
)  # fmt: skip
PROBLEMS: dict[str, Problem] = {p.name: p for p in _ALL}
