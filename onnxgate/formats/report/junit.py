"""The report as JUnit XML: a suite for each model, a test for each runtime and for each stage that needs none.

A finding that fails the gate is a failure, an undecided check an error. A report has no times: each one is 0, as some
readers require the attribute.
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
"""Suite of findings and gaps without a model."""


@dataclass(frozen=True, slots=True)
class JUnitSuite:
    """A model, or the project, with its tests."""

    name: str
    cases: Sequence[JUnitCase]

    def count(self, outcome: str) -> int:
        """Return the number of cases with this outcome."""
        return sum(case.outcome == outcome for case in self.cases)


def format(report: Report) -> str:
    """Render an XML document with a final newline."""
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
        lines = list(_escape_lines(case.lines))
        shown = ElementTree.SubElement(element, case.outcome, {"message": lines[0] if lines else case.outcome})
        if case.outcome != "skipped":
            shown.attrib["type"] = escape_unprintable(truncate(case.type)) or case.outcome
        shown.text = "\n".join(lines)
    if case.aside:
        ElementTree.SubElement(element, "system-out").text = "\n".join(_escape_lines(case.aside))


def _escape_lines(lines: Iterable[str]) -> Iterator[str]:
    """Escape control characters, which XML excludes, and workflow commands, as logs may show the file."""
    return (neutralize_commands(escape_unprintable(line)) for line in lines)


Item = TypeVar("Item", Finding, NotDone)
Outcome = Literal["", "failure", "error", "skipped"]
RUNTIME_STAGES = ("support", "runtime", "parity")
"""Stages that check a model on each of its runtimes."""
MODEL_STAGES = ("file", "lock")
"""Stages that check every model; others get a test only for findings and gaps."""
OUTCOME_ORDER: tuple[Outcome, ...] = ("", "skipped", "error", "failure")
CELL_OUTCOMES: dict[str, Outcome] = {
    "fail": "failure",
    "undecided": "error",
    "skipped": "skipped",
    "not predicted": "skipped",
}
"""State of a cell -> outcome of its test, if it is not a pass."""
NOT_RUN_REASONS = {
    "predicted": "predicted from support data; nothing was run",
    "not predicted": wording.NOT_PREDICTED,
}


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """One test; `lines` explain its outcome, `aside` are its other lines."""

    name: str
    outcome: Outcome = ""
    type: str = ""
    lines: tuple[str, ...] = ()
    aside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseContent:
    """Findings and gaps of one test."""

    findings: Sequence[Finding] = ()
    undecided: Sequence[NotDone] = ()
    skipped: Sequence[NotDone] = ()

    def case(self, name: str, closing: frozenset[str], *aside: str) -> JUnitCase:
        """Return the test; its outcome is the worst one: failure, error, skipped, none."""
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
    """Yield each model with its tests: stages, then runtimes."""
    matrix = wording.cells_by_model(report)
    findings = _group_by_model(report.findings)
    undecided, skipped = _group_by_model(report.undecided), _group_by_model(report.skipped)
    for model in {**matrix, **findings, **undecided, **skipped}:
        if model:
            heap = CaseContent(findings.get(model, ()), undecided.get(model, ()), skipped.get(model, ()))
            cells = {name: cell for name, cell in matrix.get(model, {}).items() if cell.state != "not asked"}
            yield model, [*_stage_cases(report, heap, cells), *_runtime_cases(report, heap, cells)]


def project_cases(report: Report) -> list[JUnitCase]:
    """Return a test for each stage with findings or gaps without a model, and one that passes with all remarks."""
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
    """Return the levels that fail the gate: errors, and warnings if the gate fails without an error."""
    errors = any(one.level == "error" and not one.ignored for one in report.findings)
    return frozenset(("error",) if errors or report.verdict != "fail" else ("error", "warning"))


def _stage_cases(report: Report, heap: CaseContent, cells: dict[str, Cell]) -> Iterator[JUnitCase]:
    """Yield tests of MODEL_STAGES, and of stages with findings or gaps that no runtime's test contains."""
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
    checked = [stage for stage in report.stages if stage in MODEL_STAGES]
    for stage in dict.fromkeys((*checked, *_stages_of(rest))):
        yield _select_stage(stage, rest).case(stage, _failing_levels(report))


def _explains_every_cell(item: NotDone, state: str, states: Container[str]) -> bool:
    """Return True for a gap that the tests of all runtimes with that state contain."""
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
    """Return the test with at least the outcome of its cell, explained by the model's errors if need be."""
    wanted = CELL_OUTCOMES.get(cell.state, "")
    if OUTCOME_ORDER.index(case.outcome) >= OUTCOME_ORDER.index(wanted):
        return case
    errors = [one for one in heap.findings if one.level == "error" and not one.ignored]
    lines = _item_lines(errors) if cell.state == "fail" else ()
    reason = lines or (NOT_RUN_REASONS.get(cell.state, f"the matrix says: {cell.state}"),)
    return JUnitCase(case.name, wanted, cell.state, reason, (*case.lines, *case.aside))


def _item_lines(items: Iterable[Finding | NotDone]) -> tuple[str, ...]:
    """Return the lines of findings and gaps; strings from models may contain more newlines."""
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
