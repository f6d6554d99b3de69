"""Runner for programs that build environments: with a time limit, and ended together with this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Sequence
from typing import NamedTuple

from uv import find_uv_bin

from onnxgate.core import subprocesses
from onnxgate.core.files import create_process_folder

# Variables that select the user's Python or environment (ours are always named by path) or change the user's own
# installs. Variables that configure package indexes are passed on.
REMOVED_VARIABLES = (
    *("UV_CONSTRAINT", "UV_OVERRIDE", "UV_BUILD_CONSTRAINT", "UV_EXCLUDE", "UV_NO_BINARY", "UV_NO_BINARY_PACKAGE"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "UV_PYTHON", "UV_SYSTEM_PYTHON"),
)
UV_DEFAULTS = {"UV_HTTP_TIMEOUT": "30", "UV_NO_PROGRESS": "1", "NO_COLOR": "1"}
TIMED_OUT = -1000


class CompletedCommand(NamedTuple):
    """Status and output of a program; `TIMED_OUT` is never a real exit status."""

    status: int
    out: str
    err: str


def last_error_line(ended: CompletedCommand) -> str:
    """Return the last line of a program's errors; without one, its exit status."""
    lines = [line.strip() for line in ended.err.splitlines() if line.strip()]
    return lines[-1] if lines else subprocesses.describe_exit_status(ended.status)


class RunnerClosedError(Exception):
    """The gate is shutting down and starts no more programs."""


class CommandRunner:
    """Runs programs, and tracks those that are running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False
        # Programs run in an empty folder: `[tool.uv]` of the project applies to the project's own environment only.
        self._folder = create_process_folder()
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def uv(self, arguments: Sequence[str], *, timeout_s: float, stdin: str = "") -> CompletedCommand:
        """Run uv, with the user's settings."""
        return self.run([find_uv_bin(), *arguments], timeout_s=timeout_s, stdin=stdin)

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: str = "") -> CompletedCommand:
        """Run a program to its end; one that cannot be started has status 127.

        Raises:
            RunnerClosedError: the gate is shutting down.
        """
        try:
            running = self._start(argv)
        except OSError as error:
            return CompletedCommand(127, "", f"`{argv[0]}` cannot be started: {error.strerror}")
        try:
            out, err = running.communicate(stdin.encode(), timeout=timeout_s)
        except subprocess.TimeoutExpired:
            subprocesses.end_group(running)
            return CompletedCommand(TIMED_OUT, "", f"no end within {timeout_s:g} s")
        finally:
            self._forget(running)
        return CompletedCommand(running.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))

    def stay_open(self) -> None:
        """Check that the gate is not shutting down.

        Raises:
            RunnerClosedError: it is shutting down.
        """
        if self._closed:
            raise RunnerClosedError

    def close(self) -> None:
        """Kill running programs, and start none afterwards."""
        with self._lock:
            self._closed = True
            for running in self._running:
                subprocesses.end_group(running)

    def _start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        with self._lock:
            self.stay_open()
            running = subprocesses.start_supervised(argv, environment=_command_environment(), folder=self._folder)
            self._running.add(running)
            return running

    def _forget(self, running: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._running.discard(running)
        subprocesses.release_supervised(running)
        self.stay_open()


def _command_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in REMOVED_VARIABLES}
    return {**UV_DEFAULTS, **kept}
