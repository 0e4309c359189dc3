"""Compiled code is kept between processes, and no state of the cache can harm a run."""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest

from convladder.kernels.sim import jit, objectcache

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 p) {
  .reg .b64 %rd<3>; .reg .b32 %r<3>;
  ld.param.u64 %rd1, [p]; mov.u32 %r1, %tid.x; mad.lo.s32 %r2, %r1, 3, 1;
  mad.wide.u32 %rd2, %r1, 4, %rd1; st.global.u32 [%rd2], %r2; ret;
}
"""

SCRIPT = f"""
import numpy as np
from convladder.kernels import sim
y = np.zeros(32, np.int32)
faults, _ = sim.run(sim.load('''{PTX}'''), "k", (1, 1, 1), (32, 1, 1), [sim.Buffer("y", y.view(np.uint8), True)])
assert not faults and y.tolist() == [3 * i + 1 for i in range(32)], y
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "convladder"


def run(**environment) -> None:
    """The kernel in a fresh process, which has compiled nothing yet."""
    subprocess.run([sys.executable, "-c", SCRIPT], check=True, env=os.environ | environment, timeout=120)


def test_an_object_comes_back_as_it_was(folder):
    objectcache.write("key", b"object code")
    assert objectcache.read("key") == b"object code"
    assert objectcache.read("other") is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:40], lambda b: b"", lambda b: b[:-1] + b"?"])
def test_a_damaged_object_is_ignored(folder, damage):
    objectcache.write("key", b"object code" * 10)
    file = folder / "key.o"
    file.write_bytes(damage(file.read_bytes()))
    assert objectcache.read("key") is None


def test_a_file_that_others_can_write_is_ignored(folder):
    objectcache.write("key", b"object code")
    (folder / "key.o").chmod(0o666)
    assert objectcache.read("key") is None


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs the user ids of POSIX")
def test_a_file_of_another_user_is_ignored(folder, monkeypatch):
    objectcache.write("key", b"object code")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert objectcache.read("key") is None


def test_a_folder_that_cannot_be_written_is_no_error(folder, monkeypatch):
    folder.parent.joinpath("convladder").write_text("a file where the folder should be")
    objectcache.write("key", b"object code")
    assert objectcache.read("key") is None
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    if sys.platform != "win32":
        assert objectcache.directory() is None
    objectcache.write("key", b"object code")


def test_processes_share_objects_and_rebuild_damaged_ones(folder):
    run(XDG_CACHE_HOME=str(folder.parent))
    files = sorted(folder.glob("*.o"))
    assert len(files) == 3  # the base library, the accesses of four bytes, the kernel
    contents = [f.read_bytes() for f in files]
    for file in files:
        file.write_bytes(b"rubbish")
    run(XDG_CACHE_HOME=str(folder.parent))
    assert sorted(folder.glob("*.o")) == files
    assert [f.read_bytes() for f in files] == contents
    run(XDG_CACHE_HOME="/proc/nowhere", HOME="/proc/nowhere")


def test_code_once_loaded_is_not_compiled_again(folder, monkeypatch):
    ir = "define i32 @answer() {\n  ret i32 42\n}\n"
    first = jit.address_of(ir, "answer")
    monkeypatch.setattr(jit, "compile_object", lambda *_: pytest.fail("compiled again"))
    assert jit.address_of(ir, "answer") == first
