"""__syncwarp: it orders what the lanes that take part did before and do after, within their warp."""

from __future__ import annotations

from .context import Slot, Stop, get, put
from .ir import FunctionBuilder, Value, integer, suffix, vector

_ROW = vector("i32")


def sync_warp() -> FunctionBuilder:
    """Note that the active lanes, each with those of them that it names, have waited for each other."""
    f = FunctionBuilder(
        "sync_warp", "void", [("ptr", "context"), (_ROW, "members"), ("i32", "active"), ("i32", "live")]
    )
    context, members, active, live = f.arguments.values()
    bits = get(f, context, Slot.FIELD_BITS, "i32")
    mine = get(f, context, Slot.MY_TAG, "i32")
    field = f.sub(f.binary("shl", integer(1), bits), 1)
    now = f.add(f.or_(mine, field), 1)
    with f.when(f.icmp("eq", now, 0), unlikely=True):
        put(f, context, Slot.STOPPED, integer(Stop.CLOCK, "i64"))
        f.ret()
    put(f, context, Slot.MY_TAG, f.cast("zext", f.or_(now, f.and_(mine, field)), "i64"))
    clock = f.cast("zext", f.binary("lshr", now, bits), "i64")
    put(f, context, Slot.LAST_CLOCK, f.intrinsic("umax", get(f, context, Slot.LAST_CLOCK), clock))
    together = f.and_(members, f.splat(active))
    everyone = f.icmp("eq", together, f.splat(live))
    together = f.select(everyone, integer(-1, _ROW), together)
    _store_lanes(f, f.splat(now), get(f, context, Slot.SYNC_TAGS, "ptr"), active)
    _store_lanes(f, together, get(f, context, Slot.SYNC_LANES, "ptr"), active)
    f.ret()
    return f


def _store_lanes(f: FunctionBuilder, row: Value, pointer: Value, active: Value) -> None:
    arguments = [row, pointer, integer(4), f.to_lanes(active)]
    f.call("void", f"llvm.masked.store.{suffix(row.type)}.p0", arguments)
