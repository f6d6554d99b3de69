"""Damaged environments, and interpreters that were replaced."""

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
    """Run a check with one damaged environment, then a second check, which must succeed."""
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


@fault("damaged environment", "the interpreter of an environment is missing")
def environment_without_interpreter(ground: Ground) -> Iterator[FaultOutcome]:
    """The environment is recreated."""
    yield from harmed(ground, lambda slot: (attempt(slot) / "bin" / "python").unlink())


@fault("damaged environment", "the files of the engine are missing", quick=True)
def environment_without_engine(ground: Ground) -> Iterator[FaultOutcome]:
    """This run or the next one recreates the environment."""
    yield from harmed(ground, lambda slot: shutil.rmtree(packages(slot) / "onnxruntime"), expected=(0, 3))


@fault("damaged environment", "numpy is missing in an environment")
def environment_without_numpy(ground: Ground) -> Iterator[FaultOutcome]:
    """This run or the next one recreates the environment."""
    yield from harmed(ground, lambda slot: shutil.rmtree(packages(slot) / "numpy"), expected=(0, 3))


@fault("damaged environment", "a file that the engine imports only on first use is missing")
def environment_without_late_import(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def remove(slot: Path) -> None:
        for path in (packages(slot) / "numpy" / "lib").glob("*format*"):
            path.unlink()
        shutil.rmtree(packages(slot) / "numpy" / "lib" / "__pycache__", ignore_errors=True)

    yield from harmed(ground, remove, expected=(0, 3))


@fault("damaged environment", "the library of the engine is truncated")
def library_truncated(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def truncate(slot: Path) -> None:
        for path in (packages(slot) / "onnxruntime" / "capi").glob("*.so*"):
            os.truncate(path, path.stat().st_size // 2)

    yield from harmed(ground, truncate, expected=(0, 3))


@fault("damaged environment", "the library of the engine is empty")
def library_empty(ground: Ground) -> Iterator[FaultOutcome]:
    """There is no finding about a model."""

    def empty(slot: Path) -> None:
        for path in (packages(slot) / "onnxruntime" / "capi").glob("*.so*"):
            os.truncate(path, 0)

    yield from harmed(ground, empty, expected=(0, 3))


def _overwrite_ready(content: bytes, slot: Path) -> None:
    (slot / "ready.json").write_bytes(content)


@fault("damaged environment", "the state file is empty, invalid, a folder, or from a different environment")
def environment_state_invalid(ground: Ground) -> Iterator[FaultOutcome]:
    """The state file is rejected, and the environment is recreated."""

    def make_folder(slot: Path) -> None:
        (slot / "ready.json").unlink()
        (slot / "ready.json").mkdir()

    contents = [b"", b"\0" * 4096, b'{"layout": 1}', b'{"layout":1,"key":"0","attempt":"../../../x"}', b"[" * 100_000]
    for content in contents if ground.thorough else contents[:1]:
        yield from harmed(ground, functools.partial(_overwrite_ready, content))
    if ground.thorough:
        yield from harmed(ground, make_folder)


@fault("damaged environment", "a stale lock file is left in the environment")
def environment_lock_stale(ground: Ground) -> Iterator[FaultOutcome]:
    """A lock file that no process holds is ignored."""

    def lock(slot: Path) -> None:
        (slot / "ready.json").unlink()
        slot.with_name(f"{slot.name}.lock").write_text("12345")

    yield from harmed(ground, lock)


@fault("damaged environment", "the interpreter of an environment was replaced")
def interpreter_replaced(ground: Ground) -> Iterator[FaultOutcome]:
    """As after a system upgrade, the interpreter no longer finds its packages."""

    def exchange(slot: Path) -> None:
        library_folder = sorted(attempt(slot).glob("lib/python*"))[0]
        library_folder.rename(library_folder.with_name("python3.99"))

    yield from harmed(ground, exchange, expected=(0, 3))


@fault("damaged environment", "the interpreter of an environment does not start")
def interpreter_broken(ground: Ground) -> Iterator[FaultOutcome]:
    """This run or the next one recreates the environment."""

    def break_it(slot: Path) -> None:
        python = attempt(slot) / "bin" / "python"
        python.unlink()
        python.write_text("#!/nowhere/python\n")
        python.chmod(0o755)

    yield from harmed(ground, break_it, expected=(0, 3))
