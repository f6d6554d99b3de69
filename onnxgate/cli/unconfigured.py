"""`onnxgate check` without a config: the static stages over every release that there is data of."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from onnxgate import gate, verdict
from onnxgate.cli.options import CommonOptions
from onnxgate.config.discovery import find_root
from onnxgate.config.project import MergedSettings, Project, SelectedModel
from onnxgate.config.selection import is_text
from onnxgate.config.types import Config, Target
from onnxgate.errors import UsageError
from onnxgate.findings import Place, Stage, name_runtimes
from onnxgate.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.model.facts import ModelFacts
from onnxgate.report import Finding, Report
from onnxgate.support import limits

TARGET = "every release"
STAGES = frozenset({Stage.FILE, Stage.SUPPORT})
SCOPE = "no config: nothing was run, and operators and types were not judged"


def judge_files(paths: Sequence[Path], requirement: str | None, options: CommonOptions) -> Report:
    """The file and support stages over files that no config knows, on all measured releases that fit."""
    start = options.start.resolve()
    models = tuple(_models(paths, start))
    lock = Lock(targets={TARGET: LockedTarget(policy="", runtimes=tuple(_releases(requirement)))})
    request = gate.Request(
        project=_project(start, requirement, models),
        lock=lock,
        lock_text="",
        lock_name="",
        models=models,
        stages=STAGES,
        today=datetime.date.min,
        open_host=_no_host,
    )
    outcome = gate.run(request)
    facts = outcome.gathered.facts
    takers = {path: _takers(each, lock) for path, each in facts.items()}
    findings = tuple(_softened(finding, takers) for finding in outcome.findings)
    report = verdict.sum_up(request, dataclasses.replace(outcome, findings=findings), options.fail_on)
    remarks = (*(_remark(facts[path], takers[path], lock) for path in sorted(takers)), *report.remarks)
    return msgspec.structs.replace(report, scope=SCOPE, remarks=remarks, cells=())


def _models(paths: Sequence[Path], start: Path) -> Iterator[SelectedModel]:
    if not paths:
        hint = "name the models to check, or run `onnxgate init`"
        raise UsageError("there is no `onnxgate.toml` here or above", hint=hint)
    for path in paths:
        absolute = start / path
        if not absolute.exists():
            raise UsageError(f"`{path}` does not exist")
        files = sorted(absolute.rglob("*.onnx")) if absolute.is_dir() else [absolute]
        if not files:
            raise UsageError(f"there is no `.onnx` file in `{path}`")
        for file in files:
            shown = file.relative_to(start).as_posix() if file.is_relative_to(start) else file.as_posix()
            if not is_text(shown):
                raise UsageError(f"the name of `{shown}` is not UTF-8", hint="rename it")
            yield SelectedModel(shown, file, MergedSettings(targets=(TARGET,)), Place(shown))


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


def _takers(facts: ModelFacts, lock: Lock) -> tuple[str, ...]:
    """Names of the releases that take the model's stamps."""
    return tuple(
        runtime.name
        for runtime in lock.targets[TARGET].runtimes
        if (known := limits.limits_of(runtime.release)) and limits.loads(known, facts.ir_version, facts.needed_opsets)
    )


def _softened(finding: Finding, takers: dict[str, tuple[str, ...]]) -> Finding:
    """What some releases refuse is a note as long as others take the model: nothing was promised."""
    if finding.stage == Stage.SUPPORT.value and takers.get(finding.model):
        return msgspec.structs.replace(finding, level="note", fix="")
    return finding


def _remark(facts: ModelFacts, takers: Sequence[str], lock: Lock) -> str:
    opsets = ", ".join(f"{domain} {version}" for domain, version in sorted(facts.needed_opsets.items()))
    stamps = f"{facts.path}: IR version {facts.ir_version} and opsets {opsets}"
    if not takers:
        return f"{stamps} are taken by none of {len(lock.targets[TARGET].runtimes)} releases"
    every = [runtime.name for runtime in lock.targets[TARGET].runtimes]
    return f"{stamps} are taken by {name_runtimes(takers, every)}"
