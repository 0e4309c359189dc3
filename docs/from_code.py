"""What the site takes from the code: docstrings as they stand, and the problems that kernel tasks may name.

Pages link to the repository's files, which the site offers to download. To a folder, or to a page that is not in docs/,
it cannot lead: such a link is left as its text.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

from convladder.autograde.judge.problems import PROBLEMS


class ModuleText(Directive):
    """The docstring of a module, as it stands: for those that describe a file's keys or a grammar."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        text = inspect.getdoc(importlib.import_module(self.arguments[0]))
        assert text
        return [nodes.container("", nodes.literal_block(text, text, language="text"), classes=["module-text"])]


class Problems(Directive):
    """Every problem by its name, with what it computes and the parameters that a kernel may take."""

    def run(self) -> list[nodes.Node]:
        items = nodes.definition_list()
        for name, problem in PROBLEMS.items():
            says = (inspect.getdoc(type(problem)) or "").partition("\n\n")[0]
            taken = ", ".join(problem.declarations.values())
            told = [nodes.paragraph("", says), nodes.paragraph("", "", nodes.literal("", taken))]
            term = nodes.term("", "", nodes.literal("", name))
            items += nodes.definition_list_item("", term, nodes.definition("", *told))
        return [items]


def as_it_stands(app: Sphinx, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
    """After its first sentence, a docstring of this package is laid out for reading as it is."""
    text = "\n".join(lines).rstrip()
    first, blank, rest = text.partition("\n\n")
    if blank:
        lines[:] = [
            *first.splitlines(),
            "",
            ".. code-block:: text",
            "",
            *(f"    {line}" for line in rest.splitlines()),
            "",
        ]


def without_ways_out(app: Sphinx, page: str, source: list[str]) -> None:
    """Leave of a link to a folder, or to a page outside of docs/, its text. One to nothing stays, and is reported."""
    here = Path(app.env.doc2path(page)).parent

    def shown(link: re.Match[str]) -> str:
        target = (here / link["path"]).resolve()
        outside = not target.is_relative_to(app.srcdir)
        return link["text"] if outside and (target.is_dir() or target.suffix == ".md") else link[0]

    source[0] = re.sub(r"\[(?P<text>[^\]]*)\]\((?P<path>\.\./[^)#:]+)(?:#[^)]*)?\)", shown, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("module-text", ModuleText)
    app.add_directive("problems", Problems)
    app.connect("source-read", without_ways_out)
    app.connect("autodoc-process-docstring", as_it_stands)
    return {"parallel_read_safe": True}
