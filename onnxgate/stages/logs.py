"""What the log of a failed command says: the error in one line, and the project's own source line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

LONGEST = 600
_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')
_ERROR = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Z]\w*: \S.*")
_CLASS = re.compile(r"(?:^<class '(?:[\w.]+\.)?(\w+)'>|^(?:[a-z_]\w*\.)+([A-Z]\w*)): ")
_SUMMARY = "## Exception summary"
"""Source: torch.onnx of torch 2.13; the cause stands below it, and a page of advice above."""
_DURING = "During handling of the above exception, another exception occurred:"
_CAUSED = "The above exception was the direct cause of the following exception:"
_PYTHON = re.compile(r"(?<![\w./\\-])(?:[A-Za-z]:)?[/\\](?:[^\s'\":]*[/\\])?(python)[\d.]*(?:\.exe)?(?=[\s:'\"]|$)")


def last_words(log: str, folder: Path, names: Mapping[Path, str] | None = None) -> str:
    """The line that says why it failed, "" for an empty log.

    It is the same on each machine: paths are relative to `folder`, and `names` says what others are called.
    """
    lines = [line.strip() for line in log.partition(_SUMMARY)[2].splitlines() or log.splitlines() if line.strip()]
    if _SUMMARY in log:
        said = lines[0] if lines else ""
    else:
        errors = [line for line in lines if _ERROR.fullmatch(line)]
        said = errors[-1] if errors else (lines[-1] if lines else "")
    said = _CLASS.sub(lambda found: f"{found[1] or found[2]}: ", said)
    said = _without_paths(said, folder, names or {})
    return said if len(said) <= LONGEST else said[: LONGEST - 1] + "…"


def _without_paths(said: str, folder: Path, names: Mapping[Path, str]) -> str:
    for path, name in names.items():
        for spelling in _spellings(path):
            said = said.replace(spelling, name)
    for spelling in _spellings(folder):
        if spelling != Path(spelling).anchor:
            said = said.replace(spelling + os.sep, "")
    return _PYTHON.sub(r"\1", said)


def _spellings(path: Path) -> Iterator[str]:
    """As it was given and with its links followed, the longer first: one may be the other's tail."""
    yield from sorted({str(path), os.path.realpath(path)}, key=len, reverse=True)


def own_line(log: str, folder: Path) -> str:
    """`export.py:31` of the innermost line of the project's own code in the log's last traceback, relative to it."""
    for cause in log.rpartition(_DURING)[2].split(_CAUSED):
        for path, line in reversed(_FRAME.findall(cause)):
            if relative := _own(path, folder):
                return f"{relative}:{line}"
    return ""


def _own(path: str, folder: Path) -> str:
    """The path relative to the folder; "" where it is installed, or lies elsewhere."""
    real = Path(os.path.realpath(folder / path))
    base = Path(os.path.realpath(folder))
    if not real.is_relative_to(base) or not real.is_file():
        return ""
    relative = real.relative_to(base)
    return "" if {"site-packages", "dist-packages"} & set(relative.parts) else relative.as_posix()
