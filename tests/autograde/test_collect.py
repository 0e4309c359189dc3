"""What was handed in: names of learning platforms, several attempts, people of one name, and archives."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from types import SimpleNamespace

import pytest
from traitlets.config import Configurable

from convladder.autograde.course import collect
from convladder.autograde.course.grades import GradingError
from convladder.autograde.faces.nbgrader_collect import Collect, Unpack

LAB = "01_direct"


# ---- names


@pytest.mark.parametrize(
    ("path", "student", "person", "number"),
    [
        ("ada/01_direct.ipynb", "ada", "", 0),
        ("class/ada.l@example.org/01_direct.ipynb", "ada.l@example.org", "", 0),
        ("ada/01_direct/01_direct.ipynb", "ada", "", 0),
        ("ada_01_direct.ipynb", "ada", "", 0),
        ("ada_lovelace_01_direct.ipynb", "ada_lovelace", "", 0),
        ("lovelaceada_12345_67890_01_direct.ipynb", "lovelaceada", "12345", 0),
        ("lovelaceada_LATE_12345_67890_01_direct.ipynb", "lovelaceada", "12345", 0),
        ("lovelaceada_12345_67891_01_direct-1.ipynb", "lovelaceada", "12345", 1),
        ("all/lovelaceada_LATE_12345_67891_01_direct-12.ipynb", "lovelaceada", "12345", 12),
        ("Ada Lovelace_123456_assignsubmission_file_/01_direct.ipynb", "Ada Lovelace", "123456", 0),
        ("Ada Lovelace_123456_assignsubmission_file/01_direct/01_direct.ipynb", "Ada Lovelace", "123456", 0),
        ("Ada Lovelace_123456_assignsubmission_file_01_direct.ipynb", "Ada Lovelace", "123456", 0),
        ("Lab 1_ada_attempt_2026-01-30-15-00-00_01_direct.ipynb", "ada", "", 1769785200),
        ("ada_attempt_2026-01-30-15-00-00_01_direct.ipynb", "ada", "", 1769785200),
    ],
)
def test_a_path_says_whose_notebook_it_is(path: str, student: str, person: str, number: int) -> None:
    found = collect.attempt(PurePosixPath(path), LAB)
    assert found is not None
    assert (found.student, found.person, found.number) == (student, person, number)
    assert found.late is ("_LATE_" in path)


@pytest.mark.parametrize(
    "path",
    [
        "ada_5_90_bob_attempt_2026-01-30-15-00-00_01_direct.ipynb",
        "ada_5_90_Bob_7_assignsubmission_file_01_direct.ipynb",
        "ada_5_90_bob_01_direct.ipynb",
        "Ada_5_assignsubmission_file_/bob_7_91_01_direct.ipynb",
        "Ada_5_assignsubmission_file_/bob_attempt_2026-01-30-15-00-00_01_direct.ipynb",
        "Ada_5_assignsubmission_file_bob_attempt_2026-01-30-15-00-00_01_direct.ipynb",
        "Lab 1_ada_attempt_2026-01-30-15-00-00_bob_attempt_2027-01-30-15-00-00_01_direct.ipynb",
        ".._attempt_2026-01-30-15-00-00_01_direct.ipynb",
        ".._5_90_01_direct.ipynb",
    ],
)
def test_a_file_that_is_called_like_another_students_is_nobodys(path: str) -> None:
    assert collect.attempt(PurePosixPath(path), LAB) is None


def test_a_folder_within_a_students_own_is_the_students() -> None:
    found = collect.attempt(PurePosixPath("Ada_5_assignsubmission_file_/bob/01_direct.ipynb"), LAB)
    assert found is not None
    assert (found.student, found.person) == ("Ada", "5")


@pytest.mark.parametrize("path", ["01_direct.ipynb", "ada/notes.ipynb", "ada/01_direct.txt", "ada_02_im2col.ipynb"])
def test_a_path_that_names_no_student_or_another_lab_is_nobodys(path: str) -> None:
    assert collect.attempt(PurePosixPath(path), LAB) is None


# ---- a folder


def put(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def found(folder: Path) -> dict[str, collect.Entry]:
    return {entry.student: entry for entry in collect.find_submissions(folder, LAB)[0]}


def test_what_canvas_exports_is_found_and_the_last_attempt_counts(tmp_path: Path) -> None:
    put(
        tmp_path, "beebela_LATE_7_91_01_direct.ipynb", "lovelaceada_5_90_01_direct.ipynb",
        "lovelaceada_5_92_01_direct-2.ipynb", "lovelaceada_5_93_01_direct-10.ipynb",
        "lovelaceada_5_91_01_direct-1.ipynb",
    )  # fmt: skip
    entries = found(tmp_path)
    assert list(entries) == ["beebela", "lovelaceada"]
    assert entries["lovelaceada"].notebook == tmp_path / "lovelaceada_5_93_01_direct-10.ipynb"
    assert (entries["beebela"].late, entries["lovelaceada"].late) == (True, False)
    assert entries["beebela"].submitted is None  # the archive tells only when it was made


def test_what_moodle_exports_is_found_with_folders_and_without(tmp_path: Path) -> None:
    put(
        tmp_path, "Ada Lovelace_5_assignsubmission_file_/01_direct.ipynb",
        "Bela Bee_7_assignsubmission_file_01_direct.ipynb", "Cy Cee_9_assignsubmission_file_/other.ipynb",
    )  # fmt: skip
    entries = found(tmp_path)
    assert list(entries) == ["Ada Lovelace", "Bela Bee", "Cy Cee"]
    assert "Found instead: other.ipynb" in entries["Cy Cee"].problem


def test_blackboards_names_say_when_and_the_last_attempt_counts(tmp_path: Path) -> None:
    times = ("2026-01-31-15-00-00", "2026-01-30-15-00-00")
    put(tmp_path, *(f"Lab 1_ada_attempt_{t}_01_direct.ipynb" for t in times))
    assert found(tmp_path)["ada"].submitted == datetime(2026, 1, 31, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    "names",
    [
        ("leekim_5_90_01_direct.ipynb", "leekim_7_91_01_direct.ipynb"),
        ("Kim Lee_5_assignsubmission_file_/01_direct.ipynb", "Kim Lee_7_assignsubmission_file_/01_direct.ipynb"),
        ("leekim_5_90_01_direct.ipynb", "leekim/01_direct.ipynb"),
    ],
    ids=["canvas", "moodle", "mixed"],
)
def test_of_two_people_of_one_name_neither_is_graded_and_both_are_named(tmp_path: Path, names: tuple[str, str]) -> None:
    put(tmp_path, *names, "ada/01_direct.ipynb")
    entries = found(tmp_path)
    said = entries.pop(next(s for s in entries if s != "ada"))
    assert said.notebook is None
    assert "Two people would both be called" in said.problem
    assert all(name in said.problem for name in names)
    assert entries["ada"].notebook == tmp_path / "ada" / "01_direct.ipynb"


# ---- an archive


Entries = list[tuple[str | zipfile.ZipInfo, str]]


def zipped(path: Path, entries: Entries) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in entries:
            packed.writestr(name, text)
    return path


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


GOOD: tuple[str | zipfile.ZipInfo, str] = ("ada/01_direct.ipynb", "{}")


def test_an_archives_notebooks_are_unpacked_and_nothing_else(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", [GOOD, ("ada/run.sh", "x"), ("ada/timestamp.txt", "2026-01-01 10:00:00 UTC")])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.ipynb").write_text("of the run before")
    dest = collect.unpack(archive, tmp_path / "out")
    assert sorted(p.relative_to(dest).as_posix() for p in dest.rglob("*") if p.is_file()) == [
        "ada/01_direct.ipynb", "ada/timestamp.txt",
    ]  # fmt: skip


BAD_ARCHIVES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "traversal": (lambda p: zipped(p, [GOOD, ("../../evil.ipynb", "x")]), "outside of the folder"),
    "hidden traversal": (lambda p: zipped(p, [GOOD, ("ada/../../evil.ipynb", "x")]), "outside of the folder"),
    "windows": (lambda p: zipped(p, [GOOD, ("..\\evil.ipynb", "x")]), "outside of the folder"),
    "drive": (lambda p: zipped(p, [GOOD, ("C:/evil.ipynb", "x")]), "outside of the folder"),
    "absolute": (lambda p: zipped(p, [GOOD, ("/tmp/evil.ipynb", "x")]), "outside of the folder"),
    "link": (lambda p: zipped(p, [GOOD, (link("eve/01_direct.ipynb"), "/etc/passwd")]), "is a link"),
    "twice": (lambda p: zipped(p, [GOOD, ("ada//01_direct.ipynb", "x")]), "twice"),
    "no zip": (lambda p: (p.write_bytes(b"nothing of the kind"), p)[1], "no zip archive"),
    "damaged within": (
        lambda p: (
            p.write_bytes(
                zipped(p, [("a/01_direct.ipynb", "text " * 99)])
                .read_bytes()
                .replace(zlib.compress(b"text " * 99, wbits=-15)[:4], b"\xff" * 4)
            ),
            p,
        )[1],
        "no zip archive",
    ),
    "cut": (lambda p: (p.write_bytes(zipped(p, [GOOD]).read_bytes()[:-30]), p)[1], "no zip archive"),
}


@pytest.mark.parametrize("kind", BAD_ARCHIVES)
def test_an_archive_that_is_broken_or_reaches_out_of_its_folder_is_refused(tmp_path: Path, kind: str) -> None:
    make, says = BAD_ARCHIVES[kind]
    archive = make(tmp_path / "a.zip")
    with pytest.raises(GradingError, match=says):
        collect.unpack(archive, tmp_path / "in" / "out")
    assert not list(tmp_path.rglob("evil*"))
    assert not any(p.is_symlink() for p in tmp_path.rglob("*"))


def test_a_huge_archive_is_refused_before_a_byte_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = zipped(tmp_path / "a.zip", [(f"s{i}/01_direct.ipynb", " " * 40_000) for i in range(3)])
    monkeypatch.setattr(collect, "MAX_TOTAL", 100_000)
    with pytest.raises(GradingError, match="GiB is the most"):
        collect.unpack(archive, tmp_path / "out")
    monkeypatch.setattr(collect, "MAX_FILES", 2)
    with pytest.raises(GradingError, match="holds 3 files, and 2 is the most"):
        collect.unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_of_a_notebook_that_swells_no_more_is_unpacked_than_tells_that_it_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = zipped(tmp_path / "a.zip", [("eve/01_direct.ipynb", " " * 1_000_000)])
    monkeypatch.setattr(collect, "MAX_BYTES", 1000)
    dest = collect.unpack(archive, tmp_path / "out")
    assert (dest / "eve" / "01_direct.ipynb").stat().st_size == 1001


# ---- the same through nbgrader's plugins


class App(Configurable):
    """As much of nbgrader's zip_collect as its plugins use."""

    extracted_directory = "extracted"
    coursedir = SimpleNamespace(assignment_id=LAB)

    def __init__(self, root: Path):
        super().__init__()
        self.root = root

    def _format_collect_path(self, step: str) -> str:
        return str(self.root / step)

    def fail(self, message: str) -> None:
        raise SystemExit(message)

    def _transfer_files(self, collected: object) -> None:
        self.transferred = collected


def through_nbgrader(root: Path) -> dict[str, dict[str, str]]:
    """What zip_collect would copy: the information on each file that counts, by its path."""
    app = App(root)
    unpack, collector = Unpack(parent=app), Collect(parent=app)
    (root / "extracted").mkdir()
    unpack.extract(str(root / "archive"), str(root / "extracted"))
    files = sorted(str(p) for p in (root / "extracted").rglob("*") if p.is_file())
    told = {os.path.relpath(f, root / "extracted"): collector.collect(f) for f in files}
    return {name: said for name, said in told.items() if said}


def test_nbgrader_collects_what_platforms_export_and_the_last_attempt_counts(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    zipped(tmp_path / "archive" / "all.zip", [
        ("Bela Bee_4711_assignsubmission_file_/01_direct.ipynb", ""), ("lovelaceada_5_90_01_direct.ipynb", ""),
        ("lovelaceada_LATE_5_91_01_direct-1.ipynb", ""), ("cy_attempt_2026-01-30-15-00-00_01_direct.ipynb", ""),
    ])  # fmt: skip
    put(tmp_path / "archive", "dora_01_direct.ipynb", "notes.txt")
    collected = through_nbgrader(tmp_path)
    assert {name: said["student_id"] for name, said in collected.items()} == {
        "all/Bela Bee_4711_assignsubmission_file_/01_direct.ipynb": "Bela Bee",
        "all/lovelaceada_LATE_5_91_01_direct-1.ipynb": "lovelaceada",
        "all/cy_attempt_2026-01-30-15-00-00_01_direct.ipynb": "cy",
        "dora_01_direct.ipynb": "dora",
    }
    timed = {said["student_id"]: said["timestamp"] for said in collected.values() if "timestamp" in said}
    assert timed == {"cy": "2026-01-30 15:00:00 UTC"}


@pytest.mark.parametrize("kind", BAD_ARCHIVES)
def test_nbgrader_refuses_the_same_archives(tmp_path: Path, kind: str) -> None:
    (tmp_path / "archive").mkdir()
    make, says = BAD_ARCHIVES[kind]
    make(tmp_path / "archive" / "a.zip")
    with pytest.raises(SystemExit, match=says):
        through_nbgrader(tmp_path)
    assert not list(tmp_path.rglob("evil*"))


def test_nbgrader_stops_with_a_reason_at_another_kind_of_archive(tmp_path: Path) -> None:
    put(tmp_path / "archive", "all.tar.gz")
    with pytest.raises(SystemExit, match="is no zip archive"):
        through_nbgrader(tmp_path)


@pytest.mark.parametrize(
    ("names", "student", "says"),
    [
        (("leekim_5_90_01_direct.ipynb", "leekim_7_91_01_direct.ipynb"), "leekim", "Two people would both be called"),
        (("a/lee/01_direct.ipynb", "b/lee/01_direct.ipynb"), "lee", "Two notebooks were handed in"),
    ],
)
def test_nbgrader_collects_the_others_where_of_one_student_it_cannot_tell_and_then_fails(
    tmp_path: Path, names: tuple[str, ...], student: str, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path / "archive", *names, "ada/01_direct.ipynb")
    (tmp_path / "extracted").mkdir()
    app = App(tmp_path)
    Unpack(parent=app).extract(str(tmp_path / "archive"), str(tmp_path / "extracted"))
    collector = Collect(parent=app)
    files = sorted(p for p in (tmp_path / "extracted").rglob("*.ipynb"))
    assert [said["student_id"] for f in files if (said := collector.collect(str(f)))] == ["ada"]
    assert f"Not collected: {student}. {says}" in caplog.text
    with pytest.raises(SystemExit, match=f"Not collected, see above: {student}"):
        app._transfer_files({"ada": {}})
    assert app.transferred == {"ada": {}}


def test_nbgrader_takes_a_name_in_either_form_of_its_letters_for_one_person(tmp_path: Path) -> None:
    put(tmp_path / "archive", "zoe\u0308_LATE_5_90_01_direct.ipynb", "zo\u00eb_5_91_01_direct-1.ipynb")
    (said,) = through_nbgrader(tmp_path).values()
    assert said["student_id"] == "zo\u00eb"


def test_nbgrader_copies_no_links(tmp_path: Path) -> None:
    put(tmp_path / "archive", "ada/01_direct.ipynb")
    (tmp_path / "archive" / "eve").mkdir()
    (tmp_path / "archive" / "eve" / "01_direct.ipynb").symlink_to(tmp_path / "archive" / "ada" / "01_direct.ipynb")
    assert list(through_nbgrader(tmp_path)) == ["ada/01_direct.ipynb"]
