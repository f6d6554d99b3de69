"""Processes that a command started: known by a mark in their environment, whatever session they are in."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

MARK = "LC_ONNXGATE_TEST_MARK"
"""Of a locale, so that a locked runtime is given it: nearly nothing else of the environment reaches one."""


def marked(mark: str) -> list[int]:
    """All living processes that inherited the mark; a zombie has no environment."""
    wanted = f"{MARK}={mark}".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if wanted in _words(path)]


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def busiest_s(mark: str) -> float:
    """The processor time that the busiest of the workers among them has had."""
    return max((_processor_s(pid) for pid in marked(mark) if "worker" in _command_line(pid)), default=0.0)


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _processor_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def until(true: Callable[[], bool], patience_s: float = 300, *, running: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is the case, which must happen: soon enough, and before the process ends."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"not within {patience_s:g} s"
        assert running is None or running.poll() is None, running.communicate()
        time.sleep(0.01)
