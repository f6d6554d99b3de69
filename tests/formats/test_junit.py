"""JUnit reports are valid for Jenkins, readable for other tools, and never more positive than the verdict."""

from __future__ import annotations

import time
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Cell, CellState, Report
from onnxgate.formats import junit
from tests.harness.reports.hostile_reports import REPORTS
from tests.harness.reports.sample_reports import MINORS, finding, not_done, report, sample

# Attributes and children that Jenkins' schema (junit-10.xsd of its xUnit plugin) allows, and those that it requires.
ELEMENTS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "testsuites": ({"name", "time", "tests", "failures", "errors"}, set(), {"testsuite"}),
    "testsuite": (
        {"name", "tests", "failures", "errors", "time", "skipped"},
        {"name", "tests", "failures", "errors"},
        {"testcase"},
    ),
    "testcase": (
        {"name", "time", "classname"},
        {"name"},
        {"failure", "error", "skipped", "system-out"},
    ),
    "failure": ({"type", "message"}, {"message"}, set()),
    "error": ({"type", "message"}, {"message"}, set()),
    "skipped": ({"type", "message"}, {"message"}, set()),
    "system-out": (set(), set(), set()),
}
OUTCOMES = ("failure", "error", "skipped")
FIRST = f"onnxruntime {MINORS[0]}"


def check(element: ElementTree.Element) -> None:
    """Check an element and its descendants against the schema."""
    allowed, required, children = ELEMENTS[element.tag]
    assert required <= set(element.attrib) <= allowed
    for child in element:
        assert child.tag in children
        check(child)


def outcomes(judged: Report) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the outcome and text of each test, by suite and name."""
    root = ElementTree.fromstring(junit.format(judged))
    return {
        (suite.attrib["name"], case.attrib["name"]): (
            next((each.tag for each in case if each.tag in OUTCOMES), "passed"),
            "\n".join(filter(None, (each.text for each in case))),
        )
        for suite in root
        for case in suite
    }


def outcome_of(state: CellState, **changes: object) -> tuple[str, str]:
    """Return the outcome of the first runtime's test for a cell with that state."""
    cells = (Cell(model="m.onnx", runtime=FIRST, state=state),)
    return outcomes(report(cells=cells, **changes))["m.onnx", FIRST]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(judged=REPORTS)
def test_any_text_is_valid(judged: Report) -> None:
    """The XML is valid for Jenkins, its totals are correct, and each test has one outcome, whatever text the model
    contains.
    """
    root = ElementTree.fromstring(junit.format(judged))
    check(root)
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for suite in root:
        ended = [[each.tag for each in case if each.tag in OUTCOMES] for case in suite]
        counts = {"tests": len(ended), "failures": ended.count(["failure"]), "errors": ended.count(["error"])}
        assert counts == {name: int(suite.attrib[name]) for name in counts}
        assert ended.count(["skipped"]) == int(suite.attrib["skipped"])
        assert max(map(len, ended), default=0) <= 1
        totals = {name: totals[name] + counts[name] for name in totals}

    assert totals == {name: int(root.attrib[name]) for name in totals}


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(judged=REPORTS)
def test_every_error_and_incomplete_check_is_included(judged: Report) -> None:
    """Every error is in a failure, and every incomplete check is in an error or in a failure."""
    got = list(outcomes(judged).values())

    assert bool(judged.undecided) <= any(ended in ("error", "failure") for ended, _ in got)
    assert any(finding.level == "error" and not finding.ignored for finding in judged.findings) <= any(
        ended == "failure" for ended, _ in got
    )
    for shown in judged.findings:
        rule = escape_unprintable(shown.rule).replace("##[", r"#\x23[")
        assert any(f"{shown.level} {rule} at " in said for _, said in got)


def test_the_sample_as_readers_see_it() -> None:
    """`junitparser`, which GitHub test reporters use, reads the same totals."""
    junitparser = pytest.importorskip("junitparser")
    parsed = junitparser.JUnitXml.fromstring(junit.format(sample()).encode())

    assert [suite.name for suite in parsed] == [*(model.path for model in sample().models), "onnxgate"]
    assert (parsed.tests, parsed.failures, parsed.errors) == (44, 11, 10)


def test_the_sample() -> None:
    """Findings are failures on their runtimes, with the fix; incomplete checks are errors."""
    got = outcomes(sample())

    assert got["models/encoder.onnx", "onnxruntime 1.18.1"][0] == "failure"
    assert "fix: export at opset 21" in got["models/encoder.onnx", "onnxruntime 1.18.1"][1]
    assert got["models/encoder.onnx", "onnxruntime 1.20.1"] == ("passed", "")
    assert got["models/encoder.onnx", "onnxruntime 1.24.4"][0] == "error"
    assert got["models/tagger.onnx", "file"][0] == "failure"
    assert got["models/tagger.onnx", "export"][0] == "error"
    assert got["models/tagger.onnx", "onnxruntime 1.31.1"][0] == "error"
    assert got["models/legacy.onnx", "onnxruntime 1.18.1"] == ("passed", "")
    assert ("models/legacy.onnx", "export") not in got  # no `source`
    assert got["models/legacy.onnx", "file"][0] == "passed"  # its finding is ignored, and still shown
    assert "moves to opset 18" in got["models/legacy.onnx", "file"][1]
    assert got["onnxgate", "runtime"][0] == "skipped"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pass", "passed"),
        ("warning", "passed"),
        ("fail", "failure"),
        ("predicted", "passed"),
        ("not predicted", "skipped"),
        ("undecided", "error"),
        ("skipped", "skipped"),
    ],
)
def test_cell_state_decides_without_findings(state: CellState, expected: str) -> None:
    """The cell's state determines the outcome if there are no findings."""
    assert outcome_of(state)[0] == expected


def test_prediction_states_that_nothing_was_run() -> None:
    """A prediction passes, and its text states that nothing was run."""
    assert outcome_of("predicted")[1] == "predicted from support tables; the model was not run"


def test_undecided_check_on_a_passing_runtime_is_an_error() -> None:
    """An undecided check on a passing runtime, such as a missing comparison, is an error."""
    incomplete = not_done(stage="parity", runtime=FIRST)

    assert outcome_of("pass", undecided=incomplete)[0] == "error"


def test_skipped_check_on_a_passing_runtime_is_a_note() -> None:
    """The test of a runtime passes if the model ran, for example if only the first differing node was not found."""
    unfound = not_done(stage="parity", runtime=FIRST)

    assert outcome_of("pass", skipped=unfound)[0] == "passed"
    assert unfound[0].reason in outcome_of("pass", skipped=unfound)[1]
    assert outcome_of("skipped", skipped=unfound)[0] == "skipped"


def test_a_failure_hides_nothing_else() -> None:
    """A failure also contains the other findings and incomplete checks of the runtime."""
    ended, said = outcome_of(
        "fail",
        findings=(finding(runtimes=(FIRST,)), finding("is slow", level="warning", runtimes=(FIRST,))),
        undecided=not_done(runtime=FIRST),
    )

    assert ended == "failure"
    assert all(part in said for part in ("does not load", "is slow", "no interpreter was found"))


def test_finding_without_a_cell_is_in_its_stage() -> None:
    """A finding on a runtime without a cell is reported in the test of its stage."""
    got = outcomes(report(findings=(finding(runtimes=("onnxruntime 9.9.9",)),)))

    assert got["m.onnx", "runtime"][0] == "failure"


def test_warnings_fail_with_fail_on_warning() -> None:
    """With `--fail-on warning` a warning fails its test; otherwise it passes."""
    warnings = (finding(level="warning", runtimes=(FIRST,)),)

    assert outcome_of("warning", findings=warnings, verdict="fail", exit=1)[0] == "failure"
    assert outcome_of("warning", findings=warnings)[0] == "passed"


def test_control_characters_are_spelled() -> None:
    """XML 1.0 cannot contain control characters, even in escaped form."""
    text = junit.format(report(findings=(finding("a\x00b\x1bc\ufffed\udc80e\nf"),)))

    assert r"a\x00b\x1bc\ufffed\udc80e\nf" in text
    ElementTree.fromstring(text)


def test_many_failures_cost_little() -> None:
    """Findings are not compared with each other finding of their test."""
    failures = tuple(finding(f"operator {index}", stage="file") for index in range(20_000))
    before = time.process_time()

    text = junit.format(report(findings=failures))

    assert f"operator {len(failures) - 1}" in text
    assert time.process_time() - before < 3
