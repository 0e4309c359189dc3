"""Who touched a piece of memory last, and when: the tags in shadows, and which of them make a race.

A tag is a u32: the epoch above, then the warp in its block, then six bits for the lane. Epochs count up over the
whole run: each block begins one, each barrier, each __syncwarp. So a shadow never needs to be cleared: a tag below
the block's first is of another block, one below the epoch's first was made before the last barrier.

Two threads of a block race if nothing orders what they do: neither a barrier between them nor, within a warp, a
__syncwarp that both took part in. Nothing orders different blocks.
"""

from __future__ import annotations

from .context import Slot, get
from .ir import FunctionBuilder, Value

LANE_BITS = 6
#: In place of a lane: several lanes of the warp. All bits of warp and lane: several warps.
SEVERAL_LANES = 32
#: The tag of readers in several blocks: older than every block.
SEVERAL_BLOCKS = 1


def field_bits(warps: int) -> int:
    """Bits of a tag that name warp and lane; the highest warp number stays free."""
    return LANE_BITS + warps.bit_length()


class Tags:
    """Reads tags: of one lane, or of a warp at once."""

    def __init__(self, f: FunctionBuilder, context: Value, is_row: bool = False):
        self.f = f
        self.context = context
        field = f.sub(f.binary("shl", Value("i32", "1"), get(f, context, Slot.FIELD_BITS, "i32")), 1)
        block, epoch, mine = (get(f, context, s, "i32") for s in (Slot.BLOCK_TAG, Slot.EPOCH_TAG, Slot.MY_TAG))
        values = (field, block, epoch, mine)
        self.field, self.block, self.epoch, self.mine = (f.splat(v) for v in values) if is_row else values

    def is_void(self, tag: Value) -> Value:
        """Whether a tag of shared memory is left over from an earlier block."""
        return self.f.icmp("ult", tag, self.block)

    def is_foreign(self, tag: Value, me: Value) -> Value:
        """Whether a tag is of another thread of the block, in this epoch."""
        f = self.f
        other = f.icmp("ne", f.and_(f.xor(tag, me), self.field), 0)
        return f.and_(f.icmp("uge", tag, self.epoch), other)

    def is_unreadable(self, tag: Value, me: Value) -> Value:
        """Whether a writer's tag of shared memory says that it is undefined, or races with me."""
        return self.f.or_(self.is_void(tag), self.is_foreign(tag, me))

    def is_elsewhere(self, tag: Value) -> Value:
        """Whether a tag of an array is of another block."""
        f = self.f
        return f.and_(f.icmp("ult", tag, self.block), f.icmp("ne", tag, 0))

    def in_my_warp(self, tag: Value, me: Value) -> Value:
        f = self.f
        return f.icmp("ult", f.and_(f.xor(tag, me), self.field), 1 << LANE_BITS)

    def several_lanes(self, me: Value) -> Value:
        """The tag of several lanes of my warp."""
        return self.f.or_(self.f.and_(me, ~((1 << LANE_BITS) - 1)), SEVERAL_LANES)

    def with_reader(self, tag: Value, me: Value) -> Value:
        """A reader's tag after I read too, where `tag` is foreign or elsewhere."""
        f = self.f
        several = f.select(self.in_my_warp(tag, me), self.several_lanes(me), f.or_(me, self.field))
        blocks = f.and_(me, 0)
        return f.select(self.is_void(tag), f.or_(blocks, SEVERAL_BLOCKS), several)

    def is_synced(self, tag: Value, me: Value, lane: Value, several: Value) -> Value:
        """Whether a foreign tag is of lanes of my warp that a __syncwarp put before me.

        several   the lanes that a tag of several lanes stands for
        """
        f = self.f
        at = f.mul(f.cast("zext", lane, "i64"), 4)
        before = f.load("i32", get(f, self.context, Slot.SYNC_TAGS, "ptr"), at)
        lanes = f.load("i32", get(f, self.context, Slot.SYNC_LANES, "ptr"), at)
        theirs = f.and_(tag, (1 << LANE_BITS) - 1)
        one = f.icmp("ne", f.and_(f.binary("lshr", lanes, f.and_(theirs, 31)), 1), 0)
        took_part = f.select(f.icmp("ult", theirs, SEVERAL_LANES), one, f.icmp("eq", f.and_(several, f.not_(lanes)), 0))
        return f.and_(f.and_(self.in_my_warp(tag, me), f.icmp("ult", tag, before)), took_part)
