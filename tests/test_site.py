"""The site that `make docs` builds: without warnings, without dead links, without a network; nothing left out."""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import click
import pytest

from convladder import autograde, kernels
from convladder.autograde.faces.cli import main
from convladder.autograde.judge.problems import PROBLEMS
from convladder.kernels import errors

ROOT = Path(__file__).resolve().parents[1]

#: What a browser loads by itself: the element, and the attribute that names it.
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src"), ("object", "data")}


class Page(HTMLParser):
    """The links, anchors and loaded files of a page."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name == "id":
                self.anchors.add(value)
            if (tag, name) == ("a", "href"):
                self.links.append(value)
            if (tag, name) in LOADED:
                self.loaded.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The site, built as `make docs` does, where a warning is an error; once for all workers of a test run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base if worker_id == "master" else base.parent) / "site"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "built").exists():
            (recipe,) = re.findall(
                r"\$\(BIN\)/python (-m sphinx .*) docs build/docs\n", (ROOT / "Makefile").read_text()
            )
            command = [sys.executable, *recipe.split(), "-d", str(folder / "doctrees"), "docs", str(folder / "html")]
            built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
            assert built.returncode == 0, built.stderr
            (folder / "built").touch()
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_every_page_of_the_folder_is_on_the_site(site: Path) -> None:
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    assert sources <= {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}


def test_every_link_leads_to_a_file_and_to_an_anchor_in_it(pages: dict[Path, Page]) -> None:
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = target in pages and (not parts.fragment or unquote(parts.fragment) in pages[target].anchors)
            if not found and not (target.is_file() and not parts.fragment):
                dead.append(f"{path.name}: {link}")
    assert not dead


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    loaded = [url for page in pages.values() for url in page.loaded]
    assert len(loaded) > 50
    assert not [url for url in loaded if urlsplit(url).scheme not in ("", "data") or url.startswith("//")]
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*[\"']?(?:https?:)?//", text), sheet


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        for child, inner in command.commands.items():
            yield from commands(inner, f"{name} {child}")


COMMANDS = dict(commands(main, "convladder"))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options(site: Path, name: str) -> None:
    text = (site / "commands.html").read_text(encoding="utf-8")
    anchor = name.replace(" ", "-")
    assert f'id="{anchor}"' in text
    for parameter in COMMANDS[name].params:
        for option in parameter.opts if isinstance(parameter, click.Option) else ():
            assert f'id="cmdoption-{anchor}-{option.lstrip("-")}"' in text, option


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_says_what_it_is(name: str) -> None:
    assert COMMANDS[name].get_short_help_str()
    assert not [p.opts[0] for p in COMMANDS[name].params if isinstance(p, click.Option) and not p.help]


def documented(site: Path) -> str:
    """The names that the site describes, from its inventory."""
    head, _, body = (site / "objects.inv").read_bytes().partition(b"zlib.\n")
    assert head
    return zlib.decompress(body).decode()


@pytest.mark.parametrize(
    "name",
    [
        *(f"convladder.kernels.{name}" for name in kernels.__all__ if name != "oracle"),
        "convladder.kernels.oracle.conv2d",
        *(f"convladder.autograde.{name}" for name in autograde.__all__),
        *(
            f"{e.__module__}.{name}"
            for name, e in vars(errors).items()
            if getattr(e, "__module__", "") == errors.__name__
        ),
    ],
)
def test_every_contract_is_documented(site: Path, name: str) -> None:
    assert re.search(rf"^{re.escape(name)} py:", documented(site), re.MULTILINE)


def test_every_problem_is_documented(site: Path) -> None:
    text = (site / "contracts.html").read_text(encoding="utf-8")
    assert not [name for name in PROBLEMS if f">{name}<" not in text]
