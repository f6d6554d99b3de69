"""The reports of all shards as the one that an undivided check writes; what is missing or does not fit is undecided."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from msgspec.structs import replace

from onnxgate import __version__, drawings
from onnxgate.config.names import SPELL, Asked, EntryNames
from onnxgate.report import (
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
    ReportedRuntime,
    Shard,
    Verdict,
    decide,
)
from onnxgate.shared import Shared

T = TypeVar("T")
SUMMED = ("models", "without_source", "ran", "compared", "reused")
"""Counts that are about models alone."""


def shard_in(report: Report) -> Shard:
    """What makes a report one of a shard; only such reports are merged."""
    assert report.shard is not None
    return report.shard


def merge(reports: Sequence[Report], gaps: Sequence[NotDone], fail_on: FailOn) -> Report:
    """
    Reports of different shards of one check as one; `gaps` is what they do not decide.

    Where all shards are there and there are no gaps, it is the report of the undivided check.
    """
    if not reports:
        return _nothing(gaps)
    whole = Whole(sorted(reports, key=lambda each: shard_in(each).index), gaps, fail_on)
    return Report(**{name: getattr(whole, name) for name in Report.__struct_fields__})


def _nothing(gaps: Sequence[NotDone]) -> Report:
    counts = {**dict.fromkeys((*_COUNTS, *SUMMED), 0), "undecided": len(gaps)}
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
class Whole:
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
        return shard_in(self.reports[0]).scope

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
        return decide(self.findings, bool(self.undecided), self.fail_on)[0]

    @property
    def exit(self) -> int:
        """The status that goes with it."""
        return decide(self.findings, bool(self.undecided), self.fail_on)[1]

    @property
    def models(self) -> tuple[ReportedModel, ...]:
        """Each is judged by one shard."""
        return self._joined(lambda report: report.models, lambda each: each.path)

    @property
    def runtimes(self) -> tuple[ReportedRuntime, ...]:
        """Those that any shard used, in the lock's order."""
        used = {runtime for report in self.reports for runtime in report.runtimes}
        return tuple(runtime for runtime in shard_in(self.reports[0]).locked if runtime in used)

    @property
    def cells(self) -> tuple[Cell, ...]:
        """As each shard has them, but for what only all together know to be undecided."""
        cells = self._joined(lambda report: report.cells, lambda each: each.model)
        if "runtime" not in self.stages or not self._misnamed:
            return cells
        return tuple(each if each.state == "fail" else replace(each, state="undecided") for each in cells)

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Those about models as they are, and those about the project weighed again."""
        own = [(report, {model.path for model in report.models}) for report in self.reports]
        about_models = [each for report, paths in own for each in report.findings if each.model in paths]
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
        return drawings.gravest(self.findings, [each for report in self.reports for each in report.drawings])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Each once."""
        return tuple(sorted({remark for report in self.reports for remark in report.remarks}))

    @property
    def counts(self) -> dict[str, int]:
        """As many of each as there are now, under the names that the shards count them by."""
        return {name: self._count(name) for name in self.reports[0].counts}

    def _count(self, name: str) -> int:
        if name in SUMMED:
            return sum(report.counts.get(name, 0) for report in self.reports)
        return _COUNTS[name](self)

    def _joined(
        self, of: Callable[[Report], Iterable[T]], key: Callable[[T], str], once: bool = False
    ) -> tuple[T, ...]:
        """Parts of all reports by model, in the order in which each report has those of one model."""
        parts = [each for report in self.reports for each in of(report)]
        return tuple(sorted(dict.fromkeys(parts) if once else parts, key=key))

    def _not_done(self, parts: Iterable[NotDone]) -> tuple[NotDone, ...]:
        """Sorted as reports have them; what is about no model is said once."""
        unique: dict[object, NotDone] = {}
        for number, each in enumerate(parts):
            said = (each.stage, each.runtime, each.reason)
            unique.setdefault(number if each.model else said, each)
        return tuple(sorted(unique.values(), key=lambda each: (each.model, each.stage, each.runtime, each.reason)))

    @cached_property
    def _shared(self) -> Shared:
        return Shared([shard_in(report) for report in self.reports])

    @cached_property
    def _misnamed(self) -> tuple[NotDone, ...]:
        """Names in the config that no model of any shard has, and that not every shard could tell of alone."""
        stage = next((name for name in ("runtime", "parity") if name in self.stages), "")
        return tuple(
            NotDone(stage=stage, model="", runtime="", reason=problem, hint=SPELL)
            for problem in misnamed([shard_in(report) for report in self.reports])
        )


def misnamed(shards: Sequence[Shard]) -> Iterator[str]:
    """What `unknown_names` says of all models together."""
    for entries in zip(*(shard.names for shard in shards), strict=True):
        together = EntryNames(
            asked=tuple(Asked(each.where, each.kind, each.name) for each in entries[0].asked),
            axes=frozenset(name for each in entries for name in each.axes),
            outputs=frozenset(name for each in entries for name in each.outputs),
            whole=all(each.whole for each in entries),
        )
        yield from together.unknown()


def _level(level: str) -> Callable[[Whole], int]:
    return lambda whole: sum(each.level == level and not each.ignored for each in whole.findings)


_COUNTS: dict[str, Callable[[Whole], int]] = {
    **{f"{level}s": _level(level) for level in LEVELS},
    "ignored": lambda whole: sum(bool(each.ignored) for each in whole.findings),
    "runtimes": lambda whole: len({cell.runtime for cell in whole.cells}),
    "undecided": lambda whole: len(whole.undecided),
    "skipped": lambda whole: len(whole.skipped),
}
"""Counts that are made again."""
COUNTED = frozenset((*SUMMED, *_COUNTS))
"""All that a report counts."""
