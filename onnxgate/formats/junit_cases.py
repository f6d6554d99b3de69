"""What the tests of a JUnit file are, and how each ended. One that failed names every reason."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from onnxgate.formats import phrases
from onnxgate.report import Cell, Finding, NotDone, Report

Item = TypeVar("Item", Finding, NotDone)
Outcome = Literal["", "failure", "error", "skipped"]
OF_RUNTIMES = ("support", "runtime", "parity")
"""Stages that judge a model on each of its runtimes."""
ALWAYS = ("file", "lock")
"""Stages that judge every model; whether another one applies to a model is told where there is something to say."""
WORSE: tuple[Outcome, ...] = ("", "skipped", "error", "failure")
OUTCOMES: dict[str, Outcome] = {
    "fail": "failure",
    "undecided": "error",
    "skipped": "skipped",
    "not predicted": "skipped",
}
"""How a cell that did not pass shows."""
NOT_RUN = {
    "predicted": "predicted from support data; nothing was run",
    "not predicted": "not predicted: there is no support data, or it cannot be told; nothing was run",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One test; `said` are lines, `aside` what is told of it besides how it ended."""

    name: str
    outcome: Outcome = ""
    type: str = ""
    said: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Heap:
    """All that is said of one test."""

    findings: Sequence[Finding] = ()
    undecided: Sequence[NotDone] = ()
    skipped: Sequence[NotDone] = ()

    def case(self, name: str, closing: frozenset[str], *aside: str) -> Case:
        """A failure weighs more than an error, and that more than what was skipped."""
        worst = [one for one in self.findings if one.level in closing and not one.ignored]
        others = _lines(one for one in self.findings if one not in worst)
        undone, skipped = _lines(self.undecided), _lines(self.skipped)
        if worst:
            return Case(name, "failure", worst[0].rule, _lines(worst), (*aside, *undone, *skipped, *others))
        if undone:
            return Case(name, "error", "undecided", undone, (*aside, *skipped, *others))
        if skipped:
            return Case(name, "skipped", "", skipped, (*aside, *others))
        return Case(name, aside=(*aside, *others))


def cases_of_models(report: Report) -> Iterator[tuple[str, list[Case]]]:
    """Each model's tests: its stages, then its runtimes."""
    matrix = phrases.matrix(report)
    findings = _by_model(report.findings)
    undecided, skipped = _by_model(report.undecided), _by_model(report.skipped)
    for model in {**matrix, **findings, **undecided, **skipped}:
        if model:
            heap = Heap(findings.get(model, ()), undecided.get(model, ()), skipped.get(model, ()))
            cells = {name: cell for name, cell in matrix.get(model, {}).items() if cell.state != "not asked"}
            yield model, [*_stages(report, heap, cells), *_runtimes(report, heap, cells)]


def cases_of_project(report: Report) -> list[Case]:
    """What is about no model: a test for each of its stages; the runtimes that are named stand in the text.

    Remarks are told by one that passes.
    """
    heap = Heap(
        _by_model(report.findings).get("", ()),
        _by_model(report.undecided).get("", ()),
        _by_model(report.skipped).get("", ()),
    )
    remarks = [Case("remarks", aside=tuple(report.remarks))] if report.remarks else []
    return [*(_of_stage(stage, heap).case(stage, _closing(report)) for stage in _named(heap)), *remarks]


def _by_model(items: Sequence[Item]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.model, []).append(item)
    return groups


def _closing(report: Report) -> frozenset[str]:
    """Errors always; warnings where nothing else can have closed the gate."""
    errors = any(one.level == "error" and not one.ignored for one in report.findings)
    return frozenset(("error",) if errors or report.verdict != "fail" else ("error", "warning"))


def _stages(report: Report, heap: Heap, cells: dict[str, Cell]) -> Iterator[Case]:
    """Stages that judge every model, and what is said of others without naming a runtime that has a test."""
    states = {cell.state for cell in cells.values()}
    rest = Heap(
        [one for one in heap.findings if not set(one.runtimes) & set(cells)],
        [one for one in heap.undecided if one.runtime not in cells and not _of_every_cell(one, "undecided", states)],
        [one for one in heap.skipped if one.runtime not in cells and not _of_every_cell(one, "skipped", states)],
    )
    asked = [stage for stage in report.stages if stage in ALWAYS]
    for stage in dict.fromkeys((*asked, *_named(rest))):
        yield _of_stage(stage, rest).case(stage, _closing(report))


def _of_every_cell(item: NotDone, state: str, states: Container[str]) -> bool:
    """Whether it is why the model's runtimes have that state, and told there."""
    return not item.runtime and item.stage in OF_RUNTIMES and state in states


def _named(heap: Heap) -> list[str]:
    items: tuple[Finding | NotDone, ...] = (*heap.findings, *heap.undecided, *heap.skipped)
    return list(dict.fromkeys(one.stage for one in items))


def _of_stage(stage: str, heap: Heap) -> Heap:
    return Heap(
        [one for one in heap.findings if one.stage == stage],
        [one for one in heap.undecided if one.stage == stage],
        [one for one in heap.skipped if one.stage == stage],
    )


def _runtimes(report: Report, heap: Heap, cells: dict[str, Cell]) -> Iterator[Case]:
    for name, cell in cells.items():
        about = Heap(
            [one for one in heap.findings if name in one.runtimes],
            [one for one in heap.undecided if one.runtime == name or _of_every_cell(one, "undecided", (cell.state,))],
            [one for one in heap.skipped if one.runtime == name or _of_every_cell(one, "skipped", (cell.state,))],
        )
        aside = (NOT_RUN[cell.state],) if cell.state in NOT_RUN else ()
        yield _of_cell(cell, about.case(name, _closing(report), *aside), heap)


def _of_cell(cell: Cell, case: Case, heap: Heap) -> Case:
    """No better than the matrix says; where nothing names this runtime, the model's own findings are the reason."""
    wanted = OUTCOMES.get(cell.state, "")
    if WORSE.index(case.outcome) >= WORSE.index(wanted):
        return case
    errors = [one for one in heap.findings if one.level == "error" and not one.ignored]
    said = _lines(errors) if cell.state == "fail" else ()
    reason = said or (NOT_RUN.get(cell.state, f"the matrix says: {cell.state}"),)
    return Case(case.name, wanted, cell.state, reason, (*case.said, *case.aside))


def _lines(items: Iterable[Finding | NotDone]) -> tuple[str, ...]:
    """What is said of each, on lines of ours; foreign strings may hold newlines of their own."""
    return tuple(line for item in items for line in (_said(item) if isinstance(item, Finding) else _undone(item)))


def _said(finding: Finding) -> Iterator[str]:
    where = phrases.short(phrases.place(finding.place))
    yield f"{finding.level} {finding.rule} at {where}: {phrases.told(finding)}"
    if finding.fix:
        yield f"  fix: {phrases.short(finding.fix, phrases.LONG)}"
    if finding.ignored:
        yield f"  ignored: {phrases.short(finding.ignored)}"


def _undone(item: NotDone) -> Iterator[str]:
    runtime = f" on {item.runtime}" if item.runtime else ""
    yield f"{item.stage}{runtime}: {phrases.short(item.reason, phrases.LONG)}"
    if item.hint:
        yield f"  hint: {item.hint}"
