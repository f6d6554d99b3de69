"""Who takes part: onnxgate (this checkout, and others), its peers, and bounds that nothing can be faster than."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import Taken, run

ROOT = Path(__file__).resolve().parent.parent
LOOPS = Path(__file__).with_name("loops")
IMPORT, SHA256SUM = 'python -c "import onnx"', "sha256sum"
HERE = "onnxgate"


@dataclass(frozen=True, slots=True)
class Contestant:
    """A command that judges, or only reads, all models of a project; it runs in the project's folder."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    forgets: Path | None = None  # a cache that is emptied before each run

    def take(self, project: Path, limit_s: float) -> Taken:
        """One run over a project."""
        if self.forgets is not None:
            shutil.rmtree(self.forgets, ignore_errors=True)
        return run(self.command, project, self.environment, limit_s)


def gates(checkouts: Mapping[str, Path], caches: Path) -> tuple[Contestant, ...]:
    """Each checkout of onnxgate, first with an empty cache and then on the unchanged repository."""
    found = []
    for name, checkout in checkouts.items():
        command = (*gate(), "check", "--static", "--quiet")
        cache = caches / name
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}
        found.append(Contestant(f"{name} check --static", command, environment, forgets=cache))
        found.append(Contestant(f"{name} check --static, again", command, environment))
    return tuple(found)


def gate() -> tuple[str, ...]:
    """The command, from a checkout that `at` names."""
    return (sys.executable, "-m", "onnxgate")


def at(checkout: Path) -> dict[str, str]:
    """What makes Python take onnxgate from that checkout."""
    return {"PYTHONPATH": str(checkout)}


def contenders(programs: Path | None) -> tuple[Contestant, ...]:
    """onnx itself, and the peers where they are installed.

    onnx-doctor takes a folder. Polygraphy's lint takes one model: its entry point is called in a loop in one process,
    so that it need not start a thousand times.
    """
    found = [Contestant("onnx.checker, full, in a loop", (sys.executable, str(LOOPS / "checker.py"), "models"))]
    if programs is not None:
        found.append(Contestant("onnx-doctor check", (str(programs / "onnx-doctor"), "check", "models")))
        lint = (str(programs / "python"), str(LOOPS / "lint.py"), "models")
        found.append(Contestant("polygraphy check lint, in a loop", lint))
    return tuple(found)


def bounds() -> tuple[Contestant, ...]:
    """What reads the files and judges nothing, or does not even read them."""
    return (
        Contestant(IMPORT, (sys.executable, "-c", "import onnx")),
        Contestant("onnx.load, in a loop", (sys.executable, str(LOOPS / "load.py"), "models")),
        Contestant("hashlib.sha256", (sys.executable, str(LOOPS / "digest.py"), "models")),
        Contestant(SHA256SUM, ("sh", "-c", "sha256sum models/* > /dev/null")),
        Contestant("cat", ("sh", "-c", "cat models/* > /dev/null")),
    )
