"""What the fast loads and stores of a warp have in common: they prove that there is nothing to report, or give up.

Then they go to `careful`, before anything has been changed.
"""

from __future__ import annotations

from .access import fill_bytes, split_access
from .context import Slot, get
from .ir import LANES, FunctionBuilder, Value, integer, vector

#: Of an access whose lanes' addresses differ.
ROW_ARGUMENTS = [
    ("ptr", "context"),
    (vector("i64"), "addresses"),
    ("i64", "offset"),  # to be added to each address
    ("i32", "active"),
    ("i32", "access"),
]

#: Of a load whose lanes read one address; one element comes back.
UNIFORM_ARGUMENTS = [("ptr", "context"), ("i64", "address"), ("i32", "active"), ("i32", "access"), ("i64", "width")]


class Prover:
    """Code that goes on only while it can prove that there is nothing to report, else at `slow`."""

    f: FunctionBuilder
    active: Value
    slow: str

    def holds(self, condition: Value) -> Value:
        """Whether a <32 x i1> holds in every active lane."""
        f = self.f
        return f.icmp("eq", f.or_(f.to_mask(condition), f.not_(self.active)), -1)

    def require(self, condition: Value) -> None:
        """Go on only if the condition holds, else to the slow path."""
        good = self.f.label("good")
        self.f.branch(condition, good, self.slow)
        self.f.place(good)


class WarpAccess(Prover):
    """A function that loads or stores `width` bytes a lane; the lanes' data lie in DATA."""

    def __init__(self, name: str, is_load: bool, width: int):
        self.is_load, self.width = is_load, width
        self.f = f = FunctionBuilder(name, "void", ROW_ARGUMENTS)
        self.context, addresses, offset, self.active, access = f.arguments.values()
        self.addresses = f.add(addresses, f.splat(offset))
        self.site, self.flags = split_access(f, access)
        self.data = get(f, self.context, Slot.DATA, "ptr")
        self.slow = f.label("slow")
        if is_load:
            fill_bytes(f, self.data, integer(LANES * width, "i64"))
        with f.when(f.icmp("eq", self.active, 0), unlikely=True):
            f.ret()

    def end(self) -> FunctionBuilder:
        """The function, with its slow path."""
        f = self.f
        f.place(self.slow)
        memory = f.alloca(vector("i64"), align=64)
        f.store(self.addresses, memory, align=64)
        width = integer(self.width, "i64")
        f.call("void", "careful", [self.context, memory, self.active, self.site, self.data, width, self.flags])
        f.ret()
        return f


class UniformLoad:
    """A function that loads from one address for all lanes."""

    def __init__(self, name: str):
        self.f = f = FunctionBuilder(name, "void", UNIFORM_ARGUMENTS)
        self.context, self.address, self.active, access, self.width = f.arguments.values()
        self.site, self.flags = split_access(f, access)
        self.data = get(f, self.context, Slot.DATA, "ptr")
        self.slow = f.label("slow")
        fill_bytes(f, self.data, self.width)
        with f.when(f.icmp("eq", self.active, 0), unlikely=True):
            f.ret()

    def require_not(self, bad: Value) -> None:
        """Go to the slow path if something is bad."""
        fast = self.f.label("fast")
        self.f.branch(bad, self.slow, fast, unlikely=True)
        self.f.place(fast)

    def end(self) -> FunctionBuilder:
        """The function, with its slow path."""
        f = self.f
        f.ret()
        f.place(self.slow)
        place = [self.context, self.address, self.active, self.site, self.width, self.flags]
        f.call("void", "careful_uniform", place)
        f.ret()
        return f
