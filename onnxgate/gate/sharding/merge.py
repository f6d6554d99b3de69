"""The reports of all shards as the one that an undivided check writes; what is missing or does not fit is undecided."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from msgspec.structs import replace

from onnxgate import __version__, rules
from onnxgate.core.findings import Hit, Level, OnRuntime, Place, RuleHit, Stage
from onnxgate.core.fingerprints import assign_fingerprints
from onnxgate.core.report import (
    LEVELS,
    Against,
    Cell,
    Change,
    Drawing,
    FailOn,
    Finding,
    Measured,
    NotDone,
    Replay,
    Report,
    ReportedModel,
    ReportedPlace,
    ReportedRuntime,
    Shard,
    SharedHit,
    SharedIgnore,
    Verdict,
    decide_verdict,
)
from onnxgate.evidence.ignores import IgnoreUse
from onnxgate.gate.results import ignore_matching, resolution
from onnxgate.gate.results.ignore_matching import Ignores
from onnxgate.model.subgraphs import node_context
from onnxgate.project.config.loader import UNKNOWN_NAME_FIX, ConfiguredName, EntryNames
from onnxgate.project.config.schema import Ignore

T = TypeVar("T")
SUMMED_COUNTS = ("models", "without_source", "ran", "compared", "reused")
"""Counts that are about models alone."""


def require_shard(report: Report) -> Shard:
    """What makes a report one of a shard; only such reports are merged."""
    assert report.shard is not None
    return report.shard


def merge_reports(reports: Sequence[Report], gaps: Sequence[NotDone], fail_on: FailOn) -> Report:
    """
    Reports of different shards of one check as one; `gaps` is what they do not decide.

    Where all shards are there and there are no gaps, it is the report of the undivided check.
    """
    if not reports:
        return _create_empty_report(gaps)
    whole = MergedReport(sorted(reports, key=lambda each: require_shard(each).index), gaps, fail_on)
    return Report(**{name: getattr(whole, name) for name in Report.__struct_fields__})


def _create_empty_report(gaps: Sequence[NotDone]) -> Report:
    counts = {**dict.fromkeys((*_RECOUNTED, *SUMMED_COUNTS), 0), "undecided": len(gaps)}
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
    )


@dataclass
class MergedReport:
    """Every field of the merged report, by its name. `reports` are in the order of their shards."""

    reports: Sequence[Report]
    gaps: Sequence[NotDone]
    fail_on: FailOn

    shard = None

    @property
    def version(self) -> int:
        """The same in all."""
        return self.reports[0].version

    @property
    def onnxgate(self) -> str:
        """The same in all."""
        return self.reports[0].onnxgate

    @property
    def folder(self) -> str:
        """The same in all."""
        return self.reports[0].folder

    @property
    def scope(self) -> str:
        """What the whole check left out."""
        return require_shard(self.reports[0]).scope

    @property
    def stages(self) -> tuple[str, ...]:
        """The same in all."""
        return self.reports[0].stages

    @property
    def against(self) -> Against | None:
        """The same in all."""
        return self.reports[0].against

    @property
    def verdict(self) -> Verdict:
        """Of all findings, and of what any shard did not decide."""
        return decide_verdict(self.findings, bool(self.undecided), self.fail_on)[0]

    @property
    def exit(self) -> int:
        """The status that goes with it."""
        return decide_verdict(self.findings, bool(self.undecided), self.fail_on)[1]

    @property
    def models(self) -> tuple[ReportedModel, ...]:
        """Each is judged by one shard."""
        return self._joined(lambda report: report.models, lambda each: each.path)

    @property
    def runtimes(self) -> tuple[ReportedRuntime, ...]:
        """Those that any shard used, in the lock's order."""
        used = {runtime for report in self.reports for runtime in report.runtimes}
        return tuple(runtime for runtime in require_shard(self.reports[0]).locked if runtime in used)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """As each shard has them, but for what only all together know to be undecided."""
        cells = self._joined(lambda report: report.cells, lambda each: each.model)
        if "runtime" not in self.stages or not self._misnamed:
            return cells
        return tuple(cell if cell.state == "fail" else replace(cell, state="undecided") for cell in cells)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Those about models as they are, and those about the project weighed again."""
        own = [(report, {model.path for model in report.models}) for report in self.reports]
        about_models = [finding for report, paths in own for finding in report.findings if finding.model in paths]
        return self._shared.findings(about_models, self._misnamed)

    @cached_property
    def undecided(self) -> tuple[NotDone, ...]:
        """What each shard says, what they say of the project once, and what is missing."""
        return self._not_done([*(each for report in self.reports for each in report.undecided), *self._misnamed]) + (
            tuple(self.gaps)
        )

    @cached_property
    def skipped(self) -> tuple[NotDone, ...]:
        """Likewise."""
        return self._not_done(each for report in self.reports for each in report.skipped)

    @property
    def measured(self) -> tuple[Measured, ...]:
        """By model."""
        return self._joined(lambda report: report.measured, lambda each: each.model)

    @property
    def replays(self) -> tuple[Replay, ...]:
        """By model."""
        return self._joined(lambda report: report.replays, lambda each: each.model)

    @property
    def changes(self) -> tuple[Change, ...]:
        """By model; what was removed, every shard says."""
        return self._joined(lambda report: report.changes, lambda each: each.model, once=True)

    @property
    def drawings(self) -> tuple[Drawing, ...]:
        """As many as one report shows."""
        return node_context.select_most_severe(
            self.findings, [drawing for report in self.reports for drawing in report.drawings]
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(sorted({remark for report in self.reports for remark in report.remarks}))

    @property
    def counts(self) -> dict[str, int]:
        """As many of each as there are now, under the names that the shards count them by."""
        return {name: self._count(name) for name in self.reports[0].counts}

    def _count(self, name: str) -> int:
        if name in SUMMED_COUNTS:
            return sum(report.counts.get(name, 0) for report in self.reports)
        return _RECOUNTED[name](self)

    def _joined(
        self, of: Callable[[Report], Iterable[T]], key: Callable[[T], str], once: bool = False
    ) -> tuple[T, ...]:
        """Parts of all reports by model, in the order in which each report has those of one model."""
        parts = [each for report in self.reports for each in of(report)]
        return tuple(sorted(dict.fromkeys(parts) if once else parts, key=key))

    def _not_done(self, parts: Iterable[NotDone]) -> tuple[NotDone, ...]:
        """Sorted as reports have them; what is about no model is said once."""
        unique: dict[object, NotDone] = {}
        for number, part in enumerate(parts):
            said = (part.stage, part.runtime, part.reason)
            unique.setdefault(number if part.model else said, part)
        return tuple(sorted(unique.values(), key=lambda each: (each.model, each.stage, each.runtime, each.reason)))

    @cached_property
    def _shared(self) -> ProjectFindings:
        return ProjectFindings([require_shard(report) for report in self.reports])

    @cached_property
    def _misnamed(self) -> tuple[NotDone, ...]:
        """Names in the config that no model of any shard has, and that not every shard could tell of alone."""
        stage = next((name for name in ("runtime", "parity") if name in self.stages), "")
        return tuple(
            NotDone(stage=stage, model="", runtime="", reason=problem, hint=UNKNOWN_NAME_FIX)
            for problem in find_unknown_names([require_shard(report) for report in self.reports])
        )


def find_unknown_names(shards: Sequence[Shard]) -> Iterator[str]:
    """What `unknown_names` says of all models together."""
    for entries in zip(*(shard.names for shard in shards), strict=True):
        together = EntryNames(
            asked=tuple(ConfiguredName(each.where, each.kind, each.name) for each in entries[0].asked),
            axes=frozenset(name for entry in entries for name in entry.axes),
            outputs=frozenset(name for entry in entries for name in entry.outputs),
            whole=all(entry.whole for entry in entries),
        )
        yield from together.unknown()


def _count_level(level: str) -> Callable[[MergedReport], int]:
    return lambda whole: sum(finding.level == level and not finding.ignored for finding in whole.findings)


_RECOUNTED: dict[str, Callable[[MergedReport], int]] = {
    **{f"{level}s": _count_level(level) for level in LEVELS},
    "ignored": lambda whole: sum(bool(finding.ignored) for finding in whole.findings),
    "runtimes": lambda whole: len({cell.runtime for cell in whole.cells}),
    "undecided": lambda whole: len(whole.undecided),
    "skipped": lambda whole: len(whole.skipped),
}
"""Counts that are made again."""
COUNT_NAMES = frozenset((*SUMMED_COUNTS, *_RECOUNTED))
"""All that a report counts."""


TODAY, ENDED = datetime.date(2000, 1, 2), datetime.date(2000, 1, 1)
"""Stand for the days of the shards, which said themselves which ignores have ended."""


class ProjectFindings:
    """`shards` are of one check."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._known = [f"{runtime.engine} {runtime.version}" for runtime in shards[0].locked]
        self._ignores = [tuple(each) for each in zip(*(shard.ignores for shard in shards), strict=True)]

    def findings(self, about_models: Sequence[Finding], misnamed: Sequence[NotDone]) -> tuple[Finding, ...]:
        """All findings: those about models, about the project, and about the ignores of both."""
        ignores = Ignores([_merge_ignore(ignore) for ignore in self._ignores], TODAY)
        hits = list(dict.fromkeys(hit for shard in self._shards for hit in shard.hits))
        judged = assign_fingerprints([_restore_hit(hit) for hit in hits])
        confirmed = [hit.confirmed for hit in hits]
        weighed = [resolution.ResolvedHit(*each) for each in zip(judged, confirmed, strict=True)]
        of_project, met = ignores.apply(resolution.merge_runtimes(weighed, self._known))
        present = {each.fingerprint for each in judged}
        findings = sorted([*about_models, *of_project], key=resolution.finding_sort_key)
        open_stages = self._left_open(misnamed)
        uses = [
            _merge_ignore_use(ignore, (present if ignore[0].fingerprints else met[index]), open_stages)
            for index, ignore in enumerate(self._ignores)
        ]
        own = list(resolution.apply_rules(uses, rules.ALL, self._shards[0].levels))
        return (*findings, *resolution.merge_runtimes(resolution.resolve_hits(own), self._known))

    def _left_open(self, misnamed: Sequence[NotDone]) -> frozenset[Stage]:
        """Stages of which nothing can be concluded from what was not found."""
        stages = {Stage(each.stage) for each in misnamed}
        return frozenset(stages | (ignore_matching.STAGES_AFTER_RUNS if Stage.RUNTIME in stages else frozenset()))


def _restore_hit(said: SharedHit) -> RuleHit:
    hit = Hit(
        place=_restore_place(said.place),
        message=said.message,
        model=said.model,
        node=said.node,
        fix=said.fix,
        on=OnRuntime(said.runtime, said.detail, works_since=said.works_since, works_until=said.works_until)
        if said.runtime
        else None,
        identity=said.identity,
    )
    return RuleHit(said.rule, Stage(said.stage), Level(said.level), hit)


def _restore_place(place: ReportedPlace) -> Place:
    return Place(place.path, place.line, place.end_line)


def _merge_ignore(of_shards: Sequence[SharedIgnore]) -> Ignore:
    """The entry as far as it is about the project. It has ended where any shard says so."""
    first = of_shards[0]
    return Ignore(
        rule=first.rule,
        reason=first.reason,
        model=first.model,
        until=ENDED if any(of_shard.expired for of_shard in of_shards) else None,
        sha256=first.sha256 or None,
        fingerprints=first.fingerprints,
    )


def _merge_ignore_use(
    of_shards: Sequence[SharedIgnore], found: frozenset[str] | set[str], left_open: frozenset[Stage]
) -> IgnoreUse:
    """What came of an entry in all shards, and of what it `found` of the project."""
    first, rule = of_shards[0], rules.by_id.get(of_shards[0].rule)
    listed = first.fingerprints or ()
    every = found.union(*(of_shard.found for of_shard in of_shards))
    gone = sum(each not in every for each in listed)
    return IgnoreUse(
        place=_restore_place(first.place),
        rule=first.rule,
        model=first.model,
        until=first.until,
        expired=any(of_shard.expired for of_shard in of_shards),
        used=gone < len(listed) if listed else bool(every),
        stage_ran=all(of_shard.covered for of_shard in of_shards) and (rule is None or rule.stage not in left_open),
        sha256=first.sha256,
        content_there=any(of_shard.content_there for of_shard in of_shards),
        listed=len(listed),
        gone=gone,
    )
