"""Arguments of a launch against the parameters of a kernel: what fits, and what is wrong with what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import ArgumentError
from .signature import Parameter


class out:
    """Marks an array whose contents are undefined until the kernel writes them.

    The launch fills it with NaN bytes first, and on the engine a read before the first write is a fault.

    defined   a byte for each of the array's, not 0 where that one is defined already; None: nowhere. A checked launch
              on the engine sets what it writes.
    """

    def __init__(self, array: Any, defined: np.ndarray | None = None):
        self.array = array
        self.defined = defined


@dataclass(frozen=True)
class Argument:
    """One argument that fits its parameter: an array (undefined: marked `out`) or the bytes of a scalar."""

    name: str
    array: Any = None
    undefined: bool = False
    scalar: np.generic | None = None
    defined: np.ndarray | None = None  # as for `out`


def fit(
    kernel: str, declared: tuple[Parameter, ...] | None, sizes: Sequence[int], args: Sequence[Any]
) -> list[Argument]:
    """The arguments as a kernel's parameters take them.

    declared  its parameters; None where the source's declaration could not be read
    sizes     of its parameters, in bytes
    Raises ArgumentError for a wrong number of arguments, a wrong dtype, an array that is not C-contiguous or is
    read-only although the kernel may write to it, and arrays that overlap.
    """
    if len(args) != len(sizes):
        listed = f"({', '.join(map(str, declared))})" if declared is not None else ""
        raise ArgumentError(f"{kernel}{listed} takes {len(sizes)} arguments, got {len(args)}")
    parameters = declared or tuple(Parameter("", f"argument {i}") for i in range(1, len(args) + 1))
    fitted = [
        _fit_one(f"{kernel}, parameter {i} ({p})" if p.type else f"{kernel}, {p.name}", p, size, arg)
        for i, (p, size, arg) in enumerate(zip(parameters, sizes, args, strict=True), 1)
    ]
    _require_apart(kernel, fitted)
    return fitted


def _require_apart(kernel: str, args: Sequence[Argument]) -> None:
    """Two arrays are the same memory or have none in common; what is undefined before is an input nowhere."""
    arrays = [(a, *_extent(a.array)) for a in args if a.array is not None and a.array.nbytes]
    for i, (a, begin, end) in enumerate(arrays):
        for b, other_begin, other_end in arrays[:i]:
            if begin >= other_end or other_begin >= end:
                continue
            if (begin, end) != (other_begin, other_end):
                raise ArgumentError(f"{kernel}: the arrays {b.name} and {a.name} overlap in part. Pass a copy of one")
            if any(each.undefined and each.defined is None for each in (a, b)):
                raise ArgumentError(
                    f"{kernel}: {b.name} and {a.name} are the same array, and out() says that its contents are "
                    "undefined. Pass a copy, or leave out() away"
                )


def _extent(array: Any) -> tuple[int, int]:
    """First address of an array and the one behind it, on the host or on a device."""
    begin = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return begin, begin + array.nbytes


def _fit_one(where: str, parameter: Parameter, size: int, arg: Any) -> Argument:
    undefined = isinstance(arg, out)
    value = arg.array if isinstance(arg, out) else arg
    name = parameter.name or "argument"
    if isinstance(value, np.void):
        return Argument(name, scalar=_fit_struct(where, size, value))
    if hasattr(value, "shape") and not isinstance(value, np.generic) and not parameter.is_reference:
        array, defined = _fit_array(where, parameter, size, value), arg.defined if isinstance(arg, out) else None
        return Argument(name, array=array, undefined=undefined, defined=defined)
    if parameter.is_pointer:
        raise ArgumentError(f"{where}: got {value!r}; a pointer takes an array")
    if parameter.is_reference:
        raise ArgumentError(
            f"{where}: a kernel cannot take a reference, as host memory is out of its reach; drop the &"
        )
    return Argument(name, scalar=_fit_scalar(where, parameter, size, value))


def _fit_struct(where: str, size: int, value: np.void) -> np.void:
    if value.nbytes != size:
        raise ArgumentError(
            f"{where}: the struct has {size} bytes, the np.void has {value.nbytes}: give its dtype the struct's "
            "members, padding too (align=True)"
        )
    return value


def _fit_array(where: str, parameter: Parameter, size: int, array: Any) -> Any:
    if size != 8 or (parameter.type and not parameter.is_pointer):
        raise ArgumentError(f"{where}: got an array; the parameter is not a pointer, so pass a number")
    wanted = parameter.dtype
    if wanted is not None and array.dtype != wanted:
        raise ArgumentError(
            f"{where}: got an array of {array.dtype}; it takes {wanted}. Convert it with .astype('{wanted}')"
        )
    if not array.flags.c_contiguous:
        raise ArgumentError(f"{where}: the array is not C-contiguous. Convert it with np.ascontiguousarray(...)")
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        if not parameter.const:
            raise ArgumentError(f"{where}: the array is read-only and the kernel may write to it. Pass a copy")
        array = array.copy()
    return array


def _fit_scalar(where: str, parameter: Parameter, size: int, value: Any) -> np.generic:
    dtype = parameter.dtype
    if dtype is None or dtype.itemsize != size:
        if isinstance(value, np.generic) and value.nbytes == size:
            return value
        raise ArgumentError(
            f"{where}: cannot tell how to pass {value!r} to a parameter of this type; declare it as int, float or "
            f"another type of C's own, or give a NumPy scalar or np.void of {size} bytes"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "f" and isinstance(value, int | float):
        return dtype.type(value)
    if dtype.kind in "iub" and isinstance(value, int):
        if dtype.kind != "b" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise ArgumentError(f"{where}: {value} does not fit into {dtype}")
        return dtype.type(value)
    raise ArgumentError(f"{where}: got {value!r}; it takes a number of type {dtype}")
