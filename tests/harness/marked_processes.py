"""Processes started by a command, identified by an environment variable in any session."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

MARK = "LC_ONNXGATE_TEST_MARK"
"""A locale variable, because a locked runtime inherits almost no other environment variables."""


def marked(mark: str) -> list[int]:
    """Return all running processes that inherited the mark; a zombie has no environment."""
    wanted = f"{MARK}={mark}".encode()
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if wanted in _words(path)]


def _words(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().split(b"\0")
    except OSError:
        return []


def busiest_s(mark: str) -> float:
    """Return the processor time of the busiest worker."""
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
    """Wait until a condition is true; fail after the timeout or if the process ends first."""
    end = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < end, f"not within {patience_s:g} s"
        assert running is None or running.poll() is None, running.communicate()
        time.sleep(0.01)
