"""`onnxgate check` without a config: the static stages over every release that there is data of."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from onnxgate import gate, verdict
from onnxgate.cli.matrix_predicted import predicted
from onnxgate.cli.options import CommonOptions
from onnxgate.config.discovery import find_config, find_root
from onnxgate.config.project import MergedSettings, Project, SelectedModel
from onnxgate.config.selection import is_text
from onnxgate.config.types import Config, Select, Target
from onnxgate.errors import UsageError
from onnxgate.findings import Place, Stage, Undone, name_runtimes
from onnxgate.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.matrix import MatrixModel, working_range
from onnxgate.report import LEVELS, Finding, Report
from onnxgate.request import Outcome, Request
from onnxgate.runtimes.store import static_dir
from onnxgate.support import limits

TARGET = "every release"
STAGES = frozenset({Stage.FILE, Stage.SUPPORT})
SCOPE = "no config: predicted from support data, nothing was run"


def judge_files(paths: Sequence[Path], requirement: str | None, options: CommonOptions, *, drawn: bool) -> Report:
    """The file and support stages over files that no config knows, on all measured releases that fit."""
    request = ask(paths, requirement, options)
    outcome = gate.run(request)
    models = predicted(outcome)
    outcome.gathered.undone += _unknown(models, outcome)
    findings = tuple(sorted(_softened(outcome, models), key=lambda finding: LEVELS.index(finding.level)))
    report = verdict.sum_up(request, dataclasses.replace(outcome, findings=findings), options.fail_on, drawn=drawn)
    ranges = (
        f"{model.path}: {working_range(model).sentence}" for model in models if model.path in outcome.gathered.facts
    )
    return msgspec.structs.replace(report, scope=SCOPE, remarks=(*sorted(ranges), *report.remarks), cells=())


def ask(paths: Sequence[Path], requirement: str | None, options: CommonOptions, select: Select = "all") -> Request:
    """What is asked of files that no config knows: what is wrong with each, and which of the releases load it."""
    start = options.start.resolve()
    models = tuple(_models(paths, start))
    runtimes = tuple(_selected(_releases(requirement), select))
    return Request(
        project=_project(start, requirement, models),
        lock=Lock(targets={TARGET: LockedTarget(policy="", runtimes=runtimes)}),
        lock_text="",
        lock_name="",
        models=models,
        stages=STAGES,
        today=datetime.date.min,
        open_host=_no_host,
        jobs=options.jobs,
        static_folder=static_dir,
    )


def _models(paths: Sequence[Path], start: Path) -> Iterator[SelectedModel]:
    if not paths and find_config(start) is not None:
        raise UsageError("`--target` is for models that are named", hint="name them; without it the config counts")
    if not paths:
        hint = "name the models to check, or run `onnxgate init`"
        raise UsageError("there is no `onnxgate.toml` here or above", hint=hint)
    named: set[str] = set()
    for path in paths:
        absolute = start / path
        if not absolute.exists():
            raise UsageError(f"`{path}` does not exist")
        files = sorted(_below(absolute)) if absolute.is_dir() else [absolute]
        if not files:
            raise UsageError(f"there is no `.onnx` file in `{path}`")
        for file in files:
            shown = file.relative_to(start).as_posix() if file.is_relative_to(start) else file.as_posix()
            if not is_text(shown):
                raise UsageError(f"the name of `{shown}` is not UTF-8", hint="rename it")
            if shown not in named:  # by a folder and by itself, say
                named.add(shown)
                yield SelectedModel(shown, file, MergedSettings(targets=(TARGET,)), Place(shown))


def _below(folder: Path) -> Iterator[Path]:
    """The models below a folder, but for those in hidden folders: environments have thousands of their own."""
    for file in folder.rglob("*.onnx"):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts[:-1]):
            yield file


def _selected(runtimes: Iterable[LockedRuntime], select: Select) -> Iterator[LockedRuntime]:
    """What `select` takes of them, as it does of a target's."""
    ascending = list(runtimes)
    if select != "all":
        newest = {".".join(runtime.release.split(".")[:2]): runtime for runtime in ascending}
        ascending = list(newest.values())
    match select:
        case "newest":
            yield from ascending[-1:]
        case "bounds":
            yield from {each.release: each for each in (ascending[0], ascending[-1])}.values()
        case _:
            yield from ascending


def _releases(requirement: str | None) -> Iterator[LockedRuntime]:
    from packaging.requirements import InvalidRequirement, Requirement

    engine = limits.table().engine
    try:
        asked = Requirement(requirement or engine)
    except InvalidRequirement as error:
        hint = "write it as in `onnxruntime>=1.18,<1.32`"
        raise UsageError(f"`{requirement}` is no requirement", hint=hint) from error
    if asked.name != engine:
        raise UsageError(f"there is no data on `{asked.name}`", hint=f"engines with data: {engine}")
    fitting = [release for release in limits.table().releases if asked.specifier.contains(release)]
    if not fitting:
        raise UsageError(f"no release that there is data of fits `{requirement}`")
    for release in fitting:
        yield LockedRuntime(engine=engine, release=release, python="", packages=())


def _project(start: Path, requirement: str | None, models: Sequence[SelectedModel]) -> Project:
    """A project of just these models, whether or not git tracks them."""
    target = Target(runtime=requirement or limits.table().engine, select="all")
    config = Config(targets={TARGET: target})
    listing = tuple(sorted(model.path for model in models))
    root = find_root(start) or start
    return Project(start / "onnxgate.toml", start, root, config, lines={}, _listing=listing)


def _no_host() -> NoReturn:
    raise AssertionError("the static stages start no process")


def _unknown(models: Sequence[MatrixModel], outcome: Outcome) -> Iterator[Undone]:
    """A model that no release is known to load, and the newest may: no verdict."""
    for model in models:
        if model.path not in outcome.blocked and model.outcome == "unknown":
            every = [entry.runtime for entry in model.runtimes]
            reason = f"whether it loads on {name_runtimes(model.on('unknown'), every)} cannot be told"
            yield Undone(Stage.SUPPORT, model.path, "", reason, "`onnxgate matrix --verify` really loads it there")


def _softened(outcome: Outcome, models: Sequence[MatrixModel]) -> Iterator[Finding]:
    """Nothing was promised: what a release refuses is an error where the newest one does, and no other loads the model.

    That operators are not predicted on old releases is said beside each model that it leaves open.
    """
    refused = {model.path: model.runtimes[-1].runtime for model in models if model.outcome == "refused"}
    for finding in outcome.findings:
        if finding.stage != Stage.SUPPORT.value or refused.get(finding.model, "") in finding.runtimes:
            yield finding
        elif finding.model:
            yield msgspec.structs.replace(finding, level="note", fix="")
