"""The commands that are compared: onnxgate (this checkout and others), other tools, and lower bounds."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import Measurement, run

ROOT = Path(__file__).resolve().parent.parent
LOOPS = Path(__file__).with_name("loops")
HERE = "onnxgate"
IMPORT, SHA256SUM = 'python -c "import onnx"', "sha256sum"
DOCTOR = "onnx-doctor check"
LOAD = "onnx.load, in a loop"
HASH, CAT = "hashlib.sha256", "cat"
STATIC, UNCHANGED = "check --static", "check --static, unchanged"
FULL_COLD, FULL_WARM, FULL_UNCHANGED = "check, nothing cached", "check, environments cached", "check, unchanged"
ALONE = "the runtimes alone"
TORCH = 'python -c "import torch"'


@dataclass(frozen=True, slots=True)
class Contestant:
    """A command to measure; it runs in the folder of a project."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    removes: tuple[Path, ...] = ()  # folders that are removed before each run
    accepted: tuple[int, ...] = (0,)  # exit statuses of a complete run
    is_peer: bool = False  # another tool: measured only once if it is slow

    def measure(self, project: Path, limit_s: float) -> Measurement:
        """Run the command once."""
        for folder in self.removes:
            shutil.rmtree(folder, ignore_errors=True)
        return run(self.command, project, self.environment, limit_s, accepted=self.accepted)


def gates(checkouts: Mapping[str, Path], caches: Path) -> tuple[Contestant, ...]:
    """Return two static checks for each checkout: one with an empty cache, then one of the unchanged project."""
    contestants = []
    for name, checkout in checkouts.items():
        command = (*gate(), "check", "--static", "--quiet")
        cache = caches / name
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}
        contestants.append(Contestant(f"{name} {STATIC}", command, environment, removes=(cache,)))
        contestants.append(Contestant(f"{name} {UNCHANGED}", command, environment))
    return tuple(contestants)


def gate() -> tuple[str, ...]:
    """Return the command that runs onnxgate; the environment variables from `at` select the checkout."""
    return (sys.executable, "-m", "onnxgate")


def at(checkout: Path) -> dict[str, str]:
    """Return environment variables with which Python imports onnxgate from that checkout."""
    return {"PYTHONPATH": str(checkout)}


def peers_of(programs: Path | None) -> tuple[Contestant, ...]:
    """Return the commands of `onnx.checker`, and of the other tools if they are installed.

    onnx-doctor processes a whole folder. Polygraphy's lint processes one model; to avoid a thousand process starts, a
    loop in one process calls its entry point.
    """
    checker = (sys.executable, str(LOOPS / "checker.py"), "models")
    contestants = [Contestant("onnx.checker, full, in a loop", checker, is_peer=True)]
    if programs is not None:
        doctor = (str(programs / "onnx-doctor"), "check", "models")
        lint = (str(programs / "python"), str(LOOPS / "lint.py"), "models")
        contestants.append(Contestant(DOCTOR, doctor, is_peer=True))
        contestants.append(Contestant("polygraphy check lint, in a loop", lint, is_peer=True))
    return tuple(contestants)


def bounds() -> tuple[Contestant, ...]:
    """Return the lower bounds: commands that only read the files, and one that only imports onnx."""
    return (
        Contestant(IMPORT, (sys.executable, "-c", "import onnx")),
        Contestant(LOAD, (sys.executable, str(LOOPS / "load.py"), "models")),
        Contestant(HASH, (sys.executable, str(LOOPS / "digest.py"), "models")),
        Contestant(SHA256SUM, ("sh", "-c", "sha256sum models/* > /dev/null")),
        Contestant(CAT, ("sh", "-c", "cat models/* > /dev/null")),
    )
