"""Draw docs/_static/annotation.svg: the annotation of a fault in fixtures/projects/broken, as in a pull request."""

from __future__ import annotations

import html
import re
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from refresh_outputs import PROJECTS, ROOT, Shell, broken, environment

PICTURE = ROOT / "docs" / "_static" / "annotation.svg"
MODEL = "models/frames.onnx"
ANNOTATION = re.compile(r"^::error file=(?P<file>[^,]+),line=(?P<line>\d+),title=(?P<title>[^:]+)::(?P<text>.+)$", re.M)
WIDTH, MARGIN, STEP = 880, 16, 20
CODE_COLUMNS = 104
AROUND = 3
SANS = "-apple-system, 'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"


def annotation() -> re.Match[str]:
    """Check the model, and return the first `::error` line that is printed on GitHub Actions."""
    with tempfile.TemporaryDirectory(prefix="onnxgate-docs-") as scratch:
        home = Path(scratch)
        folder = home / "broken"
        folder.mkdir()
        broken(folder)
        _, printed = Shell(folder, environment(home)).run(f"onnxgate check --static --output github {MODEL}")
    actual = ANNOTATION.search(printed)
    if actual is None:
        raise SystemExit(f"the output contains no annotation:\n{printed}")
    return actual


def draw(found: re.Match[str]) -> str:
    """Return an SVG of the changed file, with the annotation below the line that it refers to."""
    line = int(found["line"])
    source = (PROJECTS / "broken" / found["file"]).read_text(encoding="utf-8").splitlines()
    first = max(0, line - AROUND - 1)
    parts = list(_text(f"{found['file']}", MARGIN, 26, weight=600, size=13, mono=True))
    y = 40
    for number, text in enumerate(source[first : line + 1], first + 1):
        parts += _row(number, text, y)
        y += STEP
        if number == line:
            message = [part for each in unquote(found["text"]).splitlines() for part in _wrap(each)]
            height = 62 + 18 * len(message)
            parts += _box(found, message, y + 6, height)
            y += height + 12
    frame = f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{y + 7}" rx="6" fill="#fff" stroke="#d1d9e0"/>'
    head = f'<path d="M1 40V7a6 6 0 0 1 6-6h{WIDTH - 14}a6 6 0 0 1 6 6v33z" fill="#f6f8fa"/>'
    size = f'width="{WIDTH}" height="{y + 8}" viewBox="0 0 {WIDTH} {y + 8}"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">', frame, head, *parts, "</svg>", ""])


def _row(number: int, text: str, y: int) -> Iterator[str]:
    yield f'<rect x="1" y="{y}" width="{WIDTH - 2}" height="{STEP}" fill="#dafbe1"/>'
    yield f'<rect x="1" y="{y}" width="56" height="{STEP}" fill="#aceebb"/>'
    yield from _text(str(number), 48, y + 14, mono=True, anchor="end", color="#59636e")
    yield from _text(f"+ {text}", 66, y + 14, mono=True)


def _box(found: re.Match[str], message: list[str], y: int, height: int) -> Iterator[str]:
    left = 24
    yield f'<rect x="{left}" y="{y}" width="{WIDTH - 2 * left}" height="{height}" rx="6" fill="#fff" stroke="#d1d9e0"/>'
    yield f'<rect x="{left}" y="{y}" width="4" height="{height}" fill="#cf222e"/>'
    yield f'<circle cx="{left + 22}" cy="{y + 18}" r="7" fill="#cf222e"/>'
    cross = f"M{left + 19.5} {y + 15.5}l5 5m0-5l-5 5"
    yield f'<path d="{cross}" stroke="#fff" stroke-width="1.5" stroke-linecap="round"/>'
    yield from _text(
        f"Check failure on line {found['line']} in {found['file']}", left + 38, y + 23, weight=600, size=13
    )
    yield from _text("GitHub Actions / onnxgate", WIDTH - left - 14, y + 23, size=12, anchor="end", color="#59636e")
    yield from _text(found["title"], left + 16, y + 46, weight=600, size=13)
    for number, line in enumerate(message):
        yield from _text(line, left + 16, y + 66 + 18 * number, mono=True)


def _wrap(text: str) -> list[str]:
    return textwrap.wrap(text, CODE_COLUMNS, break_long_words=False, break_on_hyphens=False)


def _text(
    text: str,
    x: float,
    y: float,
    *,
    mono: bool = False,
    weight: int = 400,
    size: int = 12,
    anchor: str = "start",
    color: str = "#1f2328",
) -> Iterator[str]:
    style = f'font-family="{MONO if mono else SANS}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"'
    yield f'<text x="{x}" y="{y}" {style} fill="{color}" xml:space="preserve">{html.escape(text)}</text>'


def main(arguments: list[str]) -> int:
    """Write the picture, or compare it with the existing file; return the exit status."""
    picture = draw(annotation())
    if "--check" not in arguments:
        PICTURE.write_text(picture, encoding="utf-8")
        return 0
    if PICTURE.read_text(encoding="utf-8") == picture:
        return 0
    print(f"{PICTURE.relative_to(ROOT).as_posix()} is outdated: run `python tools/draw_annotation.py`")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
