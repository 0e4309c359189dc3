"""The sizes of generated code beside the paper's: what is recorded is what is generated today."""

import pytest

from convladder.kernels import recorded
from convladder.kernels.bench import codesize, compare
from convladder.kernels.codegen import Choice


@pytest.fixture(scope="module")
def rows() -> dict:
    (record,) = recorded.load(codesize.SUITE)
    return {(row["operator"], row["sparsity"]): row for row in compare.rows(record)}


def test_every_operator_is_recorded_at_every_sparsity_of_the_paper(rows):
    assert len(rows) == 30
    assert {sparsity for _, sparsity in rows} == set(codesize.SPARSITIES)


def test_sizes_shrink_with_the_weights(rows):
    for operator in {operator for operator, _ in rows}:
        for what in ("ptx_bytes", "cubin_bytes", "code_bytes"):
            sizes = [rows[operator, sparsity][what] for sparsity in codesize.SPARSITIES]
            assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("sparsity", codesize.SPARSITIES)
def test_an_operators_recorded_sizes_are_those_of_its_code(rows, sparsity):
    row = rows["lenet-conv1", sparsity]
    found = codesize.sizes("lenet-conv1", sparsity, workers=1, choice=Choice(**row["choice"]))
    assert found["nnz"] == row["nnz"]
    for what in ("ptx_bytes", "cubin_bytes", "code_bytes"):
        assert found["ways"][0][what] == pytest.approx(row[what], rel=0.05)  # other patch levels of the compiler
