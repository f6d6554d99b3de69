"""Write shard reports with the data that the merge needs, and read and validate them."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec.structs import replace

from onnxgate import __version__, rules
from onnxgate.core.advice import render_advice
from onnxgate.core.findings import Stage, assign_fingerprints
from onnxgate.core.report import (
    COUNT_NAMES,
    LEVELS,
    VERSION,
    FailOn,
    Finding,
    NotDone,
    Report,
    Shard,
    SharedHit,
    SharedIgnore,
    SharedNames,
)
from onnxgate.core.report_json import is_intact, seal_report
from onnxgate.core.text import join_phrases
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.gate.results import ignore_matching, resolution
from onnxgate.gate.results.verdict import build_report, describe_left_out
from onnxgate.gate.sharding.plan import MAX_SHARDS, PLAN_KEY_CHARACTERS, Share, digest_values
from onnxgate.project.config import globs
from onnxgate.project.config.loader import collect_entry_names
from onnxgate.project.plan import locked_runtimes, report_runtime


def build_shard_report(
    request: GateRequest, outcome: GateOutcome, share: Share, fail_on: FailOn, *, drawn: bool = True
) -> Report:
    """Build the report of one shard with the data that the merge needs, and add its digest."""
    report = build_report(request, outcome, fail_on, drawn=drawn)
    return seal_report(msgspec.structs.replace(report, shard=_create_shard(request, outcome, share)))


def _create_shard(request: GateRequest, outcome: GateOutcome, share: Share) -> Shard:
    division, revision = share.division, request.baseline.revision
    stages = sorted(stage.value for stage in request.stages)
    against = revision.commit if revision is not None else ""
    options = [stages, request.selection.inputs.seed, request.ignores.honoured, against]
    gate_rules = {rule.id for rule in rules.ALL if rule.stage is Stage.GATE}  # they apply after all stages
    levels = request.project.config.rules
    return Shard(
        index=share.index,
        of=division.of,
        plan=division.plan,
        key=digest_values([division.plan, *options]),
        config=division.state.config,
        lock=division.state.lock,
        models=division.state.models,
        division=division.shards,
        scope="; ".join(describe_left_out(request, len(share.all_models))),
        locked=tuple(itertools.starmap(report_runtime, locked_runtimes(request.project, request.lock))),
        levels={rule: level for rule, level in sorted(levels.items()) if rule in gate_rules},
        hits=tuple(_project_hits(request, outcome, share)),
        ignores=tuple(_shard_ignores(request, outcome, share)),
        names=_shard_names(request, outcome, share),
    )


def require_shard(report: Report) -> Shard:
    """Return the shard of a report that is known to have one."""
    assert report.shard is not None
    return report.shard


def _project_hits(request: GateRequest, outcome: GateOutcome, share: Share) -> Iterator[SharedHit]:
    """Yield the hits that are not about any of the checked models."""
    ignores = resolution.select_ignores(request, outcome.gathered)
    for resolved_hit in resolution.resolve_hits(outcome.gathered.judged, ignores.accepts):
        hit, judged = resolved_hit.judged.hit, resolved_hit.judged
        for runtime in hit.runtimes if hit.model not in share.all_models else ():
            yield SharedHit(
                rule=judged.rule,
                level=judged.level.value,
                stage=judged.stage.value,
                message=hit.message,
                place=resolution.report_place(hit.place),
                fix=render_advice(hit.fix),
                model=hit.model,
                node=hit.node,
                runtime=runtime,
                detail=hit.on.detail if hit.on else "",
                works_since=hit.on.works_since if hit.on else "",
                works_until=hit.on.works_until if hit.on else "",
                identity=hit.identity,
                confirmed=resolved_hit.confirmed,
            )


def _shard_ignores(request: GateRequest, outcome: GateOutcome, share: Share) -> Iterator[SharedIgnore]:
    """Yield the matches of each ignore in this shard, and whether the shard checked all that the ignore covers."""
    ignores = resolution.select_ignores(request, outcome.gathered)
    scope = resolution.determine_scope(request, outcome.gathered, outcome.blocked, ignores)
    scope = replace(scope, models=scope.models | share.all_models)
    own = {model.path for model in request.models}
    judged = [rule_hit for rule_hit in assign_fingerprints(outcome.gathered.judged) if rule_hit.hit.model in own]
    gaps = [gap for gap in resolution.list_acceptable_gaps(request, outcome.gathered) if gap.model in own]
    findings = resolution.merge_runtimes(resolution.resolve_hits(judged, ignores.accepts), ())
    _, met = ignores.apply([*findings, *gaps])
    present = resolution.collect_fingerprints(judged, gaps)
    for index, use in enumerate(ignore_matching.find_ignore_uses(ignores, scope, met, present)):
        entry = ignores.entries[index]
        listed = entry.fingerprints or ()
        yield SharedIgnore(
            rule=entry.rule,
            model=entry.model,
            reason=entry.reason,
            place=resolution.report_place(use.place),
            until=use.until,
            expired=use.expired,
            sha256=use.sha256,
            fingerprints=entry.fingerprints,
            covered=use.stage_ran,
            content_there=ignore_matching.may_have_content(
                entry, [path for path in own if globs.matches(entry.model, path)], scope
            ),
            found=tuple(sorted(set(listed) & present if listed else met[index])),
            is_new=index in ignores.new,
        )


def _shard_names(request: GateRequest, outcome: GateOutcome, share: Share) -> tuple[SharedNames, ...]:
    """Collect the axis and output names in the config, and the names in the models of this shard."""
    if not {Stage.RUNTIME, Stage.PARITY} & request.stages:
        return ()
    model_names = resolution.list_model_names(outcome.gathered.facts)
    others = share.others(model.path for model in request.models)
    paths = [model.path for model in request.project.models() if model.path not in others]
    return tuple(names for names in collect_entry_names(request.project, model_names, paths) if names.configured)


MAX_REPORT_BYTES = 256 * 2**20
NOT_A_REPORT = "it is not an onnxgate report"
RERUN_HINT = "see the log of this shard's job, or re-run the job"
KNOWN_STAGES = frozenset(stage.value for stage in Stage)
RULE_SETTINGS = frozenset((*LEVELS, "off"))
"""Valid levels of a rule in the config."""


@dataclass(frozen=True, slots=True)
class ReportFile:
    """One file with the report of a shard, or the problem with the file."""

    name: str
    report: Report | None
    problem: str = ""
    hint: str = RERUN_HINT


@dataclass(frozen=True, slots=True)
class ExpectedCheck:
    """Values that the reports must match; "" and () if unknown."""

    plan: str = ""  # first characters of the plan's digest
    config: str = ""
    lock: str = ""
    models: tuple[str, ...] = ()


def list_report_files(paths: Iterable[Path], leave_out: Iterable[Path]) -> Iterator[Path]:
    """List the given files and the `.json` files in the given folders, except output files (`leave_out`)."""
    written = {path.resolve() for path in leave_out}
    for path in paths:
        files = sorted(file for file in path.rglob("*.json") if file.is_file()) if path.is_dir() else [path]
        yield from (file for file in files if file.resolve() not in written)


def read_report_file(path: Path) -> ReportFile:
    """Read the report of a shard from a file, and validate it."""
    try:
        if path.stat().st_size > MAX_REPORT_BYTES:
            return ReportFile(str(path), None, f"it is larger than {MAX_REPORT_BYTES} bytes")
        return decode_report_file(str(path), path.read_bytes())
    except OSError as error:
        return ReportFile(str(path), None, f"it cannot be read: {(error.strerror or str(error)).lower()}")


class _ReportHead(msgspec.Struct):
    version: int
    onnxgate: str


def decode_report_file(name: str, content: bytes) -> ReportFile:
    """Decode and validate the content of a report file."""
    report, head, problem, hint = None, None, "", RERUN_HINT
    try:
        head = msgspec.json.decode(content, type=_ReportHead) if content.strip() else None
        if head is None:
            problem = "it is empty, because its job did not complete"
        elif head.version != VERSION:
            problem = f"it has report version {head.version}; this onnxgate version supports {VERSION}"
            hint = SAME_VERSION_HINT
        elif head.onnxgate != __version__:
            problem, hint = (
                f"it was written by onnxgate {head.onnxgate}, but this is onnxgate {__version__}",
                SAME_VERSION_HINT,
            )
        else:
            report = msgspec.json.decode(content, type=Report)
    except msgspec.ValidationError:
        if head is None:
            problem, hint = NOT_A_REPORT, SHARD_REPORTS_HINT
        else:
            problem = "it is a corrupted onnxgate report"
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem = "it is truncated or not JSON"
    if report is not None and report.shard is None:
        problem, hint = "it is the report of a check that ran without `--shard`", SHARD_REPORTS_HINT
    elif report is not None and report.shard is not None:
        problem = _describe_damage(report, report.shard)
    return ReportFile(name, None if problem else report, problem, hint)


SAME_VERSION_HINT = "use the same onnxgate version for `plan`, `check` and `merge`"
SHARD_REPORTS_HINT = "pass only JSON reports of shards, which `check --shard I/N --output json=FILE` writes"


def _describe_damage(report: Report, shard: Shard) -> str:
    """Return the first inconsistency in a report; "" if there is none."""
    if not is_intact(report):
        return "it was modified after it was written (its digest does not match)"
    if not 1 <= shard.of <= MAX_SHARDS or not 1 <= shard.index <= shard.of or len(shard.division) != len(shard.models):
        return f"its shard assignment is invalid (shard {shard.index} of {shard.of})"
    own = tuple(path for path, index in zip(shard.models, shard.division, strict=True) if index == shard.index)
    if own != tuple(model.path for model in report.models):
        return "it does not contain the models of its shard"
    parts: tuple[Finding | NotDone | SharedHit, ...]
    parts = (*report.findings, *report.undecided, *report.skipped, *shard.hits)
    stages = {*report.stages, *(part.stage for part in parts)}
    if not (stages <= KNOWN_STAGES and set(shard.levels.values()) <= RULE_SETTINGS):
        return "it contains an unknown stage or level"
    if not set(report.counts) <= COUNT_NAMES:
        return "it contains a count with an unknown name"
    ruled: tuple[Finding | SharedHit | SharedIgnore, ...] = (*report.findings, *shard.hits, *shard.ignores)
    if not all(re.fullmatch(r"[a-z0-9]+(?:-[a-z0-9]+)*", part.rule) for part in ruled):
        return "it contains an invalid rule name"
    if (report.exit, report.verdict) not in {(0, "pass"), (1, "fail"), (3, "undecided")}:
        return f"its verdict `{report.verdict}` does not match the exit status {report.exit}"
    return (
        "its verdict is `pass`, although it contains undecided checks" if report.exit == 0 and report.undecided else ""
    )


def collect_reports(files: Sequence[ReportFile], expected: ExpectedCheck) -> tuple[list[Report], list[NotDone]]:
    """Return one report for each shard of a check, and the gaps (missing shards and rejected files)."""
    unread = [file for file in files if file.report is None]
    gaps = [_gap(f"`{file.name}` was not merged: {file.problem}", file.hint) for file in unread]
    valid = [(file.name, file.report) for file in files if file.report is not None]
    if not valid:
        reason = "no valid shard report was found" if files else "there are no shard reports"
        return [], [*gaps, *(_gap(reason, SHARD_REPORTS_HINT, model) for model in expected.models or ("",))]
    planned = [report for _, report in valid if expected.plan and require_shard(report).plan.startswith(expected.plan)]
    common, _ = Counter(map(_check_identity, planned[:1] or [report for _, report in valid])).most_common(1)[0]
    for name, report in valid:
        if _check_identity(report) != common:
            shard = require_shard(report)
            other = f"it belongs to another check (shard {shard.index}/{shard.of}, `{shard.key[:PLAN_KEY_CHARACTERS]}`)"
            reason = f"`{name}` was not merged: {other}"
            gaps.append(_gap(reason, SAME_CHECK_HINT))
    reports = _one_report_per_shard([pair for pair in valid if _check_identity(pair[1]) == common], gaps)
    lead = require_shard(reports[0])
    gaps += _differences_from_expected(lead, expected)
    gaps += _missing_shards(lead, {require_shard(report).index for report in reports})
    return reports, gaps


SAME_CHECK_HINT = "merge only reports with the same plan, commit, PATHS and options"


def _gap(reason: str, hint: str, model: str = "") -> NotDone:
    return NotDone(stage=Stage.GATE.value, model=model, runtime="", reason=reason, hint=hint)


def _check_identity(report: Report) -> object:
    """Return the values that must be equal in all shards of one check."""
    shard = require_shard(report)
    state = (shard.key, shard.plan, shard.of, shard.config, shard.lock, shard.models, shard.division)
    policy = (shard.scope, shard.locked, tuple(shard.levels.items()), len(shard.ignores))
    names = tuple(name.configured for name in shard.names)
    return (*state, *policy, names, report.folder, report.stages, report.against, tuple(report.counts))


def _one_report_per_shard(valid: Sequence[tuple[str, Report]], gaps: list[NotDone]) -> list[Report]:
    """Select one report for each shard; if several reports differ, prefer a failing report."""
    by_shard: dict[int, list[tuple[str, Report]]] = {}
    for name, report in valid:
        by_shard.setdefault(require_shard(report).index, []).append((name, report))
    for index, pairs in by_shard.items():
        if any(report != pairs[0][1] for _, report in pairs):
            names = join_phrases([f"`{name}`" for name, _ in pairs])
            gaps.append(_gap(f"the reports of shard {index} differ: {names}", "merge only one of these reports"))
    return [min(pairs, key=lambda pair: pair[1].exit != 1)[1] for _, pairs in sorted(by_shard.items())]


def _differences_from_expected(lead: Shard, expected: ExpectedCheck) -> Iterator[NotDone]:
    if expected.plan and not lead.plan.startswith(expected.plan):
        plan = lead.plan[:PLAN_KEY_CHARACTERS]
        yield _gap(f"the reports belong to plan `{plan}`, not to `{expected.plan}` (`--key`)", SAME_CHECK_HINT)
    for name, judged, current in (("config", lead.config, expected.config), ("lock", lead.lock, expected.lock)):
        if current and current != judged:
            yield _gap(
                f"the shards were checked with a different {name} than the {name} in this folder", SAME_CHECK_HINT
            )


def _missing_shards(lead: Shard, judged: Collection[int]) -> Iterator[NotDone]:
    """Yield a gap for each model in a shard that has no report."""
    for path, index in zip(lead.models, lead.division, strict=True):
        if index not in judged:
            hint = f"pass the report of this shard, or re-run shard {index}/{lead.of}"
            yield _gap(f"the report of shard {index}/{lead.of} is missing", hint, path)
