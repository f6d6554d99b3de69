"""What an upgrade of the lock would do to each model: what `lock --upgrade --preview` says. Sorted; no clock."""

from __future__ import annotations

import msgspec

from onnxgate.core.report import RATIO_METRICS, CellState, Finding, Measured, NotDone, Report


class PreviewPart(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the preview."""


class AddedRuntime(PreviewPart, frozen=True, kw_only=True):
    """One model on one runtime that the lock does not have yet."""

    model: str
    runtime: str  # "onnxruntime 1.31.1"
    state: CellState  # what `check` would say of the two
    breaks: tuple[Finding, ...] = ()  # errors and warnings that no runtime of the lock has with this model today
    outputs: tuple[Measured, ...] = ()  # of each output, where it differs most from that of the runtime before
    before: str = ""  # the newest locked runtime of the same engine, which outputs are held against; "" is none
    unlike: str = ""  # why outputs could not be held against each other


class Preview(PreviewPart, frozen=True, kw_only=True):
    """An upgrade, tried before anything is written."""

    pins: tuple[str, ...]  # what would change in the lock, a line each
    arrivals: tuple[AddedRuntime, ...]  # by model and runtime
    others: tuple[Finding, ...]  # what is new on runtimes that stay: they are held against another one
    repairs: tuple[Finding, ...]  # what is wrong on runtimes today, and on none afterwards
    remains: tuple[Finding, ...]  # errors and warnings that are there before and after
    undecided: tuple[NotDone, ...]  # what could not be found out about today, and would afterwards
    after: Report  # what `check` would say with the new lock

    @property
    def breaks(self) -> tuple[Finding, ...]:
        """All that the upgrade would break, each once."""
        return (*dict.fromkeys(finding for arrival in self.arrivals for finding in arrival.breaks), *self.others)

    @property
    def beyond(self) -> tuple[Measured, ...]:
        """Outputs that move by more than is allowed; of ratios, those that keep less than is needed."""
        rows = (row for arrival in self.arrivals for row in arrival.outputs)
        return tuple(row for row in rows if _exceeds_tolerance(row))


def _exceeds_tolerance(row: Measured) -> bool:
    if row.value is None or row.bound is None:
        return True
    return row.value < row.bound if row.metric in RATIO_METRICS else row.value > row.bound
