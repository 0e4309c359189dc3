"""How the pages in this folder become a site, without a network: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

from convladder import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for the extension `from_code`

project = "convladder"
version = release = __version__
html_title = f"convladder {__version__}"
copyright = "the authors of convladder; MIT licence"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click", "from_code"]
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # code in answer keys is cut short with …, which is no C++

myst_heading_anchors = 3
autodoc_typehints = "none"  # the docstrings say what is taken

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
