"""compute-sanitizer's findings in the corpus, recorded on a GPU, beside the engine's."""

import page
import pytest
import sanitizer

RECORD = sanitizer.recorded()

LOG = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at no_guard(const float *, const float *, float *, int, int, int, int, int)+0x5e0 in kernel.cu:14
=========     by thread (8,0,0) in block (1,0,0)
=========     Access to 0x7f73a9c000a0 is out of bounds
=========
========= Error: Race reported between Write access at tree_without_barriers(const float *, int)+0x1c0 in kernel.cu:13
=========     and Read access at tree_without_barriers(const float *, int)+0x140 in kernel.cu:13 [384 hazards]
=========     and Write access at tree_without_barriers(const float *, int)+0x90 in kernel.cu:11 [4 hazards]
=========
========= ERROR SUMMARY: 2 errors
"""


def test_every_kernel_of_the_corpus_is_recorded():
    """Run sanitizer.py on a machine with a GPU, or name the new kernel in LATER."""
    assert sorted([*RECORD["kernels"], *sanitizer.LATER]) == sorted(sanitizer.CORPUS)


def test_a_log_is_read_finding_by_finding():
    guard, tree = (sanitizer.CORPUS[name].first for name in ("no_guard", "tree_without_barriers"))
    assert sanitizer.findings(LOG) == {
        "no_guard": [{"what": "Invalid __global__ write of size 4 bytes", "lines": [14 - guard], "count": 1}],
        "tree_without_barriers": [
            {"what": "Race reported between Write access", "lines": [13 - tree, 11 - tree], "count": 1}
        ],
    }


@pytest.mark.parametrize("name", [n for n in RECORD["kernels"] if not sanitizer.CORPUS[n].kind])
def test_a_right_kernel_is_right_to_compute_sanitizer_too(name):
    assert all(result == {"ended": "", "found": []} for result in RECORD["kernels"][name].values())


@pytest.mark.parametrize("name", [n for n in RECORD["kernels"] if sanitizer.CORPUS[n].kind])
def test_where_compute_sanitizer_finds_something_it_blames_a_line_that_the_engine_blames(name):
    kernel = sanitizer.CORPUS[name]
    lines = {line for result in RECORD["kernels"][name].values() for f in result["found"] for line in f["lines"]}
    after_a_trap = (
        {kernel.line - kernel.first + 1} if kernel.kind == "trap" else set()
    )  # it is seen at the next instruction
    assert not lines or lines & {kernel.line - kernel.first, *after_a_trap}


@pytest.mark.full
def test_the_page_is_what_the_records_say():
    assert page.PAGE.read_text() == page.page(), "run python tests/kernels/hardware/page.py"
