"""Preview of a lock upgrade for each model, for `lock --upgrade --preview`. Sorted; no clock."""

from __future__ import annotations

import msgspec

from onnxgate.core.report import RATIO_METRICS, CellState, Finding, Measured, NotDone, Report


class PreviewPart(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the preview."""


class AddedRuntime(PreviewPart, frozen=True, kw_only=True):
    """One model on one runtime that the lock does not have yet."""

    model: str
    runtime: str  # "onnxruntime 1.31.1"
    state: CellState  # the state that `check` would report
    breaks: tuple[Finding, ...] = ()  # errors and warnings that no runtime of the lock has with this model today
    outputs: tuple[Measured, ...] = ()  # for each output its largest difference from the runtime before
    before: str = ""  # the newest locked runtime of the same engine, the reference of outputs; "" if there is none
    unlike: str = ""  # why outputs could not be compared


class Preview(PreviewPart, frozen=True, kw_only=True):
    """An upgrade, tried before anything is written."""

    pins: tuple[str, ...]  # what would change in the lock, a line each
    arrivals: tuple[AddedRuntime, ...]  # by model and runtime
    others: tuple[Finding, ...]  # new findings on runtimes that stay: their reference is another runtime
    repairs: tuple[Finding, ...]  # findings on runtimes of today that no runtime has afterwards
    remains: tuple[Finding, ...]  # errors and warnings that are there before and after
    undecided: tuple[NotDone, ...]  # undecided today, and decided afterwards
    after: Report  # the report of `check` with the new lock

    @property
    def breaks(self) -> tuple[Finding, ...]:
        """All breaks of the upgrade, without duplicates."""
        return (*dict.fromkeys(finding for arrival in self.arrivals for finding in arrival.breaks), *self.others)

    @property
    def beyond(self) -> tuple[Measured, ...]:
        """Outputs that change beyond tolerance; ratios that are lower than required."""
        rows = (row for arrival in self.arrivals for row in arrival.outputs)
        return tuple(row for row in rows if _exceeds_tolerance(row))


def _exceeds_tolerance(row: Measured) -> bool:
    if row.value is None or row.bound is None:
        return True
    return row.value < row.bound if row.metric in RATIO_METRICS else row.value > row.bound
