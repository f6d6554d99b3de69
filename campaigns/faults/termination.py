"""Termination at different moments of a run: by SIGKILL, SIGTERM or SIGHUP, and by pressing Ctrl-C once or twice."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from campaigns.faults.full_disk import changed, with_command
from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import During, Ground
from campaigns.faults.registry import fault

SIGTERM_IS_CAUGHT = 1 << (signal.SIGTERM - 1)
WRITABILITY_PROBE = re.compile(r"[a-z0-9_]{8}")  # Source: `tempfile._get_default_tempdir` of CPython 3.11


def moments(ground: Ground, took_s: float, many: int, few: int) -> list[float]:
    """Return the times at which to terminate, in seconds after the start."""
    count = many if ground.thorough else few
    return [took_s * 1.05 * index / max(1, count - 1) for index in range(count)]


def after(wait_s: float, *numbers: signal.Signals, group: bool = False) -> During:
    """Return a function that sends signals to the command, or to its process group as a terminal does."""

    def send(process: subprocess.Popen[bytes]) -> None:
        if signal.SIGKILL not in numbers:
            _has_begun(process)
        time.sleep(wait_s)
        for number in numbers:
            with contextlib.suppress(ProcessLookupError):
                (os.killpg if group else os.kill)(process.pid, number)
            time.sleep(0.03)

    return send


def _has_begun(process: subprocess.Popen[bytes]) -> None:
    """Wait until the command has installed its signal handlers."""
    caught = 0
    while not caught & SIGTERM_IS_CAUGHT and process.poll() is None:
        time.sleep(0.005)
        with contextlib.suppress(OSError, StopIteration):
            lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            caught = int(next(line.split()[1] for line in lines if line.startswith("SigCgt:")), 16)


def duration_s(ground: Ground, arguments: Sequence[str]) -> float:
    """Return the duration of the command when it is not terminated."""
    began = time.monotonic()
    ground.run(*arguments, expected=(0,))
    took_s = time.monotonic() - began
    shutil.rmtree(ground.cache / "results", ignore_errors=True)
    return took_s


def bounded(ground: Ground, seen: FaultOutcome) -> FaultOutcome:
    """Add the temporary files that killed runs left to an outcome."""
    return replace(seen, scratch=tuple(find_leftovers(ground.temporary)))


def find_leftovers(folder: Path) -> Iterator[str]:
    """Yield the names in a folder, except of files that `tempfile` writes and removes to find a writable folder."""
    for path in folder.iterdir():
        is_python_probe = WRITABILITY_PROBE.fullmatch(path.name) and path.is_file() and path.stat().st_size <= 4
        if not is_python_probe:
            yield path.name


@fault("killed", "`check` is killed at any moment", quick=True)
def killed_check(ground: Ground) -> Iterator[FaultOutcome]:
    """The next run has the usual result and removes files that the killed run left."""
    ground.truth()
    for wait_s in moments(ground, duration_s(ground, ["check"]), 30, 3):
        seen = ground.check(
            expected=(-9, 0), during=after(wait_s, signal.SIGKILL), killed=True, about=f"after {wait_s:.2f} s"
        )
        yield seen
        if ground.thorough:
            yield ground.check(expected=(0,), about=f"the next run, after {wait_s:.2f} s")
    yield bounded(ground, ground.check(expected=(0,), about="the last run"))


@fault("killed", "`lock` is killed at any moment", quick=True, runs=False)
def killed_lock(ground: Ground) -> Iterator[FaultOutcome]:
    """The lock is either the old or the new one, and no temporary file is left."""
    old, new = ground.lock.read_text(), changed(ground)
    for wait_s in moments(ground, duration_s(ground, ["lock", "--offline"]), 30, 4):
        ground.lock.write_text(old)
        killed = after(wait_s, signal.SIGKILL)
        arguments = ("lock", "--offline")
        yield ground.run(
            *arguments, expected=(-9, 0), during=killed, killed=True, locks=(new,), about=f"after {wait_s:.2f} s"
        )
    ground.lock.write_text(old)
    files = {path.name for path in ground.project.iterdir()}
    seen = bounded(ground, ground.run("lock", "--offline", expected=(0,), locks=(new,), about="the last run"))
    stray = {path.name for path in ground.project.iterdir()} - {"models", "onnxgate.toml", "onnxgate.lock", ".git"}
    assert files
    yield replace(seen, strays=tuple(sorted(stray)))


@fault("killed", "`export` is killed at any moment")
def killed_export(ground: Ground) -> Iterator[FaultOutcome]:
    """The committed model is either the old or the new one."""
    with_command(ground)
    model = ground.project / "models" / "small.onnx"
    old, new = model.read_bytes(), (ground.project / "fresh.onnx").read_bytes()
    took_s = duration_s(ground, ["export"])
    new = model.read_bytes()
    for wait_s in moments(ground, took_s, 30, 3):
        model.write_bytes(old)
        seen = ground.run(
            "export", expected=(-9, 0), during=after(wait_s, signal.SIGKILL), killed=True, about=f"after {wait_s:.2f} s"
        )
        yield seen if model.read_bytes() in (old, new) else replace(seen, unread=("models/small.onnx",))
    model.write_bytes(old)
    seen = bounded(ground, ground.run("export", expected=(0,), about="the last run"))
    yield replace(seen, strays=tuple(path.name for path in model.parent.iterdir() if path != model))


@fault("killed", "onnxgate is killed while it creates an environment")
def killed_building(ground: Ground) -> Iterator[FaultOutcome]:
    """The incomplete environment is not used, and the processes that create it end."""
    ground.truth()
    (ground.cache / "environments").unlink()
    for number in range(10 if ground.thorough else 2):
        wait_s = 0.3 + 0.25 * number
        yield ground.check(
            expected=(-9, 0), during=after(wait_s, signal.SIGKILL), killed=True, about=f"after {wait_s:.2f} s"
        )
    yield bounded(ground, ground.check(expected=(0,), about="the next"))


def _interrupted(ground: Ground, *numbers: signal.Signals, group: bool, few: int) -> Iterator[FaultOutcome]:
    ground.truth()
    for wait_s in moments(ground, duration_s(ground, ["check"]), 12, few):
        sent = after(wait_s, *numbers, group=group)
        yield ground.check(expected=(130, 0), during=sent, about=f"after {wait_s:.2f} s")


@fault("interrupted", "Ctrl-C is pressed once", quick=True)
def interrupted_once(ground: Ground) -> Iterator[FaultOutcome]:
    """The exit status is 130, and all child processes have ended."""
    yield from _interrupted(ground, signal.SIGINT, group=True, few=2)


@fault("interrupted", "Ctrl-C is pressed twice")
def interrupted_twice(ground: Ground) -> Iterator[FaultOutcome]:
    """The exit status is 130; the next run removes leftover files."""
    for seen in _interrupted(ground, signal.SIGINT, signal.SIGINT, group=True, few=2):
        yield replace(seen, scratch=())
    yield bounded(ground, ground.check(expected=(0,), about="the next"))


@fault("interrupted", "onnxgate receives SIGTERM", quick=True)
def interrupted_by_term(ground: Ground) -> Iterator[FaultOutcome]:
    """This is how a CI runner cancels a job."""
    yield from _interrupted(ground, signal.SIGTERM, group=False, few=2)


@fault("interrupted", "onnxgate receives SIGHUP (terminal closed)")
def interrupted_by_hangup(ground: Ground) -> Iterator[FaultOutcome]:
    """All child processes have ended."""
    yield from _interrupted(ground, signal.SIGHUP, group=False, few=2)


@fault("interrupted", "onnxgate receives SIGHUP under `nohup`")
def hangup_is_ignored(ground: Ground) -> Iterator[FaultOutcome]:
    """The command ignores SIGHUP and completes."""

    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    yield ground.check(expected=(0,), setup=ignore, during=after(0.4, signal.SIGHUP))


@fault("interrupted", "onnxgate is suspended and resumed (Ctrl-Z, `fg`)")
def stopped_and_continued(ground: Ground) -> Iterator[FaultOutcome]:
    """Suspending the command does not affect the result."""

    def stop(process: subprocess.Popen[bytes]) -> None:
        time.sleep(0.5)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(process.pid, signal.SIGCONT)

    yield ground.check(expected=(0,), during=stop)
