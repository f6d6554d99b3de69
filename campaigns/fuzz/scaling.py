"""Measure the CPU time and peak memory of commands on models of growing dimensions."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaigns.fuzz.scaled_models import SCALED

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "check": ("check", "--static"),
    "against": ("check", "--static", "--against", "HEAD~1"),
    "run": ("check",),
    "diff": ("diff", "old.onnx", "new.onnx"),
    "fix": ("fix", "--dry-run", "new.onnx"),
    "lock": ("lock",),
    "matrix": ("matrix", "new.onnx"),
}
COMPLETED = ("0", "1")
"""Exit statuses of commands that did their work."""
LOCKED = ("check", "against", "run", "fix")
"""Commands that read a lock."""
CONFIG = 'models = ["new.onnx"]\n\n[targets.t]\nruntime = "onnxruntime==1.31.1"\n'
_RUN = """
import resource, subprocess, sys
try:
    status = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            timeout=float(sys.argv[1])).returncode
except subprocess.TimeoutExpired:
    status = "timeout"
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(status, used.ru_utime + used.ru_stime, used.ru_maxrss)
"""
"""Runs in a process of its own, which is small: a child inherits the peak memory of its parent."""


@dataclass(frozen=True)
class Cost:
    """What one command on one model took."""

    size: int
    status: str
    cpu_s: float
    memory_mib: float

    def __str__(self) -> str:
        return f"{self.size / 1e6:7.2f} MB  {self.status:>7} {self.cpu_s:7.2f} s {self.memory_mib:6.0f} MiB"


def print_costs(commands: Sequence[str], names: Sequence[str], counts: Sequence[int], limit_s: float) -> int:
    """Print one line per command and dimension, and return how many grow faster than the size or did not run."""
    costly = 0
    for command in commands:
        base = measure(command, "nodes_in_chain", 1, limit_s)
        for name in names:
            costs = [measure(command, name, count, limit_s) for count in counts]
            steps = zip(costs, costs[1:], counts, counts[1:], strict=False)
            is_bad = any(is_costly(a, b, base, more / fewer) for a, b, fewer, more in steps)
            is_bad |= not {cost.status for cost in costs} <= {*COMPLETED}
            costly += is_bad
            print(f"{command:8} {name:28}", *costs, "<<<" if is_bad else "", flush=True)
    return costly


def measure(command: str, name: str, count: int, limit_s: float = 100.0) -> Cost:
    """Run a command on a model of which one dimension has size `count`, with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        size = _prepare(Path(folder), name, count, locked=command in LOCKED)
        return _run(Path(folder), COMMANDS[command], limit_s, size)


def is_costly(before: Cost, after: Cost, base: Cost, factor: float) -> bool:
    """Whether a cost grew clearly more than `factor`, aside from the costs of a tiny model."""
    cpu = max(before.cpu_s - base.cpu_s, 0.2), after.cpu_s - base.cpu_s
    memory = max(before.memory_mib - base.memory_mib, 20), after.memory_mib - base.memory_mib
    return cpu[1] > 1.5 * factor * cpu[0] or memory[1] > 1.5 * factor * memory[0]


def _prepare(folder: Path, name: str, count: int, *, locked: bool) -> int:
    model = SCALED[name](count)
    (folder / "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
    for path in ("old.onnx", "new.onnx"):
        (folder / path).write_bytes(model.SerializeToString())
    if locked:
        (folder / "onnxgate.lock").write_bytes(_lock())
    _commit(folder)
    # a changed name of the graph and a changed operator in the middle, so that models are compared in full
    model.graph.name += "z"
    if model.graph.node:
        model.graph.node[len(model.graph.node) // 2].op_type = "Abs"
    (folder / "new.onnx").write_bytes(model.SerializeToString())
    _commit(folder)
    return model.ByteSize()


@functools.cache
def _lock() -> bytes:
    """Return a lock of the target, with the entry of a model of one node."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "onnxgate.toml").write_text(CONFIG, encoding="utf-8")
        Path(folder, "new.onnx").write_bytes(SCALED["nodes_in_chain"](1).SerializeToString())
        subprocess.run(
            [sys.executable, "-m", "onnxgate", "lock", "--quiet"],
            cwd=folder,
            env=_environment(Path(folder)),
            check=True,
            capture_output=True,
        )
        return Path(folder, "onnxgate.lock").read_bytes()


def _commit(folder: Path) -> None:
    git = ("git", "-c", "user.name=onnxgate", "-c", "user.email=onnxgate@localhost")
    for command in (("init", "--quiet"), ("add", "new.onnx", "onnxgate.toml"), ("commit", "--quiet", "-m", "models")):
        subprocess.run([*git, *command], cwd=folder, check=True, capture_output=True)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(folder / "cache")}


def _run(folder: Path, command: tuple[str, ...], limit_s: float, size: int) -> Cost:
    asked = [sys.executable, "-c", _RUN, str(limit_s), sys.executable, "-m", "onnxgate", *command]
    answer = subprocess.run(
        asked, cwd=folder, env=_environment(folder), check=True, capture_output=True, text=True
    ).stdout
    status, cpu_s, memory_kib = answer.split()
    return Cost(size, status, float(cpu_s), float(memory_kib) / 1024)
