"""Sphinx settings. `nox -s docs` builds the documentation; a warning or a broken link is an error."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent

project = "onnxgate"
author = "The onnxgate authors"
project_copyright = "The onnxgate authors, Apache-2.0"
release = re.findall(r'__version__ = "(.+)"', (ROOT / "onnxgate" / "__init__.py").read_text(encoding="utf-8"))[0]
version = release

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_figures", "_support"]  # _figures are included by pages
myst_enable_extensions = ["deflist", "colon_fence"]
myst_heading_anchors = 3
nitpicky = True
smartquotes = False  # examples are pasted into terminals
suppress_warnings = ["config.cache"]

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = "onnxgate"
html_baseurl = "https://onnxgate.github.io/onnxgate/"
html_copy_source = False
html_show_sphinx = False
html_theme_options = {
    "source_repository": "https://github.com/onnxgate/onnxgate/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_extra_path = [f"reference/{name}.schema.json" for name in ("config", "diff", "matrix", "report", "support")]


def write_support_page(app: Sphinx, error: Exception | None) -> None:
    """Write the compatibility page next to the built pages."""
    if error is None and app.builder.name == "html":
        sys.path.insert(0, str(ROOT / "tools"))
        from generate_support_page import write_page

        write_page(Path(app.outdir) / "support.html")


def setup(app: Sphinx) -> None:
    """Register the step that writes the compatibility page."""
    app.connect("build-finished", write_support_page)
