"""Command outputs and pictures in pages are current."""

from __future__ import annotations

import difflib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import refresh_outputs  # noqa: E402

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the commands run in bash and a pseudo-terminal")


def _parameters() -> list[object]:
    marks = {", needs an index -->": pytest.mark.index, ", needs torch -->": pytest.mark.torch}
    return [
        pytest.param(
            page,
            id=page.relative_to(ROOT).as_posix(),
            marks=[mark for need, mark in marks.items() if need in page.read_text(encoding="utf-8")],
        )
        for page in refresh_outputs.pages()
    ]


@pytest.mark.parametrize("page", _parameters())
def test_outputs_are_current(page: Path) -> None:
    """The outputs in a page match those of the commands; `python tools/refresh_outputs.py` updates them."""
    shown, printed = page.read_text(encoding="utf-8"), refresh_outputs.refresh(page)
    difference = difflib.unified_diff(shown.splitlines(), printed.splitlines(), "page", "printed now", lineterm="")

    assert [] == list(difference)


def test_readme_shows_a_check() -> None:
    """The README is among the tested pages."""
    assert ROOT / "README.md" in refresh_outputs.pages()


def test_picture_is_current() -> None:
    """The annotation in the picture matches the program's output; `python tools/draw_annotation.py` updates it."""
    command = [sys.executable, ROOT / "tools" / "draw_annotation.py", "--check"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr


def test_lines_of_output_fit() -> None:
    """No code block of a page needs to scroll sideways at 1280 px."""
    pages = [page for page in refresh_outputs.pages() if page.name != "README.md"]
    blocks = [block["body"] for page in pages for block in refresh_outputs.BLOCK.finditer(page.read_text("utf-8"))]

    assert [] == [line for block in blocks for line in block.splitlines() if len(line) > 95]
