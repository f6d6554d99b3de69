"""Merge shard reports into one report. Missing or invalid shard reports make the check undecided."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from msgspec.structs import replace

from onnxgate import __version__, rules
from onnxgate.core.findings import Hit, Level, OnRuntime, Place, RuleHit, Stage, assign_fingerprints
from onnxgate.core.report import (
    LEVELS,
    RECOUNTED_COUNTS,
    SUMMED_COUNTS,
    Cell,
    Change,
    FailOn,
    Finding,
    Measured,
    NotDone,
    Replay,
    Report,
    ReportedPlace,
    Shard,
    SharedHit,
    SharedIgnore,
)
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.gate.results import ignore_matching, resolution
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.gate.results.verdict import decide_verdict
from onnxgate.gate.sharding.shard_report import require_shard
from onnxgate.model.subgraphs import node_context
from onnxgate.project.config import globs
from onnxgate.project.config.loader import UNKNOWN_NAME_FIX, describe_unknown_names
from onnxgate.project.config.schema import Ignore

PartType = TypeVar("PartType", Cell, Change, Measured, Replay)


def merge_reports(reports: Sequence[Report], gaps: Sequence[NotDone], fail_on: FailOn) -> Report:
    """
    Merge the reports of different shards; `gaps` are missing or rejected reports.

    Without gaps, the result equals the report of a check that ran without `--shard`.
    """
    if reports:
        return _merge_shards(sorted(reports, key=lambda report: require_shard(report).index), gaps, fail_on)
    counts = {**dict.fromkeys((*RECOUNTED_COUNTS, *SUMMED_COUNTS), 0), "undecided": len(gaps)}
    return Report(
        onnxgate=__version__,
        verdict="undecided",
        exit=3,
        folder="",
        scope="",
        stages=(),
        models=(),
        runtimes=(),
        cells=(),
        findings=(),
        undecided=tuple(gaps),
        skipped=(),
        measured=(),
        counts=counts,
        fail_on=fail_on,
    )


def _merge_shards(reports: Sequence[Report], gaps: Sequence[NotDone], fail_on: FailOn) -> Report:
    """Merge reports in the order of their shards. Each model is in exactly one of them."""
    first, shards = reports[0], [require_shard(report) for report in reports]
    stage = next((name for name in ("runtime", "parity") if name in first.stages), "")
    unknown_names = tuple(
        NotDone(stage=stage, model=model, runtime="", reason=problem, hint=UNKNOWN_NAME_FIX)
        for model, problem in find_unknown_names(shards)
    )
    findings = _merge_findings(reports, unknown_names)
    not_decided = [part for report in reports for part in report.undecided]
    undecided = (*_merge_not_done([*not_decided, *unknown_names]), *gaps)
    skipped = _merge_not_done(part for report in reports for part in report.skipped)
    cells = _by_model(cell for report in reports for cell in report.cells)
    used = {runtime for report in reports for runtime in report.runtimes}
    verdict, exit_status = decide_verdict(findings, bool(undecided), fail_on)
    counts = _count(reports, findings, cells, undecided, skipped)
    return Report(
        version=first.version,
        onnxgate=first.onnxgate,
        verdict=verdict,
        exit=exit_status,
        folder=first.folder,
        scope=shards[0].scope,
        stages=first.stages,
        models=tuple(sorted((part for report in reports for part in report.models), key=lambda part: part.path)),
        runtimes=tuple(runtime for runtime in shards[0].locked if runtime in used),
        cells=cells,
        findings=findings,
        undecided=undecided,
        skipped=skipped,
        measured=_by_model(part for report in reports for part in report.measured),
        counts={name: counts[name] for name in first.counts},
        replays=_by_model(part for report in reports for part in report.replays),
        against=first.against,
        # Every shard reports all removed models.
        changes=_by_model(dict.fromkeys(part for report in reports for part in report.changes)),
        drawings=node_context.select_most_severe(findings, [it for report in reports for it in report.drawings]),
        remarks=tuple(sorted({remark for report in reports for remark in report.remarks})),
        checkout=first.checkout,
        fail_on=fail_on,
    )


def _by_model(parts: Iterable[PartType]) -> tuple[PartType, ...]:
    """Sort parts of reports by model; parts of one model keep their order."""
    return tuple(sorted(parts, key=lambda part: part.model))


def _merge_not_done(parts: Iterable[NotDone]) -> tuple[NotDone, ...]:
    """Sort incomplete checks as in a report, without duplicates."""
    unique: dict[tuple[str, ...], NotDone] = {}
    for part in parts:
        unique.setdefault((part.model, part.stage, part.runtime, part.reason), part)
    return tuple(sorted(unique.values(), key=lambda part: (part.model, part.stage, part.runtime, part.reason)))


def _count(
    reports: Sequence[Report],
    findings: Sequence[Finding],
    cells: Sequence[Cell],
    undecided: Sequence[NotDone],
    skipped: Sequence[NotDone],
) -> dict[str, int]:
    """Add up the counts of models, and recount findings and runtimes, which several shards may report."""
    return {
        **{name: sum(report.counts.get(name, 0) for report in reports) for name in SUMMED_COUNTS},
        **{f"{level}s": sum(it.level == level and not it.ignored for it in findings) for level in LEVELS},
        "ignored": sum(bool(finding.ignored) for finding in findings),
        "runtimes": len({cell.runtime for cell in cells}),
        "undecided": len(undecided),
        "skipped": len(skipped),
    }


def find_unknown_names(shards: Sequence[Shard]) -> Iterator[tuple[str, str]]:
    """Find names in the config that no model of any shard has, and the models. A single shard cannot determine this."""
    for entries in zip(*(shard.names for shard in shards), strict=True):
        together = replace(
            entries[0],
            axes=tuple(name for entry in entries for name in entry.axes),
            outputs=tuple(name for entry in entries for name in entry.outputs),
            whole=all(entry.whole for entry in entries),
            models=tuple(sorted({model for entry in entries for model in entry.models})),
        )
        yield from describe_unknown_names(together)


TODAY, ENDED = datetime.date(2000, 1, 2), datetime.date(2000, 1, 1)
"""Placeholder dates, because each shard has already determined which ignores have expired."""


def _merge_findings(reports: Sequence[Report], unknown_names: Sequence[NotDone]) -> tuple[Finding, ...]:
    """Collect the findings about models, and resolve those about the project and about ignores again."""
    shards = [require_shard(report) for report in reports]
    own_models = [(report, {model.path for model in report.models}) for report in reports]
    about_models = [finding for report, paths in own_models for finding in report.findings if finding.model in paths]
    runtimes = [f"{runtime.engine} {runtime.version}" for runtime in shards[0].locked]
    entries = list(zip(*(shard.ignores for shard in shards), strict=True))
    restored = [
        Ignore(
            rule=entry[0].rule,
            reason=entry[0].reason,
            model=entry[0].model,
            until=ENDED if any(of_shard.expired for of_shard in entry) else None,
            sha256=entry[0].sha256 or None,
            fingerprints=entry[0].fingerprints,
        )
        for entry in entries
    ]
    new = frozenset(index for index, entry in enumerate(entries) if entry[0].is_new)
    ignores = Ignores(restored, TODAY, new=new)
    hits = list(dict.fromkeys(hit for shard in shards for hit in shard.hits))
    judged = assign_fingerprints([_restore_hit(hit) for hit in hits])
    resolved = [resolution.ResolvedHit(hit, shared.confirmed) for hit, shared in zip(judged, hits, strict=True)]
    about_project, met = ignores.apply(resolution.merge_runtimes(resolved, runtimes))
    present = {hit.fingerprint for hit in judged}
    uses = [
        _merge_ignore_use(
            entry, (present if entry[0].fingerprints else met[index]), _find_open_stages(entry[0].model, unknown_names)
        )
        for index, entry in enumerate(entries)
    ]
    about_ignores = list(resolution.apply_rules(uses, rules.ALL, shards[0].levels))
    findings = sorted([*about_models, *about_project], key=resolution.finding_sort_key)
    return (*findings, *resolution.merge_runtimes(resolution.resolve_hits(about_ignores), runtimes))


def _find_open_stages(pattern: str, unknown_names: Iterable[NotDone]) -> set[Stage]:
    """Return the stages in which findings about the models that a pattern matches may be missing."""
    stages = {Stage(problem.stage) for problem in unknown_names if globs.matches(pattern, problem.model)}
    return stages | (ignore_matching.STAGES_AFTER_RUNS if Stage.RUNTIME in stages else set())


def _restore_place(place: ReportedPlace) -> Place:
    return Place(place.path, place.line, place.end_line)


def _restore_hit(shared: SharedHit) -> RuleHit:
    hit = Hit(
        place=_restore_place(shared.place),
        message=shared.message,
        model=shared.model,
        node=shared.node,
        fix=shared.fix,
        on=OnRuntime(shared.runtime, shared.detail, works_since=shared.works_since, works_until=shared.works_until)
        if shared.runtime
        else None,
        identity=shared.identity,
    )
    return RuleHit(shared.rule, Stage(shared.stage), Level(shared.level), hit)


def _merge_ignore_use(
    of_shards: Sequence[SharedIgnore], matches: Collection[str], left_open: Collection[Stage]
) -> IgnoreUse:
    """Merge the use of an ignore entry in all shards; `matches` are fingerprints of findings without a model."""
    first, rule = of_shards[0], rules.by_id.get(of_shards[0].rule)
    listed = first.fingerprints or ()
    matched = set(matches).union(*(of_shard.found for of_shard in of_shards))
    unmatched = sum(fingerprint not in matched for fingerprint in listed)
    return IgnoreUse(
        place=_restore_place(first.place),
        rule=first.rule,
        model=first.model,
        until=first.until,
        expired=any(of_shard.expired for of_shard in of_shards),
        used=unmatched < len(listed) if listed else bool(matched),
        stage_ran=all(of_shard.covered for of_shard in of_shards)
        and (not left_open if rule is None else rule.stage not in left_open),
        sha256=first.sha256,
        content_there=any(of_shard.content_there for of_shard in of_shards),
        listed=len(listed),
        resolved=unmatched,
    )
