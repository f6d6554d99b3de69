"""Measure commands in turn: in each repetition, every command runs once, so that a busy machine affects all of them."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from bench.contestants import IMPORT, ROOT, SHA256SUM, STATIC, UNCHANGED, Contestant, at, gate
from bench.corpora import Corpus
from bench.corpora.projects import is_complete
from bench.figures import Pair, Row, WorkResult
from bench.processes import Measurement, run

_BIG_BYTES = 100_000_000
_SLOW_S = 20.0
"""Time in seconds; another tool that takes longer is measured only once."""
_PREDICTIONS = ("bench/predictions.py", "400", "4000")
_PREDICTIONS_S = 300.0
_CLICK = 'python -c "import click"'
_API = "from onnxgate.api import *"
_HELP_AT_MOST, _START_AT_MOST, _UNCHANGED_AT_MOST, _API_AT_MOST = 2.0, 1.5, 1.0, 0.5


@contextlib.contextmanager
def written(corpus: Corpus, folder: Path, *, keep: bool) -> Iterator[Path]:
    """Yield the project of a corpus below `folder`.

    If the project is missing, it is created, and removed afterwards unless `keep` is set. A separate process
    writes the project, so that this process stays small: a child process inherits the peak memory of its parent.
    """
    project = folder.resolve() / corpus.name
    was_there = is_complete(project)
    if not was_there:
        log_progress(f"writing {corpus.title}")
        subprocess.run([sys.executable, "-m", "bench.corpora", str(folder), corpus.name], cwd=ROOT, check=True)
    try:
        yield project
    finally:
        if not was_there and not keep:
            shutil.rmtree(project)


def contest(
    corpus: Corpus, project: Path, contestants: Sequence[Contestant], repeat: int, limit_s: float
) -> WorkResult:
    """Measure all commands on one corpus."""
    files = sorted((project / "models").iterdir())
    run(("sh", "-c", "cat models/* > /dev/null"), project, {}, limit_s)  # the page cache is the same for all
    rows = measure(corpus.name, contestants, project, repeat, limit_s)
    size_bytes = sum(file.stat().st_size for file in files)
    bound = SHA256SUM if size_bytes >= _BIG_BYTES else IMPORT
    return WorkResult(corpus.name, corpus.title, len(files), size_bytes, bound, rows)


def measure(
    work: str, contestants: Sequence[Contestant], project: Path, repeat: int, limit_s: float, *, warm_up: bool = False
) -> tuple[Row, ...]:
    """Run each command `repeat` times in turn. With `warm_up`, a first round is not measured.

    A command that failed is not run again, nor is another tool that was slow.
    """
    runs: dict[str, list[Measurement]] = {contestant.name: [] for contestant in contestants}
    for repetition in range(0 if warm_up else 1, repeat + 1):
        for contestant in contestants:
            earlier = runs[contestant.name]
            is_slow = contestant.is_peer and any(measurement.wall_s > _SLOW_S for measurement in earlier)
            if is_slow or any(measurement.failed for measurement in earlier):
                continue
            measurement = contestant.measure(project, limit_s)
            if repetition or measurement.failed:
                earlier.append(measurement)
            result = f"{measurement.wall_s:.2f} s, exit {measurement.exit} {measurement.output}"
            log_progress(f"{work} {repetition}/{repeat}: {contestant.name}: {result}")
    return tuple(Row(name, tuple(measurements)) for name, measurements in runs.items())


def pairs(project: Path, checkouts: Mapping[str, Path], caches: Path, count: int, limit_s: float) -> tuple[Pair, ...]:
    """Measure the start-up: each command and its lower bound in turn, after one unmeasured run that writes bytecode."""
    click = Contestant(_CLICK, (sys.executable, "-c", "import click"))
    onnx = Contestant(IMPORT, (sys.executable, "-c", "import onnx"))
    measured = []
    for name, checkout in checkouts.items():
        cache = caches / f"{name}-startup"
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}
        command = (*gate(), "check", "--static", "--quiet")
        small = Contestant(f"{name} {STATIC}, one small model", command, environment, removes=(cache,))
        unchanged = Contestant(f"{name} {UNCHANGED}, one small model", command, environment)
        for subject, bound, at_most in (
            (Contestant(f"{name} --help", (*gate(), "--help"), environment), click, _HELP_AT_MOST),
            (small, onnx, _START_AT_MOST),
            (unchanged, onnx, _UNCHANGED_AT_MOST),
            (Contestant(f"{name}: `{_API}`", (sys.executable, "-c", _API), environment), onnx, _API_AT_MOST),
        ):
            subject_row, bound_row = measure("startup", (subject, bound), project, count, limit_s, warm_up=True)
            measured.append(Pair(subject.name, subject_row, bound_row, at_most))
    return tuple(measured)


def predictions(scratch: Path) -> Row:
    """Run the benchmark of predictions: up to 4,000 models on 16 releases."""
    log_progress("predictions")
    command = (sys.executable, str(ROOT / _PREDICTIONS[0]), *_PREDICTIONS[1:])
    measurement = run(command, scratch, at(ROOT), _PREDICTIONS_S, keep_output=True)
    return Row(f"python {' '.join(_PREDICTIONS)}", (measurement,))


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine() -> dict[str, str]:
    """Return the properties of the machine that affect the results, but not its name."""
    versions = {name: metadata.version(name) for name in ("onnx", "numpy", "click")}
    return {
        platform.system(): platform.machine(),
        "cores": str(count_cores()),
        "GiB of memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f}",
        "Python": platform.python_version(),
        **versions,
    }


def log_progress(text: str) -> None:
    """Print progress to standard error; the tables go to standard output."""
    print(text.strip(), file=sys.stderr, flush=True)
