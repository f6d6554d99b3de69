"""Write the report as JUnit XML, with one test suite for each model.

A suite has a test for each runtime, and for each stage that does not depend on a runtime. A finding that makes the
check fail is written as a failure, and an undecided check as an error. All times are 0: reports contain no durations,
but some programs that read JUnit XML require the attribute.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from xml.etree import ElementTree

from onnxgate.core.escape import escape_log_line, escape_unprintable, neutralize_commands
from onnxgate.core.findings import UNDECIDED_RULE
from onnxgate.core.report import Cell, Finding, NotDone, Report
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats import wording

PROJECT_SUITE = "onnxgate"
"""Name of the test suite for findings and undecided or skipped checks that do not belong to a model."""


def format(report: Report) -> str:
    """Render the report as an XML document that ends with a newline."""
    root = ElementTree.Element("testsuites")
    for name, cases in _list_suites(report):
        if cases:
            _add_suite(root, name, cases)
    counts = {kind: str(sum(int(suite.attrib[kind]) for suite in root)) for kind in ("tests", "failures", "errors")}
    root.attrib.update({"name": "onnxgate", "time": "0", **counts})
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', *(neutralize_commands(line) for line in text.split("\n")), ""]
    return "\n".join(lines)


def _add_suite(root: ElementTree.Element, name: str, cases: Sequence[JUnitCase]) -> None:
    outcomes = Counter(case.outcome for case in cases)
    counts = {
        "tests": len(cases),
        "failures": outcomes["failure"],
        "errors": outcomes["error"],
        "skipped": outcomes["skipped"],
    }
    name = escape_unprintable(truncate(name))
    attributes = {"name": name, "time": "0", **{kind: str(number) for kind, number in counts.items()}}
    suite = ElementTree.SubElement(root, "testsuite", attributes)
    for case in cases:
        case_name = escape_unprintable(truncate(case.name))
        element = ElementTree.SubElement(suite, "testcase", {"classname": name, "name": case_name, "time": "0"})
        if case.outcome:
            lines = list(map(escape_log_line, case.lines))  # XML forbids control characters
            shown = ElementTree.SubElement(element, case.outcome, {"message": lines[0] if lines else case.outcome})
            if case.outcome != "skipped":
                shown.attrib["type"] = escape_unprintable(truncate(case.type)) or case.outcome
            shown.text = "\n".join(lines)
        if case.notes:
            ElementTree.SubElement(element, "system-out").text = "\n".join(map(escape_log_line, case.notes))


Outcome = Literal["", "failure", "error", "skipped"]
RUNTIME_STAGES = ("support", "runtime", "parity")
"""Stages that check every model on each runtime. Their results belong to the tests of the runtimes."""
MODEL_STAGES = ("file", "lock")
"""Stages that have a test in the suite of every model.

Other stages have a test only if they have findings, or undecided or skipped checks.
"""
OUTCOME_ORDER: tuple[Outcome, ...] = ("", "skipped", "error", "failure")
CELL_OUTCOMES: dict[str, Outcome] = {
    "fail": "failure",
    "undecided": "error",
    "skipped": "skipped",
    "not predicted": "skipped",
}
"""State of a model on a runtime -> outcome of the test for this runtime. With all other states, the test passes."""
PASSING_STATES = ("pass", "warning")
"""States of a model that ran on a runtime without an error."""
NOT_RUN_REASONS = {
    "predicted": "predicted from support tables; the model was not run",
    "not predicted": wording.NOT_PREDICTED,
}


@dataclass(frozen=True, slots=True)
class JUnitCase:
    """One JUnit test. `lines` explain its outcome; `notes` are lines of additional output."""

    name: str
    outcome: Outcome = ""
    type: str = ""
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaseContent:
    """Findings, and undecided and skipped checks, that belong to one JUnit test or test suite."""

    findings: list[Finding]
    undecided: list[NotDone]
    skipped: list[NotDone]

    @property
    def stages(self) -> list[str]:
        """Names of the stages that have findings, or undecided or skipped checks."""
        items: tuple[Finding | NotDone, ...] = (*self.findings, *self.undecided, *self.skipped)
        return list(dict.fromkeys(item.stage for item in items))

    def select(
        self, is_about: Callable[[Finding | NotDone], bool], states: Container[str] = (), *, elsewhere: bool = False
    ) -> CaseContent:
        """Return the findings and checks for which `is_about` is true or, with `elsewhere`, all others.

        `states` are the states of the selected table cells. An undecided or skipped check of a stage in RUNTIME_STAGES
        that names no runtime also matches if its state is in `states`; an ignored undecided check matches if the state
        "warning" is.
        """

        def selected(item: NotDone, state: str) -> bool:
            explains_cells = not item.runtime and item.stage in RUNTIME_STAGES and state in states
            return (is_about(item) or explains_cells) != elsewhere

        def explains_warnings(finding: Finding) -> bool:
            return finding.rule == UNDECIDED_RULE and finding.stage in RUNTIME_STAGES and "warning" in states

        return CaseContent(
            [it for it in self.findings if (is_about(it) or explains_warnings(it)) != elsewhere],
            [gap for gap in self.undecided if selected(gap, "undecided")],
            [gap for gap in self.skipped if selected(gap, "skipped")],
        )

    def case(self, name: str, failing_levels: Container[str], *notes: str) -> JUnitCase:
        """Return a JUnit test with the worst outcome of its findings and checks: failure, error, skipped or passed."""
        worst: list[Finding] = []
        accepted: list[Finding] = []
        harmless: list[Finding] = []
        for finding in self.findings:
            is_worst = finding.level in failing_levels and not finding.ignored
            kind = worst if is_worst else accepted if finding.rule == UNDECIDED_RULE else harmless
            kind.append(finding)
        others = _item_lines(harmless)
        undone, skipped = _item_lines(self.undecided), _item_lines([*accepted, *self.skipped])
        if worst:
            return JUnitCase(name, "failure", worst[0].rule, _item_lines(worst), (*notes, *undone, *skipped, *others))
        if undone:
            return JUnitCase(name, "error", "undecided", undone, (*notes, *skipped, *others))
        if skipped:
            return JUnitCase(name, "skipped", "", skipped, (*notes, *others))
        return JUnitCase(name, notes=(*notes, *others))


def _list_suites(report: Report) -> Iterator[tuple[str, list[JUnitCase]]]:
    matrix = wording.cells_by_model(report)
    contents = _group_by_model(report)
    for model in {**matrix, **contents}:
        if model:
            cells = {name: cell for name, cell in matrix.get(model, {}).items() if cell.state != "not selected"}
            content = contents[model]
            runtime_cases = (_runtime_case(report, content, cell) for cell in cells.values())
            yield model, [*_stage_cases(report, content, cells), *runtime_cases]
    project_stages = (_stage_case(stage, contents[""], report) for stage in contents[""].stages)
    remarks = [JUnitCase("remarks", notes=tuple(report.remarks))] if report.remarks else []
    yield PROJECT_SUITE, [*project_stages, *remarks]


def _group_by_model(report: Report) -> dict[str, CaseContent]:
    contents: dict[str, CaseContent] = defaultdict(lambda: CaseContent([], [], []))
    for finding in report.findings:
        contents[finding.model].findings.append(finding)
    for gap in report.undecided:
        contents[gap.model].undecided.append(gap)
    for gap in report.skipped:
        contents[gap.model].skipped.append(gap)
    return contents


def _failing_levels(report: Report) -> tuple[str, ...]:
    """Return the levels of findings that make the check fail: errors and, if it fails without any error, warnings."""
    errors = any(finding.level == "error" and not finding.ignored for finding in report.findings)
    return ("error",) if errors or report.verdict != "fail" else ("error", "warning")


def _stage_cases(report: Report, content: CaseContent, cells: Mapping[str, Cell]) -> Iterator[JUnitCase]:
    """Yield a test for each stage in MODEL_STAGES and for each other stage whose results are in no test of a runtime.

    Results are findings, and undecided or skipped checks.
    """
    states = {cell.state for cell in cells.values()}
    rest = content.select(lambda item: not cells.keys().isdisjoint(_runtimes_of(item)), states, elsewhere=True)
    checked = [stage for stage in report.stages if stage in MODEL_STAGES]
    for stage in dict.fromkeys((*checked, *rest.stages)):
        yield _stage_case(stage, rest, report)


def _stage_case(stage: str, content: CaseContent, report: Report) -> JUnitCase:
    return content.select(lambda item: item.stage == stage).case(stage, _failing_levels(report))


def _runtimes_of(item: Finding | NotDone) -> Sequence[str]:
    return item.runtimes if isinstance(item, Finding) else (item.runtime,)


def _runtime_case(report: Report, content: CaseContent, cell: Cell) -> JUnitCase:
    """Return the test of a model on one runtime. Its outcome is at least as bad as the state of the table cell.

    If no finding of this runtime explains the failure of the cell, all errors of the model are listed.
    """
    notes = (NOT_RUN_REASONS[cell.state],) if cell.state in NOT_RUN_REASONS else ()
    of_runtime = content.select(lambda item: cell.runtime in _runtimes_of(item), (cell.state,))
    if cell.state in PASSING_STATES:  # the model ran, and only the search for more details was skipped
        notes, of_runtime = (*notes, *_item_lines(of_runtime.skipped)), replace(of_runtime, skipped=[])
    case = of_runtime.case(cell.runtime, _failing_levels(report), *notes)
    outcome = CELL_OUTCOMES.get(cell.state, "")
    if OUTCOME_ORDER.index(case.outcome) >= OUTCOME_ORDER.index(outcome):
        return case
    errors = [finding for finding in content.findings if finding.level == "error" and not finding.ignored]
    lines = _item_lines(errors) if cell.state == "fail" else ()
    reason = lines or (NOT_RUN_REASONS.get(cell.state, f"result: {cell.state}"),)
    return JUnitCase(case.name, outcome, cell.state, reason, (*case.lines, *case.notes))


def _item_lines(items: Iterable[Finding | NotDone]) -> tuple[str, ...]:
    lines = []
    for item in items:
        if isinstance(item, Finding):
            place = truncate(wording.format_place(item.place))
            lines.append(f"{item.level} {item.rule} at {place}: {wording.render_message_with_node(item)}")
            lines += [f"  fix: {truncate(item.fix, LONG_LIMIT)}"] if item.fix else []
            new = "newly " if item.newly_ignored else ""
            lines += [f"  {new}ignored: {truncate(item.ignored)}"] if item.ignored else []
        else:
            runtime = f" on {item.runtime}" if item.runtime else ""
            lines.append(f"{item.stage}{runtime}: {truncate(item.reason, LONG_LIMIT)}")
            lines += [f"  hint: {item.hint}"] if item.hint else []
    return tuple(lines)
