"""`onnxgate check` without a config: the static stages on every release that has support data."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from onnxgate.core.errors import UsageError
from onnxgate.core.findings import IncompleteCheck, Level, Place, RuleHit, Stage, name_runtimes
from onnxgate.core.matrix import NO_KERNELS, Entry, MatrixModel, Predicted, Reason, describe_working_range
from onnxgate.core.report import LEVELS, FailOn, Finding, Report
from onnxgate.gate import pipeline
from onnxgate.gate.request import Checkout, GateOutcome, GateRequest, IgnorePolicy, Selection, StaticSettings
from onnxgate.gate.results.resolution import resolve_hits
from onnxgate.gate.results.verdict import build_report
from onnxgate.project.config.loader import find_config
from onnxgate.project.config.project import MergedSettings, Project, SelectedModel, is_utf8_name
from onnxgate.project.config.schema import Config, ReleaseSelection, Target
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.lock.releases import apply_selection
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.project.plan import PlannedModel
from onnxgate.runtimes.environments.storage import static_dir
from onnxgate.support import limits

ALL_RELEASES = "every release"
PREDICTED_STAGES = frozenset({Stage.FILE, Stage.SUPPORT})
PREDICTION_SCOPE = "no config: predicted from support data, nothing was run"


def check_files(request: GateRequest, fail_on: FailOn, *, drawn: bool) -> Report:
    """Check files without a config by the file and support stages, on all measured releases that fit.

    `request` is one of `make_request`.
    """
    outcome = pipeline.run(request)
    models = predict_matrix(outcome)
    unchecked = outcome.gathered.unchecked
    undone = (*unchecked.undone, *_find_undecided_models(models, outcome))
    gathered = msgspec.structs.replace(outcome.gathered, unchecked=msgspec.structs.replace(unchecked, undone=undone))
    outcome = msgspec.structs.replace(outcome, gathered=gathered)
    findings = tuple(sorted(_soften_findings(outcome, models), key=lambda finding: LEVELS.index(finding.level)))
    report = build_report(request, msgspec.structs.replace(outcome, findings=findings), fail_on, drawn=drawn)
    ranges = (
        f"{model.path}: {describe_working_range(model).sentence}"
        for model in models
        if model.path in outcome.gathered.facts
    )
    return msgspec.structs.replace(report, scope=PREDICTION_SCOPE, remarks=(*sorted(ranges), *report.remarks), cells=())


def make_request(
    paths: Sequence[Path], requirement: str | None, start: Path, jobs: int, select: ReleaseSelection = "all"
) -> GateRequest:
    """Return the request to check files without a config against all releases that fit the requirement."""
    start = start.resolve()
    models = tuple(_select_models(paths, start))
    runtimes = tuple(_find_releases(requirement))
    if select != "all":
        runtimes = tuple({tuple(runtime.release.split(".")[:2]): runtime for runtime in runtimes}.values())
    target = Target(runtime=requirement or limits.load_limit_table().engine, select="all")
    listing = tuple(sorted(model.path for model in models))  # these only, also if git does not track them
    config, root = Config(targets={ALL_RELEASES: target}), find_git_root(start) or start
    return GateRequest(
        checkout=Checkout(
            project=Project(start / "onnxgate.toml", start, root, config, lines={}, _listing=listing),
            lock=Lock(targets={ALL_RELEASES: LockedTarget(policy="", runtimes=apply_selection(runtimes, select))}),
            lock_text="",
            lock_name="",
            models=models,
        ),
        selection=Selection(PREDICTED_STAGES),
        ignores=IgnorePolicy(datetime.date.min),
        open_host=open_no_pool,
        static=StaticSettings(jobs, static_dir),
    )


def open_no_pool() -> NoReturn:
    """Raise an error: the static stages start no process."""
    raise AssertionError("the static stages start no process")


def _select_models(paths: Sequence[Path], start: Path) -> Iterator[SelectedModel]:
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
        files = [absolute]
        if absolute.is_dir():  # without hidden folders: environments have thousands of models of their own
            below = [(file, file.relative_to(absolute).parts[:-1]) for file in sorted(absolute.rglob("*.onnx"))]
            files = [file for file, folders in below if not any(part.startswith(".") for part in folders)]
        if not files:
            raise UsageError(f"there is no `.onnx` file in `{path}`")
        for file in files:
            shown = file.relative_to(start).as_posix() if file.is_relative_to(start) else file.as_posix()
            if not is_utf8_name(shown):
                raise UsageError(f"the name of `{shown}` is not UTF-8", hint="rename it")
            if shown not in named:  # by a folder and by itself, say
                named.add(shown)
                yield SelectedModel(shown, file, MergedSettings(targets=(ALL_RELEASES,)), Place(shown))


def _find_releases(requirement: str | None) -> Iterator[LockedRuntime]:
    engine = limits.load_limit_table().engine
    try:
        parsed = Requirement(requirement or engine)
    except InvalidRequirement as error:
        hint = "write it as in `onnxruntime>=1.18,<1.32`"
        raise UsageError(f"`{requirement}` is no requirement", hint=hint) from error
    if parsed.name != engine:
        raise UsageError(f"there is no data on `{parsed.name}`", hint=f"engines with data: {engine}")
    fitting = [release for release in limits.load_limit_table().releases if parsed.specifier.contains(release)]
    if not fitting:
        raise UsageError(f"no release that there is data of fits `{requirement}`")
    for release in fitting:
        yield LockedRuntime(engine=engine, release=release, python="", packages=())


def _find_undecided_models(models: Sequence[MatrixModel], outcome: GateOutcome) -> Iterator[IncompleteCheck]:
    """Yield models that no release is known to load, although the newest may: they have no verdict."""
    for model in models:
        if model.path not in outcome.blocked and model.outcome == "unknown":
            runtimes = name_runtimes(model.on("unknown"), [entry.runtime for entry in model.runtimes])
            reason = f"whether it loads on {runtimes} cannot be told"
            hint = "`onnxgate matrix --verify` really loads it there"
            yield IncompleteCheck(Stage.SUPPORT, model.path, "", reason, hint)


def _soften_findings(outcome: GateOutcome, models: Sequence[MatrixModel]) -> Iterator[Finding]:
    """Lower findings of the support stage to notes, unless the newest release and all others refuse the model.

    The text about each model names the releases on which its operators are not predicted.
    """
    refused = {model.path: model.runtimes[-1].runtime for model in models if model.outcome == "refused"}
    for finding in outcome.findings:
        if finding.stage != Stage.SUPPORT.value or refused.get(finding.model, "") in finding.runtimes:
            yield finding
        elif finding.model:
            yield msgspec.structs.replace(finding, level="note", fix="")


REFUSING_RULES = frozenset({"not-a-model", "lfs-pointer", "external-data-missing"})
"""Rules of the file stage that exclude every release."""
UNCERTAIN_RULES = ("invalid-model", "external-data-corrupt", "external-data-escapes")
"""Rules whose effect depends on the release, and is not predicted; the first one is the first reason."""
VERSION_RULES = ("ir-version-too-new", "opset-too-new", "opset-experimental")
"""Rules whose reasons come before others."""


def predict_matrix(outcome: GateOutcome) -> tuple[MatrixModel, ...]:
    """Return every model with its prediction for every release, in order."""
    hits = outcome.gathered.judged
    causes = {id(resolve_hit.judged) for resolve_hit in resolve_hits(hits)}
    by_model: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        by_model.setdefault(rule_hit.hit.model, []).append(rule_hit)
    return tuple(
        MatrixModel(
            path=planned.path,
            runtimes=tuple(_predict_entries(outcome, planned, by_model.get(planned.path, ()), causes)),
        )
        for planned in outcome.planned
    )


def _predict_entries(
    outcome: GateOutcome, planned: PlannedModel, hits: Sequence[RuleHit], causes: set[int]
) -> Iterator[Entry]:
    errors = [rule_hit for rule_hit in hits if rule_hit.stage is Stage.FILE and rule_hit.level is Level.ERROR]
    refused = _select_reasons([error for error in errors if error.rule in REFUSING_RULES], causes)
    doubtful = (
        *_select_reasons([error for rule in UNCERTAIN_RULES for error in errors if error.rule == rule], causes),
        *(  # the file could not be read
            Reason(rule="", node="", message=undone.reason)
            for undone in outcome.gathered.undone
            if undone.model == planned.path
        ),
    )
    by_runtime: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        if rule_hit.stage is Stage.SUPPORT:
            by_runtime.setdefault(rule_hit.hit.runtime, []).append(rule_hit)
    for runtime in planned.runtimes:
        runtime_hits = by_runtime.get(runtime.name, [])
        reasons = refused or _select_reasons(
            [rule_hit for rule_hit in runtime_hits if rule_hit.level is Level.ERROR], causes
        )
        if reasons:
            yield Entry(runtime=runtime.name, predicted="refused", reasons=reasons)
        elif doubtful:
            yield Entry(runtime=runtime.name, predicted="unknown", reasons=doubtful)
        else:  # from the support tables, which is possible only if the kernels are known
            verdict: Predicted = outcome.gathered.support.verdicts.get((planned.path, runtime.name), "unknown")
            reasons = () if verdict == "loads" else _unique_reasons(runtime_hits) or (NO_KERNELS,)
            yield Entry(runtime=runtime.name, predicted=verdict, reasons=reasons)


def _select_reasons(hits: Sequence[RuleHit], causes: set[int]) -> tuple[Reason, ...]:
    """Return each reason once, without those that only follow from another one."""
    return _unique_reasons([rule_hit for rule_hit in hits if id(rule_hit) in causes] or hits)


def _unique_reasons(hits: Sequence[RuleHit]) -> tuple[Reason, ...]:
    reasons = (
        Reason(
            rule=rule_hit.rule,
            node=rule_hit.hit.node,
            message=rule_hit.hit.message,
            detail=rule_hit.hit.on.detail if rule_hit.hit.on else "",
        )
        for rule_hit in sorted(hits, key=_reason_rank)
    )
    return tuple(dict.fromkeys(reasons))


def _reason_rank(rule_hit: RuleHit) -> int:
    return VERSION_RULES.index(rule_hit.rule) if rule_hit.rule in VERSION_RULES else len(VERSION_RULES)
