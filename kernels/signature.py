"""What a kernel's parameters are called and typed, read from its declaration in the source.

PTX keeps the sizes of parameters but loses their names and C types, and both are what a message
to a student needs: "parameter 4, int N, got a float32 array".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

#: C scalar types of kernel parameters and the dtypes that they take.
SCALARS: dict[str, np.dtype] = {
    name: np.dtype(kind)
    for kind, names in {
        "bool": ("bool",),
        "int8": ("char", "signed char", "int8_t"),
        "uint8": ("unsigned char", "uint8_t"),
        "int16": ("short", "int16_t"),
        "uint16": ("unsigned short", "uint16_t"),
        "int32": ("int", "int32_t"),
        "uint32": ("unsigned", "unsigned int", "uint32_t"),
        "int64": ("long long", "long", "int64_t", "ptrdiff_t"),
        "uint64": ("unsigned long long", "unsigned long", "uint64_t", "size_t"),
        "float16": ("half", "__half"),
        "float32": ("float",),
        "float64": ("double",),
    }.items()
    for name in names
}

#: CUDA's vector types, as (element type, elements).
_VECTOR = re.compile(r"(u?)(char|short|int|longlong|float|double)([1-4])$")

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_BOUNDS = r"(?:__launch_bounds__\s*\([^)]*\)\s*)?"
_KERNEL = re.compile(rf"__global__\s+{_BOUNDS}(?:(?:static|inline)\s+)*void\s+{_BOUNDS}([A-Za-z_]\w*)\s*\(")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel: its C type without `const` and `__restrict__`, its name,
    and whether it is a pointer to const, through which nothing is written."""

    type: str
    name: str
    const: bool = False

    @property
    def is_pointer(self) -> bool:
        return self.type.endswith("*")

    @property
    def is_reference(self) -> bool:
        return self.type.endswith("&")

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype of the scalar, or of the elements behind the pointer; None for a type we do not know."""
        base = self.type.rstrip("* ")
        if vector := _VECTOR.fullmatch(base):
            unsigned, element, _ = vector.groups()
            name = ("unsigned " if unsigned else "") + element.replace("longlong", "long long")
            return SCALARS[name]
        return SCALARS.get(base)

    def __str__(self) -> str:
        return f"{'const ' if self.const else ''}{self.type} {self.name}".rstrip()


def without_comments(source: str) -> str:
    """The source with every comment blanked and every line kept where it was."""
    return _COMMENT.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), source)


def kernels(source: str) -> dict[str, tuple[Parameter, ...]]:
    """The `__global__` functions of a CUDA text: name -> parameters, in the order of the text."""
    text = without_comments(source)
    found: dict[str, tuple[Parameter, ...]] = {}
    for match in _KERNEL.finditer(text):
        inside = _until_closing(text, match.end())
        if inside is not None:
            found[match.group(1)] = tuple(_parameter(p) for p in _split(inside) if p.strip() not in ("", "void"))
    return found


def _until_closing(text: str, start: int) -> str | None:
    depth = 1
    for i in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return None


def _split(parameters: str) -> list[str]:
    """Split at the commas outside of brackets, as in `std::array<int, 3> a, int b`."""
    parts, depth = [""], 0
    for c in parameters:
        depth += {"<": 1, "(": 1, "[": 1, ">": -1, ")": -1, "]": -1}.get(c, 0)
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return parts


def _parameter(text: str) -> Parameter:
    text = text.split("=")[0].strip()
    brackets = re.search(r"\[[^\]]*\]\s*$", text)  # float x[] is float* x
    if brackets:
        text = text[: brackets.start()].rstrip()
    stars = "*" * (text.count("*") + bool(brackets)) + "&" * ("&" in text)
    words = re.findall(r"[A-Za-z_][\w:]*(?:<[^>]*>)?", re.sub("[*&]", " ", text))
    words = [w for w in words if w not in ("const", "volatile", "__restrict__", "__restrict", "struct")]
    known = {"unsigned", "signed", "int", "long", "short", "char", "float", "double", "bool"}
    name = words.pop() if len(words) > 1 and words[-1] not in known else ""
    const = bool(stars) and "const" in text.split("*")[0].split()
    return Parameter(_canonical(" ".join(words)) + stars, name, const)


def _canonical(type_name: str) -> str:
    """One spelling for the integer types: `long long int` is `long long`, `unsigned int` is `unsigned`."""
    words = type_name.split()
    if "int" in words and len(words) > 1:
        words.remove("int")
    if words == ["signed"]:
        words = ["int"]
    return " ".join(words)
