"""What a kernel takes of a GPU, read from the assembler's report: no GPU is needed.

The compiler assembles for a named architecture; registers and spills are what a GPU of that architecture will use.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from .compiler import Assembled, assemble
from .errors import BackendError


@dataclass(frozen=True)
class Resources:
    """One kernel on one architecture.

    registers           for each thread
    spill_store_bytes   moved from registers to local memory for want of registers, for each thread; and back:
    spill_load_bytes
    stack_bytes         local memory of each thread: arrays, spills and calls
    shared_bytes        static shared memory of each block
    constant_bytes      constant memory: the driver's part, the kernel's parameters and literals, and the module's
                        __constant__ variables
    barriers            named barriers of each block
    code_bytes          machine code of this kernel
    ptx_bytes           PTX of the whole module, comments included
    cubin_bytes         machine code file of the whole module, without line information
    """

    kernel: str
    arch: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int
    constant_bytes: int
    barriers: int
    code_bytes: int
    ptx_bytes: int
    cubin_bytes: int


def resources(source: str, arch: str = "sm_80", options: Sequence[str] = ()) -> dict[str, Resources]:
    """What each kernel of a CUDA source takes on an architecture.

    arch     "sm_75" (T4), "sm_80" (A100), "sm_86", "sm_89", "sm_90" (H100), … "sm_120": compiler.architectures()
    options  further NVRTC options, such as "-DTILE=16" or "--maxrregcount=32"
    returns  by the kernel's name in PTX, in the order of the assembler
    Raises CompileError, ArgumentError for an architecture that the compiler does not know, BackendError without NVRTC.
    """
    return assembled_resources(source, arch, options)[1]


def assembled_resources(
    source: str, arch: str = "sm_80", options: Sequence[str] = ()
) -> tuple[Assembled, dict[str, Resources]]:
    """The machine code itself as well. Arguments and errors are those of `resources`."""
    made = assemble(source, arch, options)
    sections = _section_sizes(made.cubin)
    found = {}
    reports = _ENTRY.split(made.log)[1:]
    if not reports and "__global__" in source:
        raise BackendError(f"the assembler reports no kernel; it says: {made.log.strip() or 'nothing'}")
    for report in reports:
        name = report.split("'", 1)[0]
        found[name] = _of_kernel(name, arch, report, made, sections)
    return made, found


_ENTRY = re.compile(r"Compiling entry function '")


def _of_kernel(name: str, arch: str, report: str, made: Assembled, sections: dict[str, int]) -> Resources:
    used = next((line for line in report.splitlines() if " Used " in line), "")

    def number(pattern: str, text: str = report) -> int:
        match = re.search(pattern, text)
        return int(match[1]) if match else 0

    registers = number(r"Used (\d+) registers", used)
    if not registers:
        raise BackendError(f"the assembler's report of {name} cannot be read; it says: {report.strip()}")
    return Resources(
        name,
        arch,
        registers,
        number(r"(\d+) bytes spill stores"),
        number(r"(\d+) bytes spill loads"),
        number(r"(\d+) bytes stack frame"),
        number(r"(\d+) bytes smem", used),
        sum(size for section, size in sections.items() if _is_constant(section, name)),
        number(r"used (\d+) barriers", used),
        sections[f".text.{name}"],
        len(made.ptx),
        len(made.cubin),
    )


def _is_constant(section: str, kernel: str) -> bool:
    """Whether a section is constant memory of a kernel, or of the whole module (bank 3)."""
    return section == ".nv.constant3" or re.fullmatch(rf"\.nv\.constant\d+\.{re.escape(kernel)}", section) is not None


def _section_sizes(elf: bytes) -> dict[str, int]:
    """Sizes of the sections of a 64-bit little-endian ELF file, by name."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    entry_size, count, names_at = struct.unpack_from("<HHH", elf, 58)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names = headers[names_at][4]
    return {_string(elf, names + name): size for name, _, _, _, _, size in headers}


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()
