"""The parser keeps what a report needs (lines, names, initial values), and the graph knows where lanes meet."""

from __future__ import annotations

import numpy as np
import pytest

from convladder.kernels import sim
from convladder.kernels.sim import cfg, ptx, uniformity

HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"


def function(body: str, params: str = ".param .u64 p") -> ptx.Function:
    text = f"{HEADER}.visible .entry k({params}) {{ .reg .b32 %r<9>; .reg .pred %p<5>; .reg .b64 %rd<5>;\n{body}\n}}\n"
    return ptx.parse(text).functions["k"]


def test_lines_follow_the_source_and_inlined_headers_belong_to_their_caller():
    f = function(
        """.loc 1 7 3
        add.s32 %r1, %r2, 1;
        .loc 1 0 3
        add.s32 %r1, %r2, 2;
        .loc 2 900 1, function_name $L__info_string0, inlined_at 1 9 5
        add.s32 %r1, %r2, 3;
        .loc 1 3 1, function_name $L__info_string0, inlined_at 1 12 5
        add.s32 %r1, %r2, 4;
        ret;"""
    )
    assert [i.line for i in f.code] == [7, 7, 9, 3, 3]


def test_operands_are_told_apart():
    f = function(
        """@!%p1 ld.global.nc.v2.u32 {%r1, %r2}, [%rd1+-8];
        setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;
        mov.b64 %rd2, {%r1, %r2}; mov.f32 %r3, 0f3F800000; st.global.u32 [table+4], 0x10;
        $L_1: bra.uni $L_1;"""
    )
    load, compare, pack, literal, store, branch = f.code
    assert load.guard == ptx.Guard("%p1", True)
    assert load.operands == (
        ptx.Vector((ptx.Register("%r1"), ptx.Register("%r2"))),
        ptx.Address(ptx.Register("%rd1"), -8),
    )
    assert (load.opcode, load.type.name, load.width) == ("ld", "u32", 2)
    assert compare.operands[0] == ptx.PredicatePair(ptx.Register("%p1"), ptx.Register("%p2"))
    assert compare.operands[2:] == (ptx.Immediate(-5), ptx.NotPredicate(ptx.Register("%p3")))
    assert pack.operands[1] == ptx.Vector((ptx.Register("%r1"), ptx.Register("%r2")))
    assert literal.operands[1].as_type(literal.type) == np.float32(1)
    assert store.operands == (ptx.Address(ptx.Name("table"), 4), ptx.Immediate(16))
    assert f.labels == {"$L_1": 5}
    assert branch.operands == (ptx.Name("$L_1"),)


def test_registers_of_inner_scopes_are_their_own():
    f = function("mov.u32 %t, 1; { .reg .b32 %t; mov.u32 %t, 2; } mov.u32 %t, 3; ret;")
    outer, inner, again, _ = (i.operands[0] if i.operands else None for i in f.code)
    assert outer == again
    assert inner != outer


def test_variables_have_their_initial_bytes():
    program = sim.load(
        HEADER
        + """.const .align 4 .b8 w[8] = {0, 0, 128, 63, 1};
        .global .align 4 .f32 f = 0f40000000;
        .visible .global .align 8 .u64 where[2] = {generic(w), w+4};
        .global .align 2 .s16 t[2][2] = {{1, -2}, {3}};"""
    )
    data = {name: symbol.data for name, symbol in program.symbols.items()}
    assert data["w"].tolist() == [0, 0, 128, 63, 1, 0, 0, 0]
    assert data["f"].view(np.float32)[0] == 2
    assert data["t"].view(np.int16).tolist() == [1, -2, 3, 0]
    first, second = data["where"].view(np.uint64).tolist()
    assert second - first == 4
    assert [program.symbols[n].space for n in ("w", "f")] == ["const", "global"]


def test_parameters_keep_size_alignment_and_type():
    f = function("ret;", ".param .u64 a, .param .align 8 .b8 g[24], .param .u8 c, .param .u64 .ptr .global .align 4 q")
    assert [(s.size, s.align, s.type) for _, s in f.params] == [
        (8, 8, "u64"),
        (24, 8, "b8"),
        (1, 1, "u8"),
        (8, 8, "u64"),
    ]


@pytest.mark.parametrize("text", ["garbage", HEADER + ".entry k() { add.s32", HEADER + ".entry k() { 5 + 5; }"])
def test_what_is_no_ptx_is_a_value_error(text):
    with pytest.raises(ValueError, match="PTX"):
        ptx.parse(text)


DIAMOND = """mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.lt.s32 %p1, {0}, 5; @%p1 bra $then;
mov.u32 %r3, 1; bra $end;
$then: mov.u32 %r3, 2; mov.u32 %r4, 7;
$end: add.s32 %r5, %r3, %r2; ret;"""


def test_the_sides_of_a_branch_meet_at_its_end():
    graph = cfg.build(function(DIAMOND.format("%r1")))
    assert graph.post_dominators == [3, 3, 3, cfg.EXIT]


def test_only_what_lanes_decide_is_varying():
    found = uniformity.analyse(cfg.build(function(DIAMOND.format("%r1"))))
    assert found.divergent_branches == {0}
    assert found.divergent_blocks == {1, 2}
    # %r3 depends on the side that a lane took; %r4 is used on one side only.
    assert found.kept == {"%r3"}
    assert {"%r1", "%r3", "%r5", "%p1"} <= found.varying
    assert not {"%r2", "%r4"} & found.varying
    uniform = uniformity.analyse(cfg.build(function(DIAMOND.format("%r2"))))
    assert not uniform.divergent_branches
    assert not {"%r3", "%r5"} & uniform.varying


def test_a_counter_that_outlives_a_divergent_loop_is_kept():
    graph = cfg.build(
        function(
            """mov.u32 %r1, %tid.x; mov.u32 %r2, 0; mov.u32 %r3, 0;
            $loop: add.s32 %r2, %r2, 1; add.s32 %r3, %r3, 2; setp.lt.s32 %p1, %r2, %r1; @%p1 bra $loop;
            add.s32 %r4, %r3, 1; ret;"""
        )
    )
    found = uniformity.analyse(graph)
    assert found.kept == {"%r3"}
    assert "%r2" not in found.varying
    assert [loop.header for loop in graph.loops] == [1]
