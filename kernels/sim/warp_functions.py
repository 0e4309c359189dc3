"""Shuffles, votes, matches and reductions among the lanes of a warp, in compiled code.

Votes are a few instructions on masks and are written in place. The others are functions of their own, compiled once
for a machine: they take vectors of all lanes, and leave a row of results in the context's DATA and, after it, the
mask of a predicate. Every lane names in `members` the lanes that it wants to meet.
"""

from __future__ import annotations

from collections.abc import Callable

from .context import NO_SITE, Slot, get
from .faults import LANE_AWAY, LANE_MISSES_ITSELF, LANE_SILENT
from .ir import LANES, FunctionBuilder, Value, integer, iota, is_vector, module_text, vector
from .ptx import Instruction

#: Where the predicate's mask lies in DATA.
PREDICATE_AT = 8 * LANES

_ROW = vector("i32")
_ARGUMENTS = [
    ("ptr", "context"),
    (vector("i64"), "a"),
    (_ROW, "b"),
    (_ROW, "c"),
    (_ROW, "members"),
    ("i32", "active"),
    ("i32", "live"),
    ("i32", "site"),
]


def name_of(ins: Instruction) -> str:
    """The function that executes a shuffle, match, reduction or election."""
    if ins.opcode == "shfl":
        return f"shfl_{next(m for m in ins.modifiers if m in _SOURCES)}"
    if ins.opcode == "match":
        return f"match_{'any' if ins.has('any') else 'all'}"
    if ins.opcode == "redux":
        return f"redux_{next(m for m in ins.modifiers if m in _BITWISE or m in _ORDERED)}_{ins.type.kind}"
    return ins.opcode


def module() -> str:
    """All functions that `name_of` names, and `check_members`."""
    functions = [_check_members(), _match_any(), _match_all(), _elect()]
    functions += [_shuffle(mode) for mode in _SOURCES]
    functions += [_reduce(op, kind) for op, kinds in _REDUCTIONS.items() for kind in kinds]
    return module_text(functions)


def vote(f: FunctionBuilder, ins: Instruction, wanted: Value, members: Value, active: Value) -> Value:
    """The result of a vote: masks of lanes in, an i32 of all lanes or (members differ) a vector out.

    For a predicate: the mask of the lanes for which it holds; all ones or 0 where it is the same for all.
    """
    if is_vector(members.type):
        wanted, active = f.splat(wanted), f.splat(active)
    asked = f.and_(members, active)
    yes = f.and_(wanted, asked)
    if ins.has("ballot"):
        return yes
    no = f.and_(f.not_(wanted), asked)
    holds = f.icmp("ne", yes, 0) if ins.has("any") else f.icmp("eq", no, 0)
    if ins.has("uni"):
        holds = f.or_(holds, f.icmp("eq", yes, 0))
    return f.to_mask(holds) if is_vector(holds.type) else f.cast("sext", holds, "i32")


# -- the functions ---------------------------------------------------------------------------------


def _begin(name: str) -> tuple[FunctionBuilder, list[Value], Value]:
    """A function that has checked its members; its arguments, and DATA."""
    f = FunctionBuilder(name, "void", _ARGUMENTS)
    context, a, b, c, members, active, live, site = f.arguments.values()
    f.call("void", "check_members", [context, members, active, live, site])
    return f, [context, a, b, c, members, active, site], get(f, context, Slot.DATA, "ptr")


def _lanes_where(f: FunctionBuilder, condition: Value) -> Value:
    return f.to_mask(condition)


def _bit(f: FunctionBuilder, lane: Value) -> Value:
    one = integer(1, lane.type)
    return f.binary("shl", one, lane)


def _check_members() -> FunctionBuilder:
    """Note each lane that does not name itself, or names a lane that has not ended and is elsewhere."""
    f = FunctionBuilder(
        "check_members",
        "void",
        [("ptr", "context"), (_ROW, "members"), ("i32", "active"), ("i32", "live"), ("i32", "site")],
    )
    context, members, active, live, site = f.arguments.values()
    alike = f.icmp("eq", members, f.splat(f.extract(members, f.and_(f.lowest_bit(f.or_(active, 1 << 31)), 31))))
    everyone = f.icmp("eq", f.or_(_lanes_where(f, alike), f.not_(active)), -1)
    exact = f.icmp("eq", f.and_(members, f.splat(live)), f.splat(active))
    fine = f.icmp("eq", f.or_(_lanes_where(f, exact), f.not_(active)), -1)
    with f.when(f.and_(everyone, fine)):
        f.ret()
    memory = f.alloca(_ROW, align=64)
    f.store(members, memory, align=64)

    def report(code: int, lane: Value, mask: Value, other: Value) -> None:
        arguments = [
            context,
            site,
            integer(code),
            integer(0, "i64"),
            lane,
            f.cast("zext", mask, "i64"),
            other,
            integer(NO_SITE),
        ]
        f.call("void", "record", arguments)

    with f.each_lane(active) as lane:
        mask = f.load("i32", memory, f.mul(f.cast("zext", lane, "i64"), 4))
        with f.when(f.icmp("eq", f.and_(mask, _bit(f, lane)), 0)):
            report(LANE_MISSES_ITSELF, lane, mask, integer(0))
        others = _lanes_where(f, f.icmp("ne", members, f.splat(mask)))
        away = f.and_(f.and_(mask, live), f.or_(f.not_(active), others))
        with f.when(f.icmp("ne", away, 0)):
            report(LANE_AWAY, lane, mask, f.lowest_bit(away))
    f.ret()
    return f


def _shuffle(mode: str) -> FunctionBuilder:
    """shfl.sync: the lane that each lane reads follows PTX's rule of segments."""
    f, (context, a, b, c, members, active, site), data = _begin(f"shfl_{mode}")
    by = f.and_(b, 31)
    clamp, segment = f.and_(c, 31), f.and_(f.binary("lshr", c, integer(8, _ROW)), 31)
    lane = iota("i32")
    least = f.and_(lane, segment)
    limit = f.or_(least, f.and_(clamp, f.not_(segment)))
    wanted = _SOURCES[mode](f, lane, by, least, segment)
    inside = f.icmp("sge" if mode == "up" else "sle", wanted, limit)
    source = f.select(inside, wanted, lane)
    rows = [f.alloca(kind, align=64) for kind in (_ROW, _ROW, _ROW)]
    for row, value in zip(rows, (f.resize(a, _ROW), source, members)):
        f.store(value, row, align=64)
    with f.each_lane(active) as lane:
        at = f.mul(f.cast("zext", lane, "i64"), 4)
        read = f.and_(f.load("i32", rows[1], at), 31)
        place = f.mul(f.cast("zext", read, "i64"), 4)
        mask = f.load("i32", rows[2], at)
        speaks = f.icmp("ne", f.and_(f.and_(active, mask), _bit(f, read)), 0)
        value = f.select(speaks, f.load("i32", rows[0], place), integer(0))
        f.store(value, data, at)
        with f.when(f.xor(speaks, Value("i1", "true")), unlikely=True):
            wide = f.cast("zext", mask, "i64")
            row = integer(0, "i64")
            f.call("void", "record", [context, site, integer(LANE_SILENT), row, lane, wide, read, integer(NO_SITE)])
    f.store(_lanes_where(f, inside), data, PREDICATE_AT)
    f.ret()
    return f


_SOURCES: dict[str, Callable[..., Value]] = {
    "up": lambda f, lane, by, least, segment: f.sub(lane, by),
    "down": lambda f, lane, by, least, segment: f.add(lane, by),
    "bfly": lambda f, lane, by, least, segment: f.xor(lane, by),
    "idx": lambda f, lane, by, least, segment: f.or_(least, f.and_(by, f.not_(segment))),
}


def _equal_values(f: FunctionBuilder, memory: Value, a: Value, lane: Value) -> Value:
    """The lanes whose value is that of one lane."""
    value = f.load("i64", memory, f.mul(f.cast("zext", lane, "i64"), 8))
    return _lanes_where(f, f.icmp("eq", a, f.splat(value)))


def _in_memory(f: FunctionBuilder, value: Value) -> Value:
    memory = f.alloca(value.type, align=64)
    f.store(value, memory, align=64)
    return memory


def _lane_of(f: FunctionBuilder, memory: Value, lane: Value) -> Value:
    return f.load("i32", memory, f.mul(f.cast("zext", lane, "i64"), 4))


def _match_any() -> FunctionBuilder:
    f, (_, a, _, _, members, active, _), data = _begin("match_any")
    values, masks = _in_memory(f, a), _in_memory(f, members)
    with f.each_lane(active) as lane:
        asked = f.and_(_lane_of(f, masks, lane), active)
        found = f.and_(_equal_values(f, values, a, lane), asked)
        f.store(found, data, f.mul(f.cast("zext", lane, "i64"), 4))
    f.ret()
    return f


def _match_all() -> FunctionBuilder:
    f, (_, a, _, _, members, active, _), data = _begin("match_all")
    values, masks = _in_memory(f, a), _in_memory(f, members)
    f.store(integer(0), data, PREDICATE_AT)
    with f.each_lane(active) as lane:
        asked = f.and_(_lane_of(f, masks, lane), active)
        same = f.icmp("eq", f.and_(_equal_values(f, values, a, lane), asked), asked)
        f.store(f.select(same, asked, integer(0)), data, f.mul(f.cast("zext", lane, "i64"), 4))
        with f.when(same):
            f.store(f.or_(f.load("i32", data, PREDICATE_AT), _bit(f, lane)), data, PREDICATE_AT)
    f.ret()
    return f


def _elect() -> FunctionBuilder:
    """The lowest lane leads."""
    f, (_, _, _, _, members, active, _), data = _begin("elect")
    masks = _in_memory(f, members)
    f.store(integer(0), data, PREDICATE_AT)
    with f.each_lane(active) as lane:
        leader = f.lowest_bit(f.or_(f.and_(_lane_of(f, masks, lane), active), _bit(f, lane)))
        f.store(leader, data, f.mul(f.cast("zext", lane, "i64"), 4))
        with f.when(f.icmp("eq", leader, lane)):
            f.store(f.or_(f.load("i32", data, PREDICATE_AT), _bit(f, lane)), data, PREDICATE_AT)
    f.ret()
    return f


_BITWISE = {"add": "add", "and": "and", "or": "or", "xor": "xor"}
_ORDERED = ("min", "max")
#: Reduction -> kinds of types, as redux.sync has them.
_REDUCTIONS = {"add": "us", "min": "us", "max": "us", "and": "b", "or": "b", "xor": "b"}


def _reduce(op: str, kind: str) -> FunctionBuilder:
    f, (_, a, _, _, members, active, _), data = _begin(f"redux_{op}_{kind}")
    values, masks = _in_memory(f, f.resize(a, _ROW)), _in_memory(f, members)
    total = f.alloca("i32")
    with f.each_lane(active) as lane:
        mine = _lane_of(f, values, lane)
        f.store(mine, total)
        others = f.and_(f.and_(_lane_of(f, masks, lane), active), f.not_(_bit(f, lane)))
        with f.each_lane(others) as other:
            so_far, value = f.load("i32", total), _lane_of(f, values, other)
            if op in _BITWISE:
                f.store(f.binary(_BITWISE[op], so_far, value), total)
            else:
                f.store(f.intrinsic(("s" if kind == "s" else "u") + op, so_far, value), total)
        f.store(f.load("i32", total), data, f.mul(f.cast("zext", lane, "i64"), 4))
    f.ret()
    return f


#: Every function of the module.
NAMES = (
    "check_members",
    "match_any",
    "match_all",
    "elect",
    *(f"shfl_{mode}" for mode in _SOURCES),
    *(f"redux_{op}_{kind}" for op, kinds in _REDUCTIONS.items() for kind in kinds),
)
