"""Processes that a command started: known by a mark in their environment, whatever session they are in."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

MARK = "ONNXGATE_TEST_MARK"


def marked(mark: str) -> list[int]:
    """All living processes that inherited the mark; a zombie has no environment."""
    wanted = f"{MARK}={mark}".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if wanted in _words(path)]


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def words_of(pid: int) -> str:
    """The command line of a process, "" where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def until(true: Callable[[], bool], patience_s: float = 60, every_s: float = 0.01) -> None:
    """Wait until something is the case, which must happen."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"not within {patience_s:g} s"
        time.sleep(every_s)
