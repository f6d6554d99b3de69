"""The report as JUnit XML: a suite for each model, a test for each runtime and for each stage that needs none.

What closes the gate is a failure, what could not be done an error, what need not be done is skipped. There is no clock
in a report: every time is 0, which some readers want to see.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar
from xml.etree import ElementTree

from onnxgate.core.escape import escape_unprintable, neutralize_commands
from onnxgate.core.report import Cell, Finding, NotDone, Report
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats import wording

PROJECT_SUITE = "onnxgate"
"""The suite of what is about no model."""


@dataclass(frozen=True, slots=True)
class JUnitSuite:
    """A model, or the project, with its tests."""

    name: str
    cases: Sequence[JUnitCase]

    def count(self, outcome: str) -> int:
        """How many of them ended so."""
        return sum(case.outcome == outcome for case in self.cases)


def format(report: Report) -> str:
    """An XML document with a newline at its end."""
    suites = [JUnitSuite(name, cases) for name, cases in model_cases(report) if cases]
    project = project_cases(report)
    suites += [JUnitSuite(PROJECT_SUITE, project)] if project else []
    root = ElementTree.Element(
        "testsuites", {"name": "onnxgate", "time": "0", **_count_outcomes(suites, skipped=False)}
    )
    for suite in suites:
        _add_suite(root, suite)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', *(neutralize_commands(line) for line in text.split("\n")), ""]
    return "\n".join(lines)


def _count_outcomes(every: Sequence[JUnitSuite], *, skipped: bool) -> dict[str, str]:
    counts = {
        "tests": sum(len(suite.cases) for suite in every),
        "failures": sum(suite.count("failure") for suite in every),
        "errors": sum(suite.count("error") for suite in every),
    }
    counts |= {"skipped": sum(suite.count("skipped") for suite in every)} if skipped else {}
    return {name: str(number) for name, number in counts.items()}


def _add_suite(root: ElementTree.Element, suite: JUnitSuite) -> None:
    name = escape_unprintable(truncate(suite.name))
    element = ElementTree.SubElement(
        root, "testsuite", {"name": name, "time": "0", **_count_outcomes([suite], skipped=True)}
    )
    for case in suite.cases:
        _add_case(element, name, case)


def _add_case(suite: ElementTree.Element, classname: str, case: JUnitCase) -> None:
    name = escape_unprintable(truncate(case.name))
    element = ElementTree.SubElement(suite, "testcase", {"classname": classname, "name": name, "time": "0"})
    if case.outcome:
        said = list(_escape_lines(case.said))
        shown = ElementTree.SubElement(element, case.outcome, {"message": said[0] if said else case.outcome})
        if case.outcome != "skipped":
            shown.attrib["type"] = escape_unprintable(truncate(case.type)) or case.outcome
        shown.text = "\n".join(said)
    if case.aside:
        ElementTree.SubElement(element, "system-out").text = "\n".join(_escape_lines(case.aside))


def _escape_lines(said: Iterable[str]) -> Iterator[str]:
    """XML holds no control characters, and a log that shows them may hold no commands."""
    return (neutralize_commands(escape_unprintable(line)) for line in said)


Item = TypeVar("Item", Finding, NotDone)
Outcome = Literal["", "failure", "error", "skipped"]
RUNTIME_STAGES = ("support", "runtime", "parity")
"""Stages that judge a model on each of its runtimes."""
MODEL_STAGES = ("file", "lock")
"""Stages that judge every model; whether another one applies to a model is told where there is something to say."""
OUTCOME_ORDER: tuple[Outcome, ...] = ("", "skipped", "error", "failure")
CELL_OUTCOMES: dict[str, Outcome] = {
    "fail": "failure",
    "undecided": "error",
    "skipped": "skipped",
    "not predicted": "skipped",
}
"""How a cell that did not pass shows."""
NOT_RUN_REASONS = {
    "predicted": "predicted from support data; nothing was run",
    "not predicted": "not predicted: there is no support data, or it cannot be told; nothing was run",
}


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """One test; `said` are lines, `aside` what is told of it besides how it ended."""

    name: str
    outcome: Outcome = ""
    type: str = ""
    said: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseContent:
    """All that is said of one test."""

    findings: Sequence[Finding] = ()
    undecided: Sequence[NotDone] = ()
    skipped: Sequence[NotDone] = ()

    def case(self, name: str, closing: frozenset[str], *aside: str) -> JUnitCase:
        """A failure weighs more than an error, and that more than what was skipped."""
        worst = [one for one in self.findings if one.level in closing and not one.ignored]
        others = _item_lines(one for one in self.findings if one not in worst)
        undone, skipped = _item_lines(self.undecided), _item_lines(self.skipped)
        if worst:
            return JUnitCase(name, "failure", worst[0].rule, _item_lines(worst), (*aside, *undone, *skipped, *others))
        if undone:
            return JUnitCase(name, "error", "undecided", undone, (*aside, *skipped, *others))
        if skipped:
            return JUnitCase(name, "skipped", "", skipped, (*aside, *others))
        return JUnitCase(name, aside=(*aside, *others))


def model_cases(report: Report) -> Iterator[tuple[str, list[JUnitCase]]]:
    """Each model's tests: its stages, then its runtimes."""
    matrix = wording.cells_by_model(report)
    findings = _group_by_model(report.findings)
    undecided, skipped = _group_by_model(report.undecided), _group_by_model(report.skipped)
    for model in {**matrix, **findings, **undecided, **skipped}:
        if model:
            heap = CaseContent(findings.get(model, ()), undecided.get(model, ()), skipped.get(model, ()))
            cells = {name: cell for name, cell in matrix.get(model, {}).items() if cell.state != "not asked"}
            yield model, [*_stage_cases(report, heap, cells), *_runtime_cases(report, heap, cells)]


def project_cases(report: Report) -> list[JUnitCase]:
    """What is about no model: a test for each of its stages; the runtimes that are named stand in the text.

    Remarks are told by one that passes.
    """
    heap = CaseContent(
        _group_by_model(report.findings).get("", ()),
        _group_by_model(report.undecided).get("", ()),
        _group_by_model(report.skipped).get("", ()),
    )
    remarks = [JUnitCase("remarks", aside=tuple(report.remarks))] if report.remarks else []
    return [*(_select_stage(stage, heap).case(stage, _failing_levels(report)) for stage in _stages_of(heap)), *remarks]


def _group_by_model(items: Sequence[Item]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(item.model, []).append(item)
    return groups


def _failing_levels(report: Report) -> frozenset[str]:
    """Errors always; warnings where nothing else can have closed the gate."""
    errors = any(one.level == "error" and not one.ignored for one in report.findings)
    return frozenset(("error",) if errors or report.verdict != "fail" else ("error", "warning"))


def _stage_cases(report: Report, heap: CaseContent, cells: dict[str, Cell]) -> Iterator[JUnitCase]:
    """Stages that judge every model, and what is said of others without naming a runtime that has a test."""
    states = {cell.state for cell in cells.values()}
    rest = CaseContent(
        [one for one in heap.findings if not set(one.runtimes) & set(cells)],
        [
            one
            for one in heap.undecided
            if one.runtime not in cells and not _explains_every_cell(one, "undecided", states)
        ],
        [one for one in heap.skipped if one.runtime not in cells and not _explains_every_cell(one, "skipped", states)],
    )
    asked = [stage for stage in report.stages if stage in MODEL_STAGES]
    for stage in dict.fromkeys((*asked, *_stages_of(rest))):
        yield _select_stage(stage, rest).case(stage, _failing_levels(report))


def _explains_every_cell(item: NotDone, state: str, states: Container[str]) -> bool:
    """Whether it is why the model's runtimes have that state, and told there."""
    return not item.runtime and item.stage in RUNTIME_STAGES and state in states


def _stages_of(heap: CaseContent) -> list[str]:
    items: tuple[Finding | NotDone, ...] = (*heap.findings, *heap.undecided, *heap.skipped)
    return list(dict.fromkeys(one.stage for one in items))


def _select_stage(stage: str, heap: CaseContent) -> CaseContent:
    return CaseContent(
        [one for one in heap.findings if one.stage == stage],
        [one for one in heap.undecided if one.stage == stage],
        [one for one in heap.skipped if one.stage == stage],
    )


def _runtime_cases(report: Report, heap: CaseContent, cells: dict[str, Cell]) -> Iterator[JUnitCase]:
    for name, cell in cells.items():
        about = CaseContent(
            [one for one in heap.findings if name in one.runtimes],
            [
                one
                for one in heap.undecided
                if one.runtime == name or _explains_every_cell(one, "undecided", (cell.state,))
            ],
            [one for one in heap.skipped if one.runtime == name or _explains_every_cell(one, "skipped", (cell.state,))],
        )
        aside = (NOT_RUN_REASONS[cell.state],) if cell.state in NOT_RUN_REASONS else ()
        yield _adjust_to_cell(cell, about.case(name, _failing_levels(report), *aside), heap)


def _adjust_to_cell(cell: Cell, case: JUnitCase, heap: CaseContent) -> JUnitCase:
    """No better than the matrix says; where nothing names this runtime, the model's own findings are the reason."""
    wanted = CELL_OUTCOMES.get(cell.state, "")
    if OUTCOME_ORDER.index(case.outcome) >= OUTCOME_ORDER.index(wanted):
        return case
    errors = [one for one in heap.findings if one.level == "error" and not one.ignored]
    said = _item_lines(errors) if cell.state == "fail" else ()
    reason = said or (NOT_RUN_REASONS.get(cell.state, f"the matrix says: {cell.state}"),)
    return JUnitCase(case.name, wanted, cell.state, reason, (*case.said, *case.aside))


def _item_lines(items: Iterable[Finding | NotDone]) -> tuple[str, ...]:
    """What is said of each, on lines of ours; foreign strings may hold newlines of their own."""
    return tuple(
        line for item in items for line in (_finding_lines(item) if isinstance(item, Finding) else _gap_lines(item))
    )


def _finding_lines(finding: Finding) -> Iterator[str]:
    where = truncate(wording.format_place(finding.place))
    yield f"{finding.level} {finding.rule} at {where}: {wording.render_message_with_node(finding)}"
    if finding.fix:
        yield f"  fix: {truncate(finding.fix, LONG_LIMIT)}"
    if finding.ignored:
        yield f"  ignored: {truncate(finding.ignored)}"


def _gap_lines(item: NotDone) -> Iterator[str]:
    runtime = f" on {item.runtime}" if item.runtime else ""
    yield f"{item.stage}{runtime}: {truncate(item.reason, LONG_LIMIT)}"
    if item.hint:
        yield f"  hint: {item.hint}"
