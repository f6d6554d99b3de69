"""Verdict and report of an outcome, and the commands that reproduce its findings."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from onnxgate import __version__
from onnxgate.core.findings import ALL_STAGES, UNDECIDED_RULE, IncompleteCheck, RuleHit, Stage
from onnxgate.core.jobs import InputCase
from onnxgate.core.report import (
    LEVELS,
    Against,
    Cell,
    CellState,
    FailOn,
    Finding,
    NotDone,
    Replay,
    Report,
    ReportedModel,
    Verdict,
)
from onnxgate.core.text import join_command
from onnxgate.evidence.parity import Comparison
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.model.subgraphs.node_context import draw_named_nodes
from onnxgate.project.plan import locked_runtimes, report_runtime


def decide_verdict(findings: Iterable[Finding], undecided: bool, fail_on: FailOn) -> tuple[Verdict, int]:
    """Return the verdict and the exit status.

    A finding at or above the level `fail_on` fails the check (status 1), even if other checks are undecided (3).
    """
    closing = {"error": LEVELS[:1], "warning": LEVELS[:2], "never": ()}[fail_on]
    if any(finding.level in closing and not finding.ignored for finding in findings):
        return "fail", 1
    return ("undecided", 3) if undecided else ("pass", 0)


def build_report(request: GateRequest, outcome: GateOutcome, fail_on: FailOn, *, drawn: bool = True) -> Report:
    """Build the report of one check. With `drawn`, read the models again and add graph drawings."""
    gathered, revision, project = outcome.gathered, request.baseline.revision, request.project
    verdict, exit_status = decide_verdict(outcome.findings, bool(outcome.undecided), fail_on)
    folder = project.folder.resolve().relative_to(project.root.resolve()).as_posix()
    used = {runtime.runtime for model in outcome.planned for runtime in model.runtimes}
    sha256s = {path: facts.sha256 for path, facts in gathered.facts.items()}
    files = {model.path: model.absolute for model in request.models}
    return Report(
        onnxgate=__version__,
        verdict=verdict,
        exit=exit_status,
        folder="" if folder == "." else folder,
        scope=_describe_scope(request),
        stages=tuple(stage.value for stage in ALL_STAGES if stage in request.stages),
        models=tuple(ReportedModel(path=it.path, sha256=sha256s.get(it.path, "")) for it in outcome.planned),
        runtimes=tuple(report_runtime(*it) for it in locked_runtimes(project, request.lock) if it[2] in used),
        cells=tuple(_cells(request, outcome)),
        findings=outcome.findings,
        undecided=report_undone(outcome.undecided),
        skipped=report_undone(gathered.skipped),
        measured=tuple(sorted(gathered.execution.step.measured, key=lambda row: row.model)),
        counts=_counts(outcome),
        replays=select_shown_replays(gathered.execution.replays, outcome.findings),
        remarks=tuple(sorted(set(gathered.remarks))),
        against=Against(name=revision.name, commit=revision.commit) if revision is not None else None,
        changes=gathered.change.changes,
        drawings=draw_named_nodes(outcome.findings, files) if drawn else (),
        fail_on=fail_on,
    )


def report_undone(undone: Iterable[IncompleteCheck]) -> tuple[NotDone, ...]:
    """Convert incomplete checks to sorted report entries without duplicates."""
    parts = (
        NotDone(
            stage=it.stage.value,
            model=it.model,
            runtime=it.runtime,
            reason=it.reason,
            hint=it.hint,
            fingerprint=it.fingerprint,
        )
        for it in dict.fromkeys(undone)
    )
    return tuple(sorted(parts, key=lambda part: (part.model, part.stage, part.runtime, part.reason)))


def _describe_scope(request: GateRequest) -> str:
    """Describe the stages, models and cases that were not selected."""
    if request.share is None:
        return "; ".join(describe_left_out(request, len(request.models)))
    others = len(request.share.all_models) - len(request.models)
    models = f"{others} models" if others > 1 else "1 model"
    scope = f"{request.share}: {models} in other shards" if others else f"{request.share} with all models"
    return "; ".join([scope, *describe_left_out(request, len(request.share.all_models))])


def describe_left_out(request: GateRequest, models: int) -> list[str]:
    """List the stages, models, cases and comparisons that a check of `models` models skips."""
    left_out = [stage.value for stage in ALL_STAGES if stage not in request.stages]
    parts = [] if models else ["the paths select no model"]
    parts += [f"skipped stages: {', '.join(left_out)}"] if left_out else []
    others = len(request.project.models()) - models
    if others > 0:
        parts.append(f"{others} model{'s' if others > 1 else ''} not selected")
    if request.selection.inputs.cases:
        parts.append("other input cases not selected")
    if request.baseline.is_disabled:
        parts.append("no baseline (`--against none`)")
    return parts


def _cells(request: GateRequest, outcome: GateOutcome) -> Iterator[Cell]:
    findings: dict[str, list[Finding]] = {}
    for finding in outcome.findings:
        findings.setdefault(finding.model, []).append(finding)
    for planned in outcome.planned:
        for runtime in planned.runtimes:
            pair = (planned.path, runtime.name)
            yield Cell(
                model=planned.path,
                runtime=runtime.name,
                state=_cell_state(request, outcome, *pair, findings.get(planned.path, ())),
                compared=pair in outcome.gathered.execution.compared,
            )


def _cell_state(
    request: GateRequest, outcome: GateOutcome, model: str, runtime: str, findings: Sequence[Finding]
) -> CellState:
    """Return the state of a model on a runtime.

    `findings` are the findings about the model; a finding without runtimes applies to all runtimes. An ignored error
    and an ignored undecided check count as a warning.
    """
    gathered, pair = outcome.gathered, (model, runtime)
    concerned = [finding for finding in findings if not finding.runtimes or runtime in finding.runtimes]
    if any(finding.level == "error" and not finding.ignored for finding in concerned):
        return "fail"
    if model in outcome.blocked or pair in outcome.failed:
        return "fail"
    has_ran = pair in gathered.execution.ran
    is_faulty = any((runs.model, runs.runtime) == pair for runs in gathered.execution.faulty)
    # A missing comparison does not change the state on a runtime where the model loaded and all cases ran.
    stages = {Stage.RUNTIME} if has_ran and not is_faulty else {Stage.RUNTIME, Stage.PARITY}
    is_run = Stage.RUNTIME in request.stages
    if is_run and any(_is_undone_for(it, *pair, stages) for it in outcome.undecided):
        return "undecided"
    if not has_ran and any(_is_undone_for(it, *pair, stages) for it in gathered.skipped):
        return "skipped"
    is_accepted = is_run and any(_is_undone_for(it, *pair, stages) for it in gathered.undone)
    if is_accepted or any(finding.level != "note" and finding.rule != UNDECIDED_RULE for finding in concerned):
        return "warning"
    if is_faulty:
        return "undecided"
    if has_ran:
        return "pass"
    if Stage.SUPPORT not in request.stages:
        return "not selected"
    has_verdict = gathered.support.verdicts.get(pair, "unknown") != "unknown"
    return "predicted" if has_verdict else "not predicted"


def _is_undone_for(undone: IncompleteCheck, model: str, runtime: str, stages: Collection[Stage]) -> bool:
    is_concerned = undone.model in ("", model) and undone.runtime in ("", runtime)
    return undone.prevents_run and undone.stage in stages and is_concerned


def _counts(outcome: GateOutcome) -> dict[str, int]:
    gathered = outcome.gathered
    shown = [finding for finding in outcome.findings if not finding.ignored]
    return {
        **{f"{level}s": sum(finding.level == level for finding in shown) for level in LEVELS},
        "ignored": len(outcome.findings) - len(shown),
        "models": len(outcome.planned),
        "runtimes": len({runtime.name for model in outcome.planned for runtime in model.runtimes}),
        "without_source": sum(not model.model.settings.is_exported for model in outcome.planned),
        "undecided": len(report_undone(outcome.undecided)),
        "skipped": len(report_undone(gathered.skipped)),
        "ran": len(gathered.execution.ran),
        "compared": len(gathered.execution.compared),
        "reused": len(gathered.execution.reused),
    }


# Reproduction

ApplyRules = Callable[[Iterable[object]], Iterable[RuleHit]]

DEFAULT_CONFIGS = ("onnxgate.toml", "pyproject.toml")
"""Names of configs that are found without `--config`."""

REPLAYED_STAGES = (Stage.RUNTIME, Stage.PARITY)


def find_replays(
    subjects: Sequence[object],
    cases: Mapping[str, Sequence[InputCase]],
    apply_rules: ApplyRules,
    seed: int,
    config: str,
    folder: Path | None,
) -> tuple[Replay, ...]:
    """Find one replay per model with findings that depend on its input cases.

    `cases` are the cases of each model; `config` is the name of the config. Inputs are stored in `folder`,
    except the user's own files.
    """
    replays = []
    for model in sorted(cases):
        evidence = [it for it in subjects if isinstance(it, ModelRuns | Comparison) and it.model == model]
        chosen = _minimize_cases(evidence, [case.name for case in cases[model]], apply_rules)
        if chosen:
            replay = Replay(
                model=model,
                rules=tuple(sorted({hit.rule for hit in apply_rules(evidence)})),
                cases=chosen,
                seed=seed,
                command=build_command(model, chosen, seed, config),
                inputs=_store_inputs([case for case in cases[model] if case.name in chosen], model, folder),
            )
            replays.append(replay)
    return tuple(replays)


def select_shown_replays(replays: Iterable[Replay], findings: Iterable[Finding]) -> tuple[Replay, ...]:
    """Select the replays of reported findings that are not ignored."""
    shown = {(finding.model, finding.rule) for finding in findings if not finding.ignored}
    return tuple(replay for replay in replays if any((replay.model, rule) in shown for rule in replay.rules))


def _minimize_cases(
    subjects: Sequence[ModelRuns | Comparison], names: Sequence[str], apply_rules: ApplyRules
) -> tuple[str, ...]:
    """Reduce the cases to a minimum that produces the same hits."""

    def find_hits(cases: Sequence[str]) -> frozenset[RuleHit]:
        return frozenset(apply_rules([_restrict_to_cases(subject, cases) for subject in subjects]))

    hits = find_hits(names)
    needed = list(names) if hits else []
    for name in reversed(names if hits else ()):
        fewer = [case for case in needed if case != name]
        if find_hits(fewer) == hits:
            needed = fewer
    return tuple(needed)


def _restrict_to_cases(subject: ModelRuns | Comparison, names: Sequence[str]) -> ModelRuns | Comparison:
    """Return only the evidence from these cases."""
    if isinstance(subject, ModelRuns):
        return msgspec.structs.replace(
            subject,
            attempts=tuple(attempt for attempt in subject.attempts if attempt.case.name in ("", *names)),
            usable_cases=tuple(name for name in subject.usable_cases if name in names),
        )
    first = subject.first if subject.first is not None and subject.first.case in names else None
    differences = tuple(difference for difference in subject.differences if difference.case in names)
    return msgspec.structs.replace(subject, differences=differences, first=first)


def _store_inputs(cases: Iterable[InputCase], model: str, folder: Path | None) -> tuple[str, ...]:
    """Store generated inputs and return the names of their files."""
    if folder is None:
        return ()
    from onnxgate.inputs.stored_inputs import store_case_inputs

    names = [store_case_inputs(case, model, folder) for case in cases if case.origin != "user"]
    return tuple(dict.fromkeys(name for name in names if name))


def build_command(model: str, cases: Iterable[str], seed: int, config: str, directory: str = "") -> str:
    """Build the command to reproduce a finding. `directory` is the config folder, relative to the current folder."""
    options = ["--stage", ",".join(stage.value for stage in REPLAYED_STAGES)]
    options += [word for case in cases for word in ("--case", case)]
    options += ["--seed", str(seed)] if seed else []
    options += ["--directory", directory] if directory else []
    options += [] if config in DEFAULT_CONFIGS else ["--config", f"{directory}/{config}" if directory else config]
    return join_command(("onnxgate", "check"), model, options=options)
