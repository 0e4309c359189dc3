"""The PTX that the engine executes: the one place that says what is supported.

An instruction whose opcode, or any part of whose opcode, is not listed here stops the launch with
UnsupportedPTX before anything runs.
"""

from __future__ import annotations

from . import async_copies
from .barriers import BARRIERS, is_barrier, is_for_all, number_of
from .ptx import Address, Function, Instruction, Name, PredicatePair, Register, Vector, unsupported
from .types import TYPES, ScalarType

_INTS = "u16 u32 u64 s16 s32 s64"
_FLOATS = "f32 f64"
_HALVES = "f16 bf16 f16x2 bf16x2"
_BITS = "b16 b32 b64"
_ALL = f"{_INTS} {_FLOATS} {_BITS}"
_MEMORY = f"u8 s8 b8 {_ALL} v2 v4"
_COMPARE = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
_CACHE = "ca cg cs lu cv wb wt nc volatile relaxed weak gpu cta sys L1 L2 evict_normal"
_CACHE += " evict_first evict_last no_allocate evict_unchanged 64B 128B 256B"
_ROUND = "rn rz rm rp ftz sat"
_ATOMIC = "global shared relaxed acquire release acq_rel cta cluster gpu sys add min max inc dec and or xor"
_ATOMIC += " u32 u64 s32 s64 b16 b32 b64 f32 f64 noftz f16 bf16 f16x2 bf16x2"

#: opcode -> every part that may follow it.
SUPPORTED: dict[str, frozenset[str]] = {
    opcode: frozenset(parts.split())
    for opcode, parts in {
        "ld": f"{_MEMORY} {_CACHE} global param const local shared",
        "st": f"{_MEMORY} {_CACHE} global local shared",
        "mov": f"{_ALL} pred",
        "cvta": "to global const local shared u64",
        "add": f"{_INTS} {_FLOATS} {_HALVES} {_ROUND} cc",
        "sub": f"{_INTS} {_FLOATS} {_HALVES} {_ROUND} cc",
        "mul": f"{_INTS} {_FLOATS} {_HALVES} {_ROUND} lo hi wide",
        "mad": f"{_INTS} {_FLOATS} {_ROUND} lo hi wide cc",
        "addc": "u32 s32 u64 s64 cc",
        "subc": "u32 s32 u64 s64 cc",
        "madc": "u32 s32 u64 s64 cc lo hi",
        "dp4a": "u32 s32",
        "dp2a": "u32 s32 lo hi",
        "mul24": "lo hi u32 s32",
        "mad24": "lo hi u32 s32",
        "fma": f"{_FLOATS} {_HALVES} {_ROUND} relu",
        "div": f"{_INTS} {_FLOATS} {_ROUND} approx full",
        "rem": _INTS,
        "sad": _INTS,
        "min": f"{_INTS} {_FLOATS} {_HALVES} ftz NaN",
        "max": f"{_INTS} {_FLOATS} {_HALVES} ftz NaN",
        "abs": f"s16 s32 s64 {_FLOATS} {_HALVES} ftz",
        "neg": f"s16 s32 s64 {_FLOATS} {_HALVES} ftz",
        "and": f"{_BITS} pred",
        "or": f"{_BITS} pred",
        "xor": f"{_BITS} pred",
        "not": f"{_BITS} pred",
        "cnot": _BITS,
        "lop3": "b32",
        "shl": _BITS,
        "shr": f"{_BITS} {_INTS}",
        "shf": "l r clamp wrap b32",
        "bfe": "u32 s32 u64 s64",
        "bfi": "b32 b64",
        "bfind": "u32 s32 u64 s64 shiftamt",
        "brev": "b32 b64",
        "popc": "b32 b64",
        "clz": "b32 b64",
        "prmt": "b32",
        "selp": _ALL,
        "slct": f"{_ALL} ftz",
        "setp": f"{_ALL} {_HALVES} {_COMPARE} and or xor ftz",
        "set": f"{_ALL} {_HALVES} {_COMPARE} and or xor ftz",
        "cvt": f"u8 s8 {_INTS} {_FLOATS} {_HALVES} {_ROUND} relu rni rzi rmi rpi",
        "sqrt": f"{_FLOATS} {_ROUND} approx",
        "rcp": f"{_FLOATS} {_ROUND} approx",
        "rsqrt": f"{_FLOATS} approx ftz",
        "ex2": f"f32 {_HALVES} approx ftz",
        "lg2": "f32 approx ftz",
        "sin": "f32 approx ftz",
        "cos": "f32 approx ftz",
        "tanh": f"f32 {_HALVES} approx",
        "copysign": _FLOATS,
        "testp": f"{_FLOATS} finite infinite number notanumber normal subnormal",
        "atom": f"{_ATOMIC} cas exch",
        "red": _ATOMIC,
        "shfl": "sync up down bfly idx b32",
        "vote": "sync all any uni ballot pred b32",
        "match": "sync any all b32 b64",
        "redux": "sync add min max and or xor u32 s32 b32",
        "elect": "sync",
        "activemask": "b32",
        "bra": "uni",
        "ret": "uni",
        "exit": "",
        "cp": "async ca cg shared global cta commit_group wait_group wait_all L2 64B 128B 256B",
        "bar": "warp cta sync red popc and or u32 pred",
        "barrier": "warp cta sync red popc and or u32 pred aligned",
        "membar": "gl cta sys",
        "fence": "acq_rel sc gpu cta sys",
        "prefetch": "global L1 L2",
        "nanosleep": "u32",
        "pmevent": "mask",
        "isspacep": "global shared local",
        "trap": "",
        "brkpt": "",
        "printf": "",
        "assertfail": "",
    }.items()
}

#: What in CUDA C++ leads to PTX that is missing, by a part of its opcode: said to the student in place of the PTX.
MISSING = {
    "bar": "barriers for some threads of a block",
    "barrier": "barriers for some threads of a block",
    "bulk": "asynchronous copies in bulk",
    **dict.fromkeys(("mma", "wmma", "wgmma", "ldmatrix", "stmatrix"), "tensor cores"),
    **dict.fromkeys(("tex", "tld4", "suld", "sust"), "textures and surfaces"),
    **dict.fromkeys(("mbarrier", "cluster"), "barriers in memory and clusters of blocks"),
    "brx": "jumps through a table",
}

#: Directed rounding is done for these.
_DIRECTED = frozenset({"add", "sub", "mul", "div", "fma", "mad", "sqrt", "rcp", "cvt"})

SPECIAL_REGISTERS = frozenset(
    {f"%{r}.{d}" for r in ("tid", "ntid", "ctaid", "nctaid") for d in "xyz"}
    | {f"%lanemask_{m}" for m in ("eq", "lt", "le", "gt", "ge")}
    | {"%laneid", "%warpid", "%nwarpid", "%smid", "%nsmid", "%gridid", "WARP_SZ"}
    | {"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"}
)

#: Special registers that count: the instructions that the warp has spent of its budget, at every read anew.
CLOCKS = frozenset(r for r in SPECIAL_REGISTERS if r.startswith(("%clock", "%globaltimer")))

#: Instructions that end a thread with a fault.
STOPS = frozenset(("trap", "brkpt", "assertfail"))


#: Instructions in which the lanes of a warp meet.
WARP_FUNCTIONS = frozenset(("shfl", "vote", "match", "redux", "elect", "activemask"))

#: Longer entries, calls inlined, are refused: they would take minutes to compile.
MAX_INSTRUCTIONS = 50_000


def check_supported(function: Function) -> None:
    """Raise UnsupportedPTX at the first instruction that the executors lack."""
    if len(function.code) > MAX_INSTRUCTIONS:
        raise unsupported(function.code[MAX_INSTRUCTIONS], f"more than {MAX_INSTRUCTIONS} instructions")
    for instruction in function.code:
        _check(function, instruction)


def _unknown(register: str) -> str:
    """What a register stands for that the engine does not know."""
    if register.startswith("%envreg"):
        return "the engine does not synchronise the whole grid (this_grid().sync()): end the kernel and launch the next"
    return f"the engine does not know the register {register}"


def _check(function: Function, instruction: Instruction) -> None:
    parts = SUPPORTED.get(instruction.opcode)
    if parts is None or not parts.issuperset(instruction.modifiers):
        raise unsupported(instruction, _why(instruction))
    directed = {"rz", "rm", "rp"} & set(instruction.modifiers)
    if directed and not (instruction.opcode in _DIRECTED and _can_round(instruction)):
        raise unsupported(instruction)
    if instruction.opcode in ("ld", "st"):
        _check_access(instruction)
    if instruction.opcode in ("atom", "red"):
        _check_atomic(instruction)
    async_copies.check(instruction)
    if is_barrier(instruction) and not (is_for_all(instruction) and number_of(instruction) in range(BARRIERS)):
        raise unsupported(instruction, _why(instruction))
    if instruction.opcode != "mov" and any(isinstance(o, Register) and o.name in CLOCKS for o in instruction.operands):
        raise unsupported(instruction)
    for operand in instruction.operands:
        inner = [operand.first, operand.second] if isinstance(operand, PredicatePair) else [operand]
        for register in inner:
            base = register.base if isinstance(register, Address) else register
            if isinstance(base, Register) and not _known(function, base.name):
                raise unsupported(instruction, _unknown(base.name))
    if instruction.opcode == "bra":
        target = instruction.operands[0]
        if not isinstance(target, Name) or target.name not in function.labels:
            raise unsupported(instruction)


def _check_access(instruction: Instruction) -> None:
    """An access has an address and as many registers as it moves, 16 bytes at most."""
    if len(instruction.operands) != 2:
        raise unsupported(instruction)
    place, value = instruction.operands if instruction.opcode == "st" else reversed(instruction.operands)
    parts = len(value.parts) if isinstance(value, Vector) else 1
    too_wide = instruction.type.size * instruction.width > 16
    if not isinstance(place, Address) or parts != instruction.width or too_wide:
        raise unsupported(instruction)


#: Operation of atom and red -> kinds of types and their widths.
_ATOMICS = {
    "add": "u32 u64 s32 f32 f64 f16 bf16 f16x2 bf16x2",
    "min": "u32 s32 u64 s64", "max": "u32 s32 u64 s64", "inc": "u32", "dec": "u32",
    "and": "b32 b64", "or": "b32 b64", "xor": "b32 b64", "exch": "b32 b64", "cas": "b16 b32 b64",
}  # fmt: skip


def _check_atomic(instruction: Instruction) -> None:
    """An update has one operation on a type that it knows, an address, and as many operands as it needs."""
    operations = [m for m in instruction.modifiers if m in _ATOMICS]
    operands = list(instruction.operands[instruction.opcode == "atom" :])
    wanted = 3 if operations == ["cas"] else 2
    if (
        len(operations) != 1
        or instruction.type.name not in _ATOMICS[operations[0]].split()
        or len(operands) != wanted
        or not isinstance(operands[0], Address)
    ):
        raise unsupported(instruction)


def _why(instruction: Instruction) -> str:
    """What of CUDA C++ the engine lacks, in its own terms; "" where the opcode does not tell."""
    found = next((MISSING[part] for part in (instruction.opcode, *instruction.modifiers) if part in MISSING), "")
    return f"the engine does not execute {found} yet; run this kernel on a GPU, or do without" if found else ""


def _can_round(instruction: Instruction) -> bool:
    if any(t.is_half for t in instruction.types):
        return instruction.opcode == "cvt"
    if instruction.opcode == "cvt":
        to, source = instruction.types[-2:]
        return to.is_float and (not source.is_float or to.bits < source.bits)
    return instruction.type.is_float


def _known(function: Function, name: str) -> bool:
    if name in SPECIAL_REGISTERS or name == "_":
        return True
    try:
        function.register_type(name)
    except KeyError:
        return False
    return True


def source_types(ins: Instruction) -> list[ScalarType]:
    """The types of an arithmetic instruction's sources, where they differ from its own."""
    kind = ins.type
    u32 = TYPES["u32"]
    if ins.opcode in ("shl", "shr"):
        return [kind, u32]
    if ins.opcode == "mad" and ins.has("wide"):
        return [kind, kind, TYPES[f"{kind.kind}{2 * kind.bits}"]]
    if ins.opcode == "bfe":
        return [kind, u32, u32]
    if ins.opcode == "bfi":
        return [kind, kind, u32, u32]
    if ins.opcode == "shf":
        return [u32, u32, u32]
    if ins.opcode == "cvt":
        return [ins.types[-1]] * 2
    return [kind] * 4


def result_type(ins: Instruction) -> ScalarType:
    """The type of an arithmetic instruction's result."""
    kind = ins.type
    if ins.has("wide"):
        return TYPES[f"{kind.kind}{2 * kind.bits}"]
    if ins.opcode == "cvt":
        return ins.types[-2]
    if ins.opcode == "set":
        return ins.types[0]
    if ins.opcode in ("popc", "clz", "bfind"):
        return TYPES["u32"]
    if ins.opcode == "testp":
        return TYPES["pred"]
    return kind


def integer_of_nan(to: ScalarType, source: ScalarType) -> int:
    """What cvt makes of NaN, as bits: 0, or the highest bit alone where either type has 64 bits."""
    return 1 << (to.bits - 1) if source.bits == 64 or to.bits == 64 else 0


def half_of_nan(to: ScalarType, source: ScalarType) -> int:
    """What cvt makes of NaN in half precision, as bits: from double precision the hardware takes another way."""
    return {"f16": 0x7E00, "bf16": 0x7FC0}[to.name] if source.name == "f64" else 0x7FFF
