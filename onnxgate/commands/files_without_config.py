"""Check models without a config: predict from support data which releases can load them."""

from __future__ import annotations

import datetime
import functools
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from onnxgate.commands.advice_without_config import advise_without_config
from onnxgate.commands.known_releases import find_known_releases
from onnxgate.commands.matrix_prediction import predict_matrix
from onnxgate.core.errors import UsageError
from onnxgate.core.findings import IncompleteCheck, Level, Place, Stage
from onnxgate.core.matrix import (
    Entry,
    Matrix,
    MatrixModel,
    build_matrix,
    describe_missing_data,
    describe_scope,
    describe_working_range,
    list_load_failures,
    name_releases,
)
from onnxgate.core.report import LEVELS, FailOn, Finding, Report
from onnxgate.core.text import quote_path
from onnxgate.gate import pipeline
from onnxgate.gate.request import (
    Checkout,
    GateOutcome,
    GateRequest,
    IgnorePolicy,
    Selection,
    StaticSettings,
    describe_acceptance,
)
from onnxgate.gate.results.target_advice import suggest_target_changes
from onnxgate.gate.results.verdict import build_report
from onnxgate.project.config.loader import find_config
from onnxgate.project.config.project import MergedSettings, Project, SelectedModel, is_utf8_name, suggest_file
from onnxgate.project.config.schema import Config, ReleaseSelection, Target
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.lock.releases import apply_selection
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.runtimes.environments.storage import static_dir
from onnxgate.support import limits

ALL_RELEASES = "every release"


class FileCheck(msgspec.Struct, frozen=True):
    """The report of a check without a config, and the matrix with the same verdict."""

    report: Report
    matrix: Matrix


Verify = Callable[[tuple[MatrixModel, ...]], tuple[MatrixModel, ...]]
"""Function that loads models on the releases and returns them with the results."""


DATA_OUTSIDE = "was not loaded: its external data is outside the model's folder, and the sandbox denies access to it"


def check_files(
    request: GateRequest, fail_on: FailOn, *, drawn: bool, target: str | None = None, verify: Verify | None = None
) -> FileCheck:
    """Run the file and support stages on model files, for all releases in a request from `make_request`.

    With the requirement `target`, each model has to load on all releases. Without it, a model fails if no release loads
    it and the newest release refuses it.
    """
    outcome = pipeline.run(request)
    models = predict_matrix(outcome)
    escaping: set[str] = set()
    if verify is not None:  # a runtime refuses a pointer, but perhaps not the model; the sandbox hides data outside
        escaping = {it.model for it in outcome.findings if it.rule == "external-data-escapes"}
        not_loadable = {it.model for it in outcome.gathered.file.undone if "git lfs pull" in it.hint} | escaping
        loaded = {it.path: it for it in verify(tuple(it for it in models if it.path not in not_loadable))}
        models = tuple(loaded.get(model.path, model) for model in models)
    unchecked = outcome.gathered.unchecked
    undone = (
        *unchecked.undone,
        *_find_undecided_models(models, outcome, target, is_verified=verify is not None),
        *_find_unverified(models),
        *(IncompleteCheck(Stage.RUNTIME, path, "", DATA_OUTSIDE) for path in sorted(escaping)),
    )
    gathered = msgspec.structs.replace(outcome.gathered, unchecked=msgspec.structs.replace(unchecked, undone=undone))
    runtimes = {model.path: model.runtimes for model in models}
    findings = [
        *map(functools.partial(_lower_accepted, runtimes=runtimes), _drop_contradicted(outcome.findings, models)),
        *(it for model in models for it in list_load_failures(model)),
    ]
    if target is None:
        findings = list(_soften_findings(findings, models))
    findings = advise_without_config(findings, outcome, request, target)
    findings.sort(key=lambda finding: LEVELS.index(finding.level))
    outcome = msgspec.structs.replace(outcome, gathered=gathered, findings=tuple(findings))
    report = build_report(request, outcome, fail_on, drawn=drawn)
    report = report if target is None else suggest_target_changes(report, gathered.judged)
    if target is None and (missing_data := describe_missing_data(models)):
        report = msgspec.structs.replace(report, remarks=(*report.remarks, missing_data))
    ranges = (
        f"{model.path}: {describe_working_range(model, required=target is not None).sentence}"
        for model in models
        if model.path in outcome.gathered.facts
    )
    matrix = build_matrix(models, report)
    remarks = (*sorted(ranges), *report.remarks)
    report = msgspec.structs.replace(report, scope=describe_scope(models), remarks=remarks, cells=())
    return FileCheck(report, matrix)


def make_request(
    paths: Sequence[Path],
    requirement: str | None,
    start: Path,
    jobs: int,
    select: ReleaseSelection = "all",
    *,
    example: str = "onnxgate check .",
) -> GateRequest:
    """Return the request to check files on all releases that have support data and match the requirement.

    `example` is a command for the hint if `paths` is empty.
    """
    start = start.resolve()
    models = tuple(_select_models(paths, start, example))
    engine, releases = find_known_releases(requirement)
    runtimes = tuple(LockedRuntime(engine=engine, release=it, python="", packages=()) for it in releases)
    if select != "all":
        runtimes = tuple({tuple(runtime.release.split(".")[:2]): runtime for runtime in runtimes}.values())
    target = Target(runtime=requirement or limits.load_limit_table().engine, select="all")
    listing = tuple(sorted(model.path for model in models))  # only these, even if git does not track them
    config, root = Config(targets={ALL_RELEASES: target}), find_git_root(start) or start
    return GateRequest(
        checkout=Checkout(
            project=Project(start / "onnxgate.toml", start, root, config, lines={}, _listing=listing),
            lock=Lock(targets={ALL_RELEASES: LockedTarget(policy="", runtimes=apply_selection(runtimes, select))}),
            lock_text="",
            lock_name="",
            models=models,
        ),
        selection=Selection(frozenset({Stage.FILE, Stage.SUPPORT})),
        ignores=IgnorePolicy(datetime.date.min),
        open_host=open_no_pool,
        static=StaticSettings(jobs, static_dir),
    )


def open_no_pool() -> NoReturn:
    """Raise an `AssertionError`, because the static stages must not start worker processes."""
    raise AssertionError("the static stages start no process")


def _select_models(paths: Sequence[Path], start: Path, example: str) -> Iterator[SelectedModel]:
    if not paths and find_config(start) is not None:
        hint = "specify the models, or omit `--target` to check the models in the config"
        raise UsageError("`--target` requires paths to models", hint=hint)
    if not paths:
        hint = f"specify models or folders, such as `{example}`, or run `onnxgate init`"
        raise UsageError("there is no `onnxgate.toml` in this folder or its parents", hint=hint)
    named: set[str] = set()
    for path in paths:
        absolute = start / path
        if absolute.is_symlink() and not absolute.exists():
            raise UsageError(f"`{path}` is a symbolic link to a file that does not exist")
        if not absolute.exists():
            raise UsageError(f"`{path}` does not exist", hint=suggest_file(absolute, str(path)))
        files = [absolute]
        if absolute.is_dir():  # without hidden folders: the `onnx` package in a `.venv` contains thousands of models
            below = [(file, file.relative_to(absolute).parts[:-1]) for file in sorted(absolute.rglob("*.onnx"))]
            files = [file for file, folders in below if not any(part.startswith(".") for part in folders)]
        if not files:
            raise UsageError(f"`{path}` contains no `.onnx` file")
        for file in files:
            shown = file.relative_to(start).as_posix() if file.is_relative_to(start) else file.as_posix()
            if not is_utf8_name(shown):
                raise UsageError(f"the name of `{shown}` is not valid UTF-8", hint="rename it")
            if shown not in named:  # a file may be named twice: by its folder, and directly
                named.add(shown)
                yield SelectedModel(shown, file, MergedSettings(targets=(ALL_RELEASES,)), Place(shown))


def _find_undecided_models(
    models: Sequence[MatrixModel], outcome: GateOutcome, target: str | None, *, is_verified: bool
) -> Iterator[IncompleteCheck]:
    """Yield an undecided check for each model whose verdict depends on releases without a prediction.

    Models with an error in the file stage are skipped: they fail. Git LFS pointers are already undecided.
    """
    errors = {it.hit.model for it in outcome.gathered.judged if it.stage is Stage.FILE and it.level is Level.ERROR}
    errors |= {it.model for it in outcome.gathered.undone if it.stage is Stage.FILE}  # such as an unreadable file
    for model in models:
        undecided = model.rate(required=target is not None) == "undecided" or (
            target is not None and model.on("unknown")
        )
        if model.path in outcome.blocked or model.path in errors or not undecided:
            continue
        runtimes = name_releases(model.on("unknown"), [entry.runtime for entry in model.runtimes])
        required = f" --target {shlex.quote(target)}" if target else ""
        hint = f"run `onnxgate matrix --verify{required} {quote_path(model.path)}` to load the model on each release"
        if is_verified:
            yield IncompleteCheck(Stage.RUNTIME, model.path, "", f"could not be run on {runtimes}")
        else:
            yield IncompleteCheck(Stage.SUPPORT, model.path, "", f"could not be predicted on {runtimes}", hint)


def _find_unverified(models: Sequence[MatrixModel]) -> Iterator[IncompleteCheck]:
    """Yield an undecided check for each attempt to load a model that timed out or could not be run."""
    for entry in (entry for model in models for entry in model.runtimes):
        if entry.observed in ("unavailable", "timed-out"):
            yield IncompleteCheck(Stage.RUNTIME, "", entry.runtime, entry.error)


def _drop_contradicted(findings: Sequence[Finding], models: Sequence[MatrixModel]) -> Iterator[Finding]:
    """Remove from each finding the releases that were observed to load the model.

    Findings without other releases are dropped.

    A finding that names no releases predicts a failure on all releases.
    """
    entries = {
        model.path: [(entry, {reason.rule for reason in entry.reasons}) for entry in model.runtimes] for model in models
    }
    for finding in findings:
        concerned = [entry for entry, rules in entries.get(finding.model, ()) if finding.rule in rules]
        loading = {entry.runtime for entry in concerned if entry.contradicted and entry.state == "loads"}
        predicted = finding.runtimes or tuple(entry.runtime for entry in concerned)
        remaining = tuple(name for name in predicted if name not in loading)
        if not loading:
            yield finding
        elif remaining:
            yield msgspec.structs.replace(finding, runtimes=remaining if finding.runtimes else ())


def _lower_accepted(finding: Finding, runtimes: Mapping[str, Sequence[Entry]]) -> Finding:
    """Make an error about an invalid file a warning if releases load it, and all others have another reason."""
    if finding.rule != "invalid-model" or finding.level != "error":
        return finding
    entries = runtimes.get(finding.model, ())
    loading = [entry.runtime for entry in entries if entry.observed == "loads"]
    if not loading or not all(entry.observed == "loads" or entry.predicted == "refused" for entry in entries):
        return finding
    accepted = describe_acceptance(loading, [entry.runtime for entry in entries])
    return msgspec.structs.replace(finding, level="warning", message=f"{finding.message}; {accepted}")


def _soften_findings(findings: Sequence[Finding], models: Sequence[MatrixModel]) -> Iterator[Finding]:
    """Downgrade findings of the support stage to notes.

    Findings about the newest release are kept for models that no release loads.
    """
    refused = {model.path: model.runtimes[-1].runtime for model in models if model.outcome == "refused"}
    for finding in findings:
        if finding.stage == Stage.FILE.value or refused.get(finding.model, "") in finding.runtimes:
            yield finding
        elif finding.model:
            yield msgspec.structs.replace(finding, level="note", fix="")
