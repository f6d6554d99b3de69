"""
Measure the static stages, compared with other tools and lower bounds.

Every command processes all models of a corpus in a single process; the commands run in turn. All files are read once
before, so that they are in the page cache. In each repetition, onnxgate first runs with an empty cache, then on the
unchanged project. The corpora take up to 5 GB of disk space at a time; other tools take up to 8 GB of memory for the
1.9 GB model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench import contests, corpora
from bench.contestants import bounds, gates, peers_of
from bench.figures import Pair, WorkResult

QUICK = ("small-100", "nodes-2000", "large-10")
ALL = ("small-100", "small-1000", "nodes-2000", "nodes-20000", "ensemble", "large-100", "huge")


def measure_corpora(
    names: Sequence[str],
    checkouts: Mapping[str, Path],
    folder: Path,
    scratch: Path,
    *,
    repeat: int,
    limit_s: float,
    keep: bool,
    programs: Path | None,
) -> tuple[WorkResult, ...]:
    """Measure static checks of corpora, which are written below `folder`, and the tools in the folder `programs`."""
    contestants = (*gates(checkouts, scratch / "caches"), *peers_of(programs), *bounds())
    results = []
    for name in names:
        corpus = corpora.by_name(name)
        with contests.written(corpus, folder, keep=keep) as project:
            results.append(contests.contest(corpus, project, contestants, repeat, limit_s))
    return tuple(results)


def measure_startup(
    checkouts: Mapping[str, Path], folder: Path, scratch: Path, *, count: int, limit_s: float, keep: bool
) -> tuple[Pair, ...]:
    """Measure the start-up of `--help`, of a static check of one small model and of the API, `count` times each."""
    with contests.written(corpora.by_name("one"), folder, keep=keep) as project:
        return contests.pairs(project, checkouts, scratch / "caches", count, limit_s)
