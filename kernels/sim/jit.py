"""LLVM IR to machine code in this process, through the object cache."""

from __future__ import annotations

import ctypes
import ctypes.util
import hashlib
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from . import atomics, fast_access, library, objectcache, shared_access, warp_functions
from .types import ScalarType

#: Functions of the C library that compiled code calls.
_C_FUNCTIONS = ("exp2", "log2", "sin", "cos", "tanh", "memcpy", "memset", "memcmp", "fma", "fmaf")

_lock = threading.RLock()
_engines: dict[str, llvm.ExecutionEngine] = {}  # compiled code lives as long as its engine


@cache
def _start() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    name = ctypes.util.find_library("m") if sys.platform != "win32" else "ucrtbase"
    libm = ctypes.CDLL(name)
    libc = ctypes.CDLL(None) if sys.platform != "win32" else libm
    for function in _C_FUNCTIONS:
        for lib in (libm, libc):
            if hasattr(lib, function):
                llvm.add_symbol(function, ctypes.cast(getattr(lib, function), ctypes.c_void_p).value)
                break


@cache
def _host() -> tuple[str, str]:
    """Name and features of this machine's processor."""
    return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def _machine(level: int) -> llvm.TargetMachine:
    cpu, features = _host()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(cpu=cpu, features=features, opt=level, jit=True)


def compile_object(ir: str, thorough: bool) -> bytes:
    """Machine code of a module.

    Kernels are compiled fast: their IR is written to need no passes. Library code is compiled thoroughly: the
    three passes that undo its builder's stack slots make it as fast as all of LLVM's, in a third of the time.
    """
    machine = _machine(int(thorough))
    module = llvm.parse_assembly(ir)
    if thorough:
        passes = llvm.create_new_module_pass_manager()
        passes.add_sroa_pass()
        passes.add_instruction_combine_pass()
        passes.add_simplify_cfg_pass()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return machine.emit_object(module)


def address_of(ir: str, function: str) -> int:
    """Address of a function of a kernel's module: compiled, from the cache, or still in memory."""
    with _lock:
        return _engine(ir, lambda: ir, thorough=False).get_function_address(function)


def _engine(identity: str, write: Callable[[], str], thorough: bool) -> llvm.ExecutionEngine:
    """The machine code of a module; its IR is written only if it must be compiled."""
    _start()
    key = hashlib.sha256("\n".join((identity, str(thorough), llvmlite.__version__, *_host())).encode()).hexdigest()
    if key not in _engines:
        body = objectcache.read(key)
        if body is None:
            body = compile_object(write(), thorough)
            objectcache.write(key, body)
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(int(thorough)))
        engine.add_object_file(llvm.ObjectFileRef.from_data(body))
        engine.finalize_object()
        _engines[key] = engine
    return _engines[key]


@cache
def _own_sources() -> str:
    """A digest of this folder's sources: what they write changes only with them."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _publish(module: str, write: Callable[[], str], names: Sequence[str]) -> None:
    """Make the functions of a module of the library known to later modules."""
    with _lock:
        engine = _engine(f"{module} {_own_sources()}", write, thorough=True)
        for name in names:
            llvm.add_symbol(name, engine.get_function_address(name))


@cache
def drive_address() -> int:
    """The loop over blocks and warps; loading it makes the whole base library known to later modules."""
    _publish("base", library.base_module, (*library.NAMES, "drive"))
    return llvm.address_of_symbol("drive")


@cache
def require_access(width: int) -> None:
    """Make the accesses of a width known to later modules."""
    drive_address()
    names = (f"load{width}", f"store{width}")
    _publish(f"access {width}", lambda: fast_access.access_module(width), names)


@cache
def require_shared_access(width: int, granule: int) -> None:
    """Make the accesses to shared memory of a width known to later modules."""
    drive_address()
    names = [shared_access.name_of(op, width, granule) for op in ("load", "store")]
    _publish(f"shared access {width} {granule}", lambda: shared_access.access_module(width, granule), names)


@cache
def require_atomic(operation: str, kind: ScalarType) -> None:
    """Make the atomic updates of one operation and type known to later modules."""
    drive_address()
    name = f"atomic.{operation}.{kind.name}"
    _publish(name, lambda: atomics.atomic_module(operation, kind), [name])


@cache
def require_warp_functions() -> None:
    """Make shuffles, matches and reductions known to later modules."""
    drive_address()
    _publish("warp functions", warp_functions.module, warp_functions.NAMES)
