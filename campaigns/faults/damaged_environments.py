"""Incomplete environments, and interpreters that were replaced."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from campaigns.faults.invariants import FaultOutcome
from campaigns.faults.project_under_test import Ground
from campaigns.faults.registry import fault

ONE = "onnxruntime-1.18"


def harmed(
    ground: Ground, harm: Callable[[Path], object], *, expected: tuple[int, ...] = (0,)
) -> Iterator[FaultOutcome]:
    """Run a check with one damaged environment, and another one, which must succeed."""
    folder = ground.own_environments(copied=ONE)
    slot = next(folder.glob(f"{ONE}*"))
    harm(slot)
    yield ground.check(expected=expected)
    yield ground.check(expected=(0,), about="the next")


def attempt(slot: Path) -> Path:
    """Return the environment's folder."""
    return slot / "attempts" / str(json.loads((slot / "ready.json").read_bytes())["attempt"])


def packages(slot: Path) -> Path:
    """Return the `site-packages` folder of the environment."""
    return next(attempt(slot).glob("lib/python*/site-packages"))


@fault("damaged environment", "its interpreter is missing")
def half_without_interpreter(ground: Ground) -> Iterator[FaultOutcome]:
    """The environment is rebuilt."""
    yield from harmed(ground, lambda slot: (attempt(slot) / "bin" / "python").unlink())


@fault("damaged environment", "the engine's files are missing", quick=True)
def half_without_engine(ground: Ground) -> Iterator[FaultOutcome]:
    """The environment is rebuilt at the latest by the next run."""
    yield from harmed(ground, lambda slot: shutil.rmtree(packages(slot) / "onnxruntime"), expected=(0, 3))


@fault("damaged environment", "numpy is missing")
def half_without_numpy(ground: Ground) -> Iterator[FaultOutcome]:
    """The environment is rebuilt at the latest by the next run."""
    yield from harmed(ground, lambda slot: shutil.rmtree(packages(slot) / "numpy"), expected=(0, 3))


@fault("damaged environment", "a file that the engine imports only on first use is missing")
def half_without_a_late_file(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def remove(slot: Path) -> None:
        for path in (packages(slot) / "numpy" / "lib").glob("*format*"):
            path.unlink()
        shutil.rmtree(packages(slot) / "numpy" / "lib" / "__pycache__", ignore_errors=True)

    yield from harmed(ground, remove, expected=(0, 3))


@fault("damaged environment", "the engine's library is truncated")
def half_a_library(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def truncate(slot: Path) -> None:
        for path in (packages(slot) / "onnxruntime" / "capi").glob("*.so*"):
            os.truncate(path, path.stat().st_size // 2)

    yield from harmed(ground, truncate, expected=(0, 3))


@fault("damaged environment", "the engine's library is empty")
def an_empty_library(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def empty(slot: Path) -> None:
        for path in (packages(slot) / "onnxruntime" / "capi").glob("*.so*"):
            os.truncate(path, 0)

    yield from harmed(ground, empty, expected=(0, 3))


def _overwrite_ready(content: bytes, slot: Path) -> None:
    (slot / "ready.json").write_bytes(content)


@fault("damaged environment", "its state file is empty, invalid, a folder, or has a different key")
def half_a_state(ground: Ground) -> Iterator[FaultOutcome]:
    """The state file is rejected and the environment is rebuilt."""

    def make_folder(slot: Path) -> None:
        (slot / "ready.json").unlink()
        (slot / "ready.json").mkdir()

    contents = [b"", b"\0" * 4096, b'{"layout": 1}', b'{"layout":1,"key":"0","attempt":"../../../x"}', b"[" * 100_000]
    for content in contents if ground.thorough else contents[:1]:
        yield from harmed(ground, functools.partial(_overwrite_ready, content))
    if ground.thorough:
        yield from harmed(ground, make_folder)


@fault("damaged environment", "a stale lock file")
def half_a_lock(ground: Ground) -> Iterator[FaultOutcome]:
    """A lock file that no process holds is ignored."""

    def lock(slot: Path) -> None:
        (slot / "ready.json").unlink()
        slot.with_name(f"{slot.name}.lock").write_text("12345")

    yield from harmed(ground, lock)


@fault("damaged environment", "the interpreter was replaced")
def interpreter_exchanged(ground: Ground) -> Iterator[FaultOutcome]:
    """As after a system upgrade, the interpreter no longer finds its packages."""

    def exchange(slot: Path) -> None:
        library_folder = sorted(attempt(slot).glob("lib/python*"))[0]
        library_folder.rename(library_folder.with_name("python3.99"))

    yield from harmed(ground, exchange, expected=(0, 3))


@fault("damaged environment", "the interpreter does not start")
def interpreter_broken(ground: Ground) -> Iterator[FaultOutcome]:
    """The environment is rebuilt at the latest by the next run."""

    def break_it(slot: Path) -> None:
        python = attempt(slot) / "bin" / "python"
        python.unlink()
        python.write_text("#!/nowhere/python\n")
        python.chmod(0o755)

    yield from harmed(ground, break_it, expected=(0, 3))
