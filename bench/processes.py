"""Measure elapsed time, CPU time and peak memory of a command and all processes that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

_REMOVED = ("CI", "NO_COLOR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV")
_REMOVED_PREFIXES = ("GITHUB_", "ONNXGATE_")
_SAMPLE_INTERVAL_S = 0.05
_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_MIB = 1024 * 1024
_OUTPUT_BYTES = 2000


@dataclass(frozen=True, slots=True)
class Measurement:
    """Time and memory of one run of a command and its child processes.

    `cpu_s` is the user and system time from `wait4`: of the process and of all child processes that it waited for.
    `peak_mib` is the larger of two values: the largest resident set of a single process (`wait4`), and the largest sum
    over all processes alive at one time, sampled 20 times per second (Linux). The sum counts shared pages repeatedly.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    exit: int | None  # None: stopped at the time limit
    lines: int = 0  # on standard output: loops over models print one line per model
    output: str = ""  # the end of its output, if it failed or the caller needs it
    accepted: tuple[int, ...] = (0,)  # exit statuses of a complete run

    @property
    def failed(self) -> bool:
        """Whether the command did not complete. Generated models are valid, so every tool must exit with 0."""
        return self.exit not in self.accepted


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    limit_s: float,
    *,
    accepted: tuple[int, ...] = (0,),
    keep_output: bool = False,
) -> Measurement:
    """Run a command in a folder; at the time limit, stop it and its child processes.

    The end of the output is stored if the command fails, or if `keep_output` is set.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begin = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**_own_environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
        ended = threading.Event()
        with _sampling(process.pid) as watch, _stopping_at(process.pid, limit_s, ended):
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        peak_mib = max(used.ru_maxrss * _UNIT_BYTES / _MIB, watch.peak_mib)
        return Measurement(
            wall_s=wall_s,
            cpu_s=used.ru_utime + used.ru_stime,
            peak_mib=peak_mib,
            exit=None if ended.is_set() else process.returncode,
            lines=_lines(out),
            output=_output(out, err, keep_output, failed=process.returncode not in accepted),
            accepted=accepted,
        )


def _own_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _REMOVED and not name.startswith(_REMOVED_PREFIXES)
    }


@contextlib.contextmanager
def _stopping_at(pid: int, limit_s: float, ended: threading.Event) -> Iterator[None]:
    """Kill all processes in a session at the time limit."""

    def stop() -> None:
        ended.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, stop)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@dataclass(slots=True)
class _Watch:
    peak_mib: float = 0.0


@contextlib.contextmanager
def _sampling(pid: int) -> Iterator[_Watch]:
    """Sample the total memory of a process and its descendants; yield the largest total."""
    watch, over = _Watch(), threading.Event()

    def sample() -> None:
        while not over.wait(_SAMPLE_INTERVAL_S):
            watch.peak_mib = max(watch.peak_mib, _tree_mib(pid))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()


def _tree_mib(pid: int) -> float:
    return sum(map(_resident_mib, _tree(pid)))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            for child in children.read_text().split():
                yield from _tree(int(child))


def _resident_mib(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / _MIB


def _lines(file: IO[bytes]) -> int:
    file.seek(0)
    return file.read().count(b"\n")


def _output(out: IO[bytes], err: IO[bytes], keep: bool, *, failed: bool) -> str:
    if failed:
        return _end(err) or _end(out)
    return _end(out) if keep else ""


def _end(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read()[-_OUTPUT_BYTES:].decode(errors="replace").strip()
