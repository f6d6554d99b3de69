"""One process as a whole: its time, the processor time and the peak memory of it and of all that it starts."""

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

_FOREIGN = ("CI", "NO_COLOR", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED", "VIRTUAL_ENV")
_FOREIGN_PREFIXES = ("GITHUB_", "ONNXGATE_")
_EVERY_S = 0.05
_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
_MIB = 1024 * 1024
_SAID = 2000


@dataclass(frozen=True, slots=True)
class Taken:
    """What one process took, with its children.

    `cpu_s` is user and system time as `wait4` gives it: of the process and of all children that it waited for.
    `peak_mib` is the larger of two: the largest resident set that one of these ever had (`wait4`), and the largest sum
    over the living ones, looked at twenty times a second (Linux). Pages that two share count twice in the sum.
    """

    wall_s: float
    cpu_s: float
    peak_mib: float
    exit: int | None  # None: it was ended at the limit
    lines: int = 0  # on standard output: a loop prints one for each model that is done
    said: str = ""  # the end of what it wrote, where it failed or was to tell something

    @property
    def failed(self) -> bool:
        """Whether it did not do its work: no corpus holds anything that is wrong, so that every tool must exit 0."""
        return self.exit != 0


def run(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], limit_s: float, *, telling: bool = False
) -> Taken:
    """Run a command in a folder until it ends, or until the limit ends it and its children.

    What it writes is kept where it fails, or where it is `telling`.
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
        with _watching(process.pid) as watch, _ending(process.pid, limit_s, ended):
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        peak_mib = max(used.ru_maxrss * _UNIT_BYTES / _MIB, watch.peak_mib)
        return Taken(
            wall_s=wall_s,
            cpu_s=used.ru_utime + used.ru_stime,
            peak_mib=peak_mib,
            exit=None if ended.is_set() else process.returncode,
            lines=_lines(out),
            said=_said(out, err, telling, failed=process.returncode != 0),
        )


def _own_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if name not in _FOREIGN and not name.startswith(_FOREIGN_PREFIXES)
    }


@contextlib.contextmanager
def _ending(pid: int, limit_s: float, ended: threading.Event) -> Iterator[None]:
    """End the whole session of a process when its time is over."""

    def end() -> None:
        ended.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    timer = threading.Timer(limit_s, end)
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
def _watching(pid: int) -> Iterator[_Watch]:
    """What a process and its descendants hold in memory together, at most."""
    watch, over = _Watch(), threading.Event()

    def look() -> None:
        while not over.wait(_EVERY_S):
            watch.peak_mib = max(watch.peak_mib, _tree_mib(pid))

    thread = threading.Thread(target=look, daemon=True)
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


def _said(out: IO[bytes], err: IO[bytes], telling: bool, *, failed: bool) -> str:
    if failed:
        return _end(err) or _end(out)
    return _end(out) if telling else ""


def _end(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read()[-_SAID:].decode(errors="replace").strip()
