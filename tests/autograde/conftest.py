"""Labs of the tests' own, so that they depend on no lab's text: `tiny/` for the judge, `Toy` for classes."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from convladder.autograde.judge import sandbox, spec
from convladder.autograde.judge.sandbox import Worker

TINY = Path(__file__).parent / "tiny"


@pytest.fixture(scope="session")
def specs_dir() -> Path:
    return TINY


@pytest.fixture(scope="session")
def tiny(specs_dir: Path) -> spec.Spec:
    return spec.load("tiny", specs_dir)


@pytest.fixture(scope="session")
def conv() -> str:
    """A kernel that gets full marks: every image plane by one block of one warp, so with the fewest stores."""
    return (TINY / "conv.cu").read_text()


@pytest.fixture(scope="session")
def index() -> str:
    """A function that gets full marks."""
    return (TINY / "index.py").read_text()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A worker without isolation: what these tests ask is not whether the sandbox holds."""
    with sandbox.open_worker("none") as w:
        yield w


@pytest.fixture(params=["bwrap", "none"])
def policy(request: pytest.FixtureRequest) -> str:
    return require(request.param)


@pytest.fixture
def bwrap() -> str:
    return require("bwrap")


def require(kind: str) -> str:
    if kind == "bwrap":
        there, reason = sandbox.available()
        if not there:
            pytest.skip(reason)
    return kind


class Toy:
    """A lab without kernels: what its tests ask is about the class, not about the engine."""

    spec = """
lab = "toy"
title = "A toy lab"
minutes = 5
points = {prediction = 90, explanation = 10}
[[task]]
name = "double"
title = "Twice N"
kind = "number"
formula = "2*N"
symbols = {N = 21}
share = {prediction = 2}
[[task]]
name = "triple"
title = "Three times N"
kind = "number"
formula = "3*N"
symbols = {N = 21}
share = {prediction = 1}
[[task]]
name = "words"
title = "Why"
kind = "explain"
words = 10
rubric = ["0: nothing", "1: some", "2: all"]
share = {explanation = 1}
"""

    @staticmethod
    def notebook(double: str = "42", triple: str = "63") -> str:
        """A student's notebook; as it is, it gets the 90 points that the machine gives."""

        def cell(kind: str, source: str, name: str) -> dict[str, Any]:
            extra = {"outputs": [], "execution_count": None} if kind == "code" else {}
            return {"cell_type": kind, "id": name, "metadata": {}, "source": source, **extra}

        cells = [
            cell("code", f"%%answer double\ndouble = {double}", "double"),
            cell("code", f"%%answer triple\ntriple = {triple}", "triple"),
            cell("markdown", "Because.", "words"),
        ]
        return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": cells})

    @staticmethod
    def hand_in(folder: Path, student: str, text: str) -> Path:
        path = folder / student / "toy.ipynb"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    @staticmethod
    def rows(out: Path) -> dict[str, dict[str, str]]:
        """grades.csv, by student."""
        return {row["student"]: row for row in csv.DictReader(io.StringIO((out / "grades.csv").read_text()))}


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy()


# ---- pages in a real browser: Debian's Chromium, driven by Playwright

CHROMIUM = shutil.which("chromium")
#: No network of its own, no first-run pages, no GPU.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
TOKEN = "a-token-of-this-test"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("needs a browser: apt install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@dataclass(frozen=True)
class Jupyter:
    """Jupyter's own commands under `home`, with nothing of the configuration of whoever runs the tests."""

    home: Path

    def environment(self) -> dict[str, str]:
        away = {f"JUPYTER_{kind}_DIR": str(self.home / kind.lower()) for kind in ("CONFIG", "RUNTIME", "DATA")}
        return {**os.environ, **away, "HOME": str(self.home)}

    def run(self, folder: Path, *command: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=folder, env=self.environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    @contextmanager
    def serve(self, folder: Path, *app: str) -> Iterator[str]:
        """The address of a server on a folder, while it runs."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.home.mkdir(parents=True, exist_ok=True)
        command = [
            sys.executable, "-m", "jupyter", *app, "--no-browser", "--allow-root", f"--port={port}",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={folder}",
        ]  # fmt: skip
        log = self.home / "server.log"
        with log.open("w") as said:
            process = subprocess.Popen(command, cwd=folder, env=self.environment(), stdout=said, stderr=said)
        address = f"http://127.0.0.1:{port}"
        try:
            deadline = time.monotonic() + 120
            while not _answers(f"{address}/api?token={TOKEN}"):
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < deadline, log.read_text()
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait(30)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


@pytest.fixture(scope="session")
def jupyter() -> type[Jupyter]:
    return Jupyter


@pytest.fixture
def sign_in(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens pages of a context of their own, signed in on a server; a dialog fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    unexpected: list[str] = []

    def sign_in(address: str = "", timeout_s: float = 20) -> Any:
        page = context.new_page()
        page.set_default_timeout(1000 * timeout_s)
        page.on("dialog", lambda dialog: (unexpected.append(dialog.message), dialog.dismiss()))
        if address:
            page.goto(f"{address}/?token={TOKEN}")
        return page

    yield sign_in
    assert unexpected == []
    context.close()


@pytest.fixture(scope="session")
def keep() -> Callable[[Any, str], None]:
    """Keeps a picture of a page, or of a part of it, where CONVLADDER_SCREENSHOTS names a folder for them."""

    def keep(shown: Any, name: str, **options: Any) -> None:
        if folder := os.environ.get("CONVLADDER_SCREENSHOTS"):
            picture = Image.open(io.BytesIO(shown.screenshot(**options))).convert("RGB")
            Path(folder).mkdir(parents=True, exist_ok=True)
            picture.quantize(256).save(Path(folder, f"{name}.png"), optimize=True)

    return keep


@pytest.fixture(scope="session")
def lowest_contrast() -> Callable[[Any], float]:
    return _lowest_contrast


def _lowest_contrast(shown: Any) -> float:
    """The least contrast of a text with what it stands on, as WCAG defines it."""
    found = shown.evaluate(
        """area => {
            const channels = text => text.match(/[\\d.]+/g).map(Number);
            const linear = c => c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
            const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
            const ground = node => {
                for (; node; node = node.parentElement) {
                    const color = channels(getComputedStyle(node).backgroundColor);
                    if (color.length === 3 || color[3] === 1) return color;
                }
                return [255, 255, 255];
            };
            const least = [];
            for (const node of area.querySelectorAll('.cvl *:not(rect, path, circle, style)')) {
                if (![...node.childNodes].some(child => child.nodeType === 3 && child.data.trim())) continue;
                const isDrawn = node instanceof SVGElement;
                const own = light(channels(isDrawn ? getComputedStyle(node).fill : getComputedStyle(node).color));
                const other = light(ground(node));
                least.push((Math.max(own, other) + 0.05) / (Math.min(own, other) + 0.05));
            }
            return Math.min(...least);
        }"""
    )
    return float(found)
