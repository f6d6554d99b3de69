"""
Cost of the full check, compared with the runtimes alone and with a loop that a user would write.

Each project is first checked with cached environments but without cached results, and then checked again unchanged.
"The runtimes alone" runs one Python process for each release, one after the other, in environments that onnxgate did
not create. Each process loads the same models at both optimization levels and, unless the table states otherwise, runs
them on the same inputs. A first round is not measured: it creates environments and fills the caches of wheels, which
needs a package index.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench import contests, corpora
from bench.contestants import ALONE, FULL_COLD, FULL_UNCHANGED, FULL_WARM, ROOT, TORCH, Contestant, at, gate
from bench.corpora.architectures import missing_libraries
from bench.figures import WorkResult
from bench.processes import run
from bench.releases import ReleaseLoop, install_by_pip, install_by_uv, read_releases

_QUICKSTART = ROOT / "fixtures" / "projects" / "quickstart"
_NO_SOURCES_CONFIG = """\
models = ["models/*.onnx"]
[targets.server]
runtime = "onnxruntime>=1.18,<1.25"
select = "minors"

[targets.newest]
runtime = "onnxruntime>=1.25,<2"
select = "newest"
"""
_INPUTS = '\n[[model]]\npath = "models/{stem}.onnx"\ninputs = "samples/{stem}/*.npz"\n'
_TARGET = '\n[targets.release-{number}]\nruntime = "onnxruntime=={release}"\n'
_ENSEMBLE_RELEASES = ("1.18.1", "1.31.1")
_MODEL_RELEASES = ("1.18.1", "1.20.1", "1.23.2", "1.27.0", "1.31.1")
_MODELS = 60
_LONG_TO_LOAD = ("light_bvlc_alexnet.onnx", "light_vgg19.onnx", "light_zfnet512.onnx")
"""Excluded models: computing their large weights on load would dominate the results of all 60 models."""
_CASES = 3
_LIMIT_S = 900.0
_EXPORT_LIMIT_S = 1800.0
_DECIDED = (0, 1, 3)
"""Exit statuses of a complete check: models that were not generated may fail or have undecided checks."""


class NotMeasurableError(Exception):
    """This machine lacks something that a project needs."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options that apply to all projects."""

    checkouts: Mapping[str, Path]
    corpora: Path  # the folder in which corpora are, or are written
    models: Path | None = None  # a folder of models to use instead of the architectures
    keep: bool = False
    with_pip: bool = False


@dataclass(frozen=True, slots=True)
class Arena:
    """A prepared project, the commands to measure, and a script that runs its locked releases."""

    title: str
    project: Path
    loop: ReleaseLoop
    contestants: tuple[Contestant, ...]


def measure_projects(
    names: tuple[str, ...], options: Options, scratch: Path, repeat: int
) -> tuple[tuple[WorkResult, ...], dict[str, str]]:
    """Measure the full check of each project; return the results, and the reasons for missing results."""
    results, skipped = [], {}
    for name in names:
        folder = scratch / name
        (folder / "project").mkdir(parents=True)
        run(("git", "init", "--quiet"), folder / "project", {}, _LIMIT_S)
        try:
            results.append(_measure(name, PROJECTS[name](folder, options), repeat))
        except NotMeasurableError as error:
            skipped[name] = str(error)
            contests.log_progress(f"{name}: not measured: {error}")
        shutil.rmtree(folder, ignore_errors=True)
    return tuple(results), skipped


def _measure(name: str, arena: Arena, repeat: int) -> WorkResult:
    rows = contests.measure(name, arena.contestants, arena.project, repeat, _LIMIT_S, warm_up=True)
    models = sorted((arena.project / "models").rglob("*.onnx"))
    has_run = all((arena.loop.folder / release.version / "seconds.json").is_file() for release in arena.loop.releases)
    alone = next(row for row in rows if row.name == ALONE)
    return WorkResult(
        name,
        arena.title,
        len(models),
        sum(model.stat().st_size for model in models),
        ALONE,
        rows,
        len(arena.loop.releases),
        arena.loop.own_work_s() if has_run and alone.failure is None else {},
    )


def _quickstart(folder: Path, options: Options) -> Arena:
    """The project of the tutorial: its models are re-exported and compared with their sources."""
    if importlib.util.find_spec("torch") is None:
        raise NotMeasurableError("PyTorch is not installed")
    project = folder / "project"
    shutil.copytree(_QUICKSTART, project, dirs_exist_ok=True)
    _write_samples(project)
    loop = _installed_loop(folder, project, "release.py")
    torch = Contestant(TORCH, (sys.executable, "-c", "import torch"))
    contestants = (*_gates(folder, options), _alone(loop), torch)
    return Arena(f"quickstart, {len(loop.releases)} runtimes", project, loop, contestants)


def _no_sources(folder: Path, options: Options) -> Arena:
    """The models of the quickstart, with environments that are created from cached wheels."""
    project = folder / "project"
    shutil.copytree(_QUICKSTART / "models", project / "models")
    shutil.copyfile(_QUICKSTART / "onnxgate.lock", project / "onnxgate.lock")
    _write_samples(project)
    _write_config(project, _NO_SOURCES_CONFIG)
    _lock(project, "--offline")
    loop = _loop(folder, project, "release.py")
    installers = {"uv": install_by_uv, **({"pip": install_by_pip} if options.with_pip else {})}
    users = [
        Contestant(f"a loop of {name} and a script", loop.command(installer, compares=True), is_peer=True)
        for name, installer in installers.items()
    ]
    contestants = (*_gates(folder, options, cold=True), *users, _alone(loop))
    title = f"quickstart without sources, {len(loop.releases)} runtimes"
    return Arena(title, project, loop, contestants)


def _ensemble(folder: Path, options: Options) -> Arena:
    """The tree ensemble of 200 MB on the oldest and the newest release of the corpora."""
    project = folder / "project"
    (project / "models").mkdir()
    with contests.written(corpora.by_name("ensemble"), options.corpora, keep=options.keep) as corpus:
        for model in (corpus / "models").iterdir():
            _link(model, project / "models" / model.name)
    _write_samples(project)
    _write_config(project, _exact_targets(_ENSEMBLE_RELEASES))
    _lock(project)
    loop = _installed_loop(folder, project, "release.py")
    title = f"tree ensemble of 200 MB, {len(loop.releases)} runtimes"
    return Arena(title, project, loop, (*_gates(folder, options), _alone(loop)))


def _models(folder: Path, options: Options) -> Arena:
    """The architectures, or the user's models, on 5 releases."""
    project = folder / "project"
    if options.models is not None:
        shutil.copytree(options.models, project / "models", copy_function=_link)
        origin = "of the folder"
    elif missing := missing_libraries():
        contests.log_progress(f"models: onnx's own test data, because {', '.join(missing)} is not installed")
        (project / "models").mkdir()
        for name, model in _models_of_onnx():
            _link(model, project / "models" / name)
        origin = "of onnx's test data"
    else:
        architectures = options.corpora.resolve() / "architectures"
        _write_architectures(architectures)
        shutil.copytree(architectures, project / "models", copy_function=_link)
        origin = "exported from Transformers"
    count = sum(1 for _ in (project / "models").rglob("*.onnx"))
    if not count:
        raise NotMeasurableError("the folder of --models contains no .onnx files")
    config = 'models = ["models/**/*.onnx"]\n' + _exact_targets(_MODEL_RELEASES, models=False)
    (project / "onnxgate.toml").write_text(config, encoding="utf-8")
    _lock(project)
    loop = _installed_loop(folder, project, "sessions.py")
    title = f"{count} models {origin}, {len(loop.releases)} runtimes"
    return Arena(title, project, loop, (*_gates(folder, options, accepted=_DECIDED), _alone(loop)))


PROJECTS: dict[str, Callable[[Path, Options], Arena]] = {
    "quickstart": _quickstart,
    "no-sources": _no_sources,
    "ensemble-full": _ensemble,
    "models": _models,
}


def _write_architectures(folder: Path) -> None:
    """Export the missing architectures in a separate process; with `--folder`, later runs reuse them."""
    command = (sys.executable, "-m", "bench.corpora.architectures", str(folder))
    written = run(command, ROOT, {}, _EXPORT_LIMIT_S)
    if written.failed:
        raise NotMeasurableError(f"the architectures cannot be exported: {written.output}")


def _models_of_onnx() -> Iterator[tuple[str, Path]]:
    """Return test models from the onnx package: networks of the model zoo with small weights, then PyTorch models."""
    spec = importlib.util.find_spec("onnx")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "backend" / "test" / "data"
    networks = [path for path in sorted(data.glob("light/*.onnx")) if path.name not in _LONG_TO_LOAD]
    models = [*networks, *sorted(data.glob("pytorch-converted/*/model.onnx"))]
    if len(models) < _MODELS:
        raise NotMeasurableError(f"the installed onnx has only {len(models)} test models; use --models FOLDER")
    for model in models[:_MODELS]:
        yield (model.name if model.parent.name == "light" else f"{model.parent.name}.onnx"), model


def _gates(
    folder: Path, options: Options, *, cold: bool = False, accepted: tuple[int, ...] = (0,)
) -> Iterator[Contestant]:
    """Yield the full checks of each checkout, ordered from an empty to a filled cache."""
    command = (*gate(), "check", "--quiet")
    for name, checkout in options.checkouts.items():
        cache = folder / "caches" / name
        environment = {**at(checkout), "ONNXGATE_CACHE_DIR": str(cache)}
        results = (cache / "results", cache / "static")
        states = [(FULL_COLD, (cache,))] if cold else []
        for state, removes in (*states, (FULL_WARM, results), (FULL_UNCHANGED, ())):
            yield Contestant(f"{name} {state}", command, environment, removes, accepted)


def _alone(loop: ReleaseLoop) -> Contestant:
    return Contestant(ALONE, loop.command())


def _loop(folder: Path, project: Path, script: str) -> ReleaseLoop:
    return ReleaseLoop(folder / "loop", tuple(read_releases(project / "onnxgate.lock")), script)


def _installed_loop(folder: Path, project: Path, script: str) -> ReleaseLoop:
    """Create an environment for each release, and return the script that runs the releases in them."""
    loop = _loop(folder, project, script)
    for release in loop.releases:
        lines = ["set -e", *loop.installation(release, install_by_uv)]
        installed = run(("sh", "-c", "\n".join(lines)), project, {}, _LIMIT_S)
        if installed.failed:
            raise NotMeasurableError(f"onnxruntime {release.version} cannot be installed: {installed.output}")
    return loop


def _exact_targets(releases: tuple[str, ...], *, models: bool = True) -> str:
    head = 'models = ["models/*.onnx"]\n' if models else ""
    return head + "".join(_TARGET.format(number=number, release=name) for number, name in enumerate(releases))


def _write_config(project: Path, config: str) -> None:
    """Write a config that assigns recorded inputs to each model."""
    stems = sorted(path.stem for path in (project / "models").glob("*.onnx"))
    config += "".join(_INPUTS.format(stem=stem) for stem in stems)
    (project / "onnxgate.toml").write_text(config, encoding="utf-8")


def _lock(project: Path, *options: str) -> None:
    locked = run((*gate(), "lock", *options), project, at(ROOT), _LIMIT_S)
    if locked.failed:
        raise NotMeasurableError(f"`onnxgate lock` failed: {locked.output}")


def _link(source: str | Path, target: str | Path) -> None:
    """Create a hard link to a file, or copy it if it is on a different file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _write_samples(project: Path) -> None:
    """Write a few input cases per model: dynamic axes have sizes 1, 2, 3 …, values are random with a fixed seed."""
    from onnxgate.inputs.axis_sizes import DTYPES
    from onnxgate.model.reading.fact_extraction import read_model

    for model in sorted((project / "models").glob("*.onnx")):
        facts = read_model(model, f"models/{model.name}").facts
        folder = project / "samples" / model.stem
        folder.mkdir(parents=True)
        for number in range(_CASES):
            random = np.random.default_rng(number)
            feeds = {}
            for value in facts.inputs:
                shape = [dim if isinstance(dim, int) else 1 + number for dim in value.shape or ()]
                dtype = DTYPES[value.type.removeprefix("tensor(").removesuffix(")")]
                is_float = np.dtype(dtype).kind == "f"
                drawn = random.standard_normal(shape) if is_float else random.integers(0, 2, shape)
                feeds[value.name] = drawn.astype(dtype)
            np.savez(folder / f"{number}.npz", allow_pickle=False, **feeds)
