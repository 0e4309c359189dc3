"""Every opcode gives bit for bit what a GPU gave, on edge values and noise; NaN count as equal."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "hardware"
RECORD = json.loads((FOLDER / "opcodes.json").read_text())

_spec = importlib.util.spec_from_file_location("hardware_opcodes", FOLDER / "opcodes.py")
assert _spec is not None
assert _spec.loader is not None
hardware_opcodes = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(hardware_opcodes)

CASES = list(hardware_opcodes.cases())


def test_every_case_is_recorded():
    assert [case.instruction for case in CASES] == list(RECORD["digests"])


def check(engine, case):
    args = {"out": case.output()} | {f"in{i}": column for i, column in enumerate(case.columns())}
    out = engine.once("llvm", case.ptx(), 1, hardware_opcodes.ROWS, args)
    assert case.digest(out.arrays["out"]) == RECORD["digests"][case.instruction], case.instruction


@pytest.mark.parametrize("case", CASES[::25], ids=lambda case: case.instruction.split()[0])
def test_some_opcodes_give_the_hardwares_bits(engine, case):
    check(engine, case)


@pytest.mark.full
@pytest.mark.parametrize("part", range(20))
def test_all_opcodes_give_the_hardwares_bits(engine, part):
    for case in CASES[part::20]:
        check(engine, case)


def test_a_wrong_bit_is_noticed():
    case = CASES[0]
    results = case.output()
    other = results.copy()
    other.view(np.uint32)[7] ^= 1
    assert case.digest(results) != case.digest(other)
