"""The class page and a student's page in a browser: what `make demo` shows an instructor first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from convladder.autograde.faces.cli import main

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample class, graded."""
    out = tmp_path_factory.mktemp("demo")
    done = CliRunner().invoke(main, ["demo", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(params=["light", "dark"])
def page(browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=request.param)
    page = context.new_page()
    page.scheme = request.param
    yield page
    context.close()


def test_the_class_page_lists_everybody_and_is_legible_by_day_and_by_night(
    graded: Path, page: Any, keep: Any, lowest_contrast: Any
) -> None:
    page.goto((graded / "index.html").as_uri())
    keep(page, f"class_{page.scheme}")
    assert page.locator("table.grades tbody tr").count() == len(list((graded / "records").glob("*.json")))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert lowest_contrast(page.locator("body")) >= 4.5


def test_a_students_page_opens_what_failed_and_folds_away_what_passed(
    graded: Path, page: Any, keep: Any, lowest_contrast: Any
) -> None:
    """Of the students whose kernels fail, the one that needs most words."""
    failing = max((graded / "feedback").glob("*.html"), key=lambda file: file.read_text().count("cvl-wrong"))
    page.goto(failing.as_uri())
    assert page.locator("details[open]").count() == 0
    assert page.locator(".check .line .bad").count() >= 1
    assert lowest_contrast(page.locator("body")) >= 4.5
    keep(page, f"feedback_{page.scheme}")
