"""
What the full gate costs, beside what a user would write, in one run.

    python -m bench.full [--project FOLDER] [--repeat 3] [--also NAME=CHECKOUT]... [--json FILE] [--no-pip]

The project is the quickstart without its sources, at 8 releases of ONNX Runtime, or the models of a folder of your own.
A user's loop makes an environment for each locked release, by pip or by uv, installs `onnxruntime` and `numpy` as the
lock pins them, loads and runs every model at both levels on the same inputs, and compares with `assert_allclose`. Wheel
caches of pip and uv are warm. Run it with the Python that the lock names; the first run fetches what is missing.

The bound is the runtimes' own work, as the loop's script measures it inside each process: the import, making sessions
and running them, spread over the cores. What the gate takes beyond, by runtime, is its overhead.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.contestants import HERE, LOOPS, ROOT, at, gate
from bench.contests import machine, say
from bench.figures import Row, Span, cpu_s, wall_ratio, wall_s
from bench.processes import Taken, run

QUICKSTART = ROOT / "fixtures" / "projects" / "quickstart"
CONFIG = """models = ["models/*.onnx"]
[targets.server]
runtime = "onnxruntime>=1.18,<1.25"
select = "minors"

[targets.newest]
runtime = "onnxruntime>=1.25,<2"
select = "newest"
"""
ENTRY = '\n[[model]]\npath = "models/{stem}.onnx"\ninputs = "samples/{stem}/*.npz"\n'
CASES = 3
LIMIT_S = 900.0
WARM = "environments warm"


@dataclass(frozen=True, slots=True)
class Release:
    """One locked release."""

    version: str
    pins: tuple[str, ...]  # what a user would install: onnxruntime and numpy


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds in the runtimes themselves, over all releases."""

    spent: Mapping[str, float]
    cores: int

    @property
    def spread_s(self) -> float:
        """The least that all of it can take."""
        return sum(self.spent.values()) / self.cores


@dataclass(frozen=True, slots=True)
class Contestant:
    """One way to the verdict."""

    name: str
    take: Callable[[], Taken]


def main(words: Sequence[str] | None = None) -> int:
    """Measure and print; 1 where a contestant failed."""
    asked = _arguments(words)
    with tempfile.TemporaryDirectory(prefix="onnxgate-bench-") as folder:
        arena = Arena(Path(folder), asked.project)
        contestants = arena.contestants({HERE: ROOT, **dict(asked.also)}, pip=not asked.no_pip)
        rows = _contest(contestants, asked.repeat)
        bound = arena.bound()
    print(_table(rows, bound, arena.releases))
    if asked.json is not None:
        found = {"machine": machine(), "bound": asdict(bound), "rows": [asdict(row) for row in rows]}
        asked.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.failure for row in rows) else 0


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the full gate costs, beside what a user would write.")
    parser.add_argument("--project", type=Path, default=QUICKSTART, help="a folder with `models` and `onnxgate.lock`")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--also", action="append", type=_checkout, default=[], metavar="NAME=CHECKOUT")
    parser.add_argument("--no-pip", action="store_true", help="without pip's loop, which takes minutes")
    parser.add_argument("--json", type=Path)
    return parser.parse_args(words)


def _checkout(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    if not name or not Path(path, "onnxgate", "__main__.py").is_file():
        raise argparse.ArgumentTypeError(f"{text}: no checkout of onnxgate there")
    return name, Path(path).resolve()


class Arena:
    """The project that all work on, with the same inputs for each."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        shutil.copytree(source / "models", self.project / "models")
        shutil.copyfile(source / "onnxgate.lock", self.project / "onnxgate.lock")
        stems = sorted(path.stem for path in (self.project / "models").glob("*.onnx"))
        config = CONFIG + "".join(ENTRY.format(stem=stem) for stem in stems)
        (self.project / "onnxgate.toml").write_text(config, encoding="utf-8")
        run(("git", "init", "--quiet"), self.project, {}, LIMIT_S)
        for stem in stems:
            _write_samples(self.project, stem)
        locked = run((*gate(), "lock", "--offline"), self.project, at(ROOT), LIMIT_S)
        if locked.failed:
            raise SystemExit(f"it cannot be locked: {locked.said}")
        self.releases = tuple(_releases(self.project / "onnxgate.lock"))

    def contestants(self, checkouts: Mapping[str, Path], *, pip: bool) -> list[Contestant]:
        """The gates, and the loops that a user would write."""
        found = []
        for name, folder in checkouts.items():
            cache = self.folder / "caches" / name
            for state, forgets in (("environments cold", ("",)), (WARM, ("results", "static")), ("again", ())):
                found.append(Contestant(f"{name} check, {state}", self._gate(folder, cache, forgets)))
        makers = {"uv": _made_by_uv, **({"pip": _made_by_pip} if pip else {})}
        for name, maker in makers.items():
            found.append(Contestant(f"a loop of {name} and a script", self._loop(maker, cold=True)))
        found.append(Contestant(f"the same, {WARM}", self._loop(_made_by_uv, cold=False)))
        return found

    def bound(self) -> Bound:
        """What the script of the last loop said of each release."""
        spent: dict[str, float] = {}
        for each in self.releases:
            said = json.loads((self.folder / "loop" / each.version / "said.json").read_text(encoding="utf-8"))
            for what, seconds in said.items():
                spent[what] = spent.get(what, 0.0) + seconds
        return Bound(spent, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)

    def _gate(self, checkout: Path, cache: Path, forgets: Sequence[str]) -> Callable[[], Taken]:
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}

        def take() -> Taken:
            for each in forgets:
                shutil.rmtree(cache / each, ignore_errors=True)
            return run((*gate(), "check", "--quiet"), self.project, environment, LIMIT_S)

        return take

    def _loop(self, make: Callable[[Path, Release], str], *, cold: bool) -> Callable[[], Taken]:
        """A shell script, as a user would write it."""
        folder = self.folder / "loop"

        def take() -> Taken:
            lines = ["set -e"]
            for each in self.releases:
                home = folder / each.version
                lines += [f"rm -rf {home}; mkdir -p {home}", make(home / "env", each)] if cold else []
                asked = f"models samples {home / 'out'} > {home / 'said.json'}"
                lines.append(f"{home / 'env' / 'bin' / 'python'} {LOOPS / 'release.py'} {asked}")
            outs = " ".join(str(folder / each.version / "out") for each in self.releases)
            lines.append(
                f"{folder / self.releases[-1].version / 'env' / 'bin' / 'python'} {LOOPS / 'compare.py'} {outs}"
            )
            return run(("sh", "-c", "\n".join(lines)), self.project, {}, LIMIT_S)

        return take


def _write_samples(project: Path, stem: str) -> None:
    """A few cases: dynamic axes get sizes 1, 2, 3 …, values are drawn from a seed."""
    from onnxgate.inputs.axis_sizes import DTYPES
    from onnxgate.model.reading.fact_extraction import read_model

    facts = read_model(project / "models" / f"{stem}.onnx", f"models/{stem}.onnx").facts
    folder = project / "samples" / stem
    folder.mkdir(parents=True)
    for number in range(CASES):
        random = np.random.default_rng(number)
        feeds = {}
        for value in facts.inputs:
            shape = [dim if isinstance(dim, int) else 1 + number for dim in value.shape or ()]
            kind = DTYPES[value.type.removeprefix("tensor(").removesuffix(")")]
            drawn = random.standard_normal(shape) if np.dtype(kind).kind == "f" else random.integers(0, 2, shape)
            feeds[value.name] = drawn.astype(kind)
        np.savez(folder / f"{number}.npz", **feeds)


def _releases(path: Path) -> Iterator[Release]:
    from onnxgate.core.findings import runtime_sort_key
    from onnxgate.project.lock.lock_file import load_lock

    runtimes = {runtime.name: runtime for target in load_lock(path).targets.values() for runtime in target.runtimes}
    for name in sorted(runtimes, key=runtime_sort_key):
        pins = [pin for pin in runtimes[name].packages if pin.partition("==")[0] in ("onnxruntime", "numpy")]
        yield Release(runtimes[name].release, tuple(pins))


def _made_by_pip(environment: Path, release: Release) -> str:
    install = f"{environment / 'bin' / 'python'} -m pip install --quiet --disable-pip-version-check"
    return f"{sys.executable} -m venv {environment}; {install} {' '.join(release.pins)}"


def _made_by_uv(environment: Path, release: Release) -> str:
    from uv import find_uv_bin

    uv = find_uv_bin()
    install = f"{uv} pip install --quiet --python {environment / 'bin' / 'python'} {' '.join(release.pins)}"
    return f"{uv} venv --quiet --no-project --python {sys.executable} {environment}; {install}"


def _contest(contestants: Sequence[Contestant], repeat: int) -> list[Row]:
    """Repetition by repetition in turn, after one round that fills the caches of wheels."""
    runs: dict[str, list[Taken]] = {each.name: [] for each in contestants}
    for repetition in range(repeat + 1):
        for each in contestants:
            if any(taken.failed for taken in runs[each.name]):
                continue
            taken = each.take()
            if repetition or taken.failed:
                runs[each.name].append(taken)
            say(f"{repetition}/{repeat}: {each.name}: {taken.wall_s:.2f} s, exit {taken.exit} {taken.said}")
    return [Row(name, tuple(taken)) for name, taken in runs.items()]


def _table(rows: Sequence[Row], bound: Bound, releases: Sequence[Release]) -> str:
    """Every contestant beside the fastest loop and the bound."""
    by_name = {row.name: row for row in rows}
    loop = by_name["a loop of uv and a script"]
    spent = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in bound.spent.items())
    lines = [
        ", ".join(f"{name} {value}" for name, value in machine().items()),
        "",
        f"{len(releases)} releases; the runtimes' own work: {spent}; over {bound.cores} cores {bound.spread_s:.2f} s",
        "",
        "| | wall s | CPU s | x loop of uv | x bound | beyond the bound, s per runtime |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(row, loop, bound, len(releases)) for row in rows)])


def _line(row: Row, loop: Row, bound: Bound, runtimes: int) -> str:
    wall, cpu = wall_s(row), cpu_s(row)
    if wall is None or cpu is None or row.failure:
        return f"| {row.name} | **failed** | | | | |"
    beyond = (wall.median - bound.spread_s) / runtimes
    times = wall.median / bound.spread_s
    return (
        f"| {row.name} | {_span(wall)} | {_span(cpu)} | {_span(wall_ratio(row, loop))} | {times:.1f} | {beyond:.2f} |"
    )


def _span(span: Span | None) -> str:
    return "-" if span is None else f"{span.median:.2f} ({span.least:.2f}..{span.most:.2f})"


if __name__ == "__main__":
    sys.exit(main())
