"""Contestants beside each other: repetition by repetition in turn, over one corpus, or two of them as a pair."""

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

from bench.contestants import IMPORT, ROOT, SHA256SUM, Contestant, at, gate
from bench.corpora import Corpus
from bench.corpora.projects import is_complete
from bench.figures import CorpusResult, Pair, Row
from bench.processes import Taken, run

_BIG_BYTES = 100_000_000
_PREDICTIONS = ("bench/predictions.py", "400", "4000")
_PREDICTIONS_S = 300.0
_CLICK = 'python -c "import click"'


@contextlib.contextmanager
def written(corpus: Corpus, folder: Path, *, keep: bool) -> Iterator[Path]:
    """The corpus as a project in a folder; what was not there before goes away, unless it is kept.

    A process of its own writes it, so that ours stays small: no child's peak is below the memory of its parent.
    """
    project = folder.resolve() / corpus.name
    was_there = is_complete(project)
    if not was_there:
        say(f"writing {corpus.says}")
        subprocess.run([sys.executable, "-m", "bench.corpora", str(folder), corpus.name], cwd=ROOT, check=True)
    try:
        yield project
    finally:
        if not was_there and not keep:
            shutil.rmtree(project)


def contest(
    corpus: Corpus, project: Path, contestants: Sequence[Contestant], repeat: int, limit_s: float
) -> CorpusResult:
    """Every contestant on one corpus; whoever failed is not tried again."""
    files = sorted((project / "models").iterdir())
    run(("sh", "-c", "cat models/* > /dev/null"), project, {}, limit_s)  # nobody is the first to read
    runs: dict[str, list[Taken]] = {each.name: [] for each in contestants}
    for repetition in range(repeat):
        for each in contestants:
            if any(taken.failed for taken in runs[each.name]):
                continue
            taken = each.take(project, limit_s)
            runs[each.name].append(taken)
            say(f"{corpus.name} {repetition + 1}/{repeat}: {each.name}: {taken.wall_s:.2f} s, exit {taken.exit}")
    size_bytes = sum(file.stat().st_size for file in files)
    bound = SHA256SUM if size_bytes >= _BIG_BYTES else IMPORT
    rows = tuple(Row(name, tuple(taken)) for name, taken in runs.items())
    return CorpusResult(corpus.name, corpus.says, len(files), size_bytes, bound, rows)


def pairs(project: Path, checkouts: Mapping[str, Path], caches: Path, count: int, limit_s: float) -> tuple[Pair, ...]:
    """Start-up: each command and its bound in turn, after one run of each that leaves bytecode behind."""
    click = Contestant(_CLICK, (sys.executable, "-c", "import click"))
    onnx = Contestant(IMPORT, (sys.executable, "-c", "import onnx"))
    found = []
    for name, checkout in checkouts.items():
        cache = caches / f"{name}-startup"
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}
        check = (*gate(), "check", "--static", "--quiet")
        asked = (
            (Contestant(f"{name} --help", (*gate(), "--help"), environment), click),
            (Contestant(f"{name} check --static, one small model", check, environment, forgets=cache), onnx),
            (Contestant(f"{name} check --static, one small model, again", check, environment), onnx),
        )
        found += [_pair(project, subject, bound, count, limit_s) for subject, bound in asked]
    return tuple(found)


def _pair(project: Path, subject: Contestant, bound: Contestant, count: int, limit_s: float) -> Pair:
    rows: tuple[list[Taken], list[Taken]] = ([], [])
    for repetition in range(count + 1):
        for each, runs in zip((subject, bound), rows, strict=True):
            taken = each.take(project, limit_s)
            if repetition or taken.failed:
                runs.append(taken)
    say(f"{subject.name}: {count} pairs")
    return Pair(subject.name, Row(subject.name, tuple(rows[0])), Row(bound.name, tuple(rows[1])), 2.0)


def predictions(scratch: Path) -> Row:
    """Predicting 4,000 models on 16 releases, as its own benchmark does it."""
    say("predictions")
    command = (sys.executable, str(ROOT / _PREDICTIONS[0]), *_PREDICTIONS[1:])
    taken = run(command, scratch, at(ROOT), _PREDICTIONS_S, telling=True)
    return Row(f"python {' '.join(_PREDICTIONS)}", (taken,))


def machine() -> dict[str, str]:
    """What the figures depend on; no name of a host."""
    versions = {name: metadata.version(name) for name in ("onnx", "numpy", "click")}
    return {
        platform.system(): platform.machine(),
        "cores": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
        "GiB of memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f}",
        "Python": platform.python_version(),
        **versions,
    }


def say(what: str) -> None:
    """Progress, beside the tables."""
    print(what, file=sys.stderr, flush=True)
