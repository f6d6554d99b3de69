"""JUnit: what the plugin of Jenkins takes, what a reader of others sees, and nothing better than it is."""

from __future__ import annotations

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
    """Hold an element and all below it to what is allowed."""
    allowed, required, children = ELEMENTS[element.tag]
    assert required <= set(element.attrib) <= allowed
    for child in element:
        assert child.tag in children
        check(child)


def outcomes(judged: Report) -> dict[tuple[str, str], tuple[str, str]]:
    """How each test ended and what it says, by suite and name."""
    root = ElementTree.fromstring(junit.format(judged))
    return {
        (suite.attrib["name"], case.attrib["name"]): (
            next((each.tag for each in case if each.tag in OUTCOMES), "passed"),
            "\n".join(filter(None, (each.text for each in case))),
        )
        for suite in root
        for case in suite
    }


def one(state: CellState, **changes: object) -> tuple[str, str]:
    """How the test of the first runtime ended where its cell has that state."""
    cells = (Cell(model="m.onnx", runtime=FIRST, state=state),)
    return outcomes(report(cells=cells, **changes))["m.onnx", FIRST]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(judged=REPORTS)
def test_whatever_a_model_says(judged: Report) -> None:
    """It is XML that Jenkins takes; totals agree with what is there; a test ends in one way."""
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
def test_nothing_is_lost(judged: Report) -> None:
    """An error is in some failure, what was not done in an error or in what failed for graver reasons."""
    got = list(outcomes(judged).values())

    assert bool(judged.undecided) <= any(ended in ("error", "failure") for ended, _ in got)
    assert any(each.level == "error" and not each.ignored for each in judged.findings) <= any(
        ended == "failure" for ended, _ in got
    )
    for each in judged.findings:
        rule = escape_unprintable(each.rule).replace("##[", r"#\x23[")
        assert any(f"{each.level} {rule} at " in said for _, said in got)


def test_the_sample_as_readers_see_it() -> None:
    """`junitparser`, which test reporters on GitHub are built on, counts the same."""
    junitparser = pytest.importorskip("junitparser")
    parsed = junitparser.JUnitXml.fromstring(junit.format(sample()).encode())

    assert [suite.name for suite in parsed] == [*(model.path for model in sample().models), "onnxgate"]
    assert (parsed.tests, parsed.failures, parsed.errors) == (37, 11, 10)


def test_the_sample() -> None:
    """Failures on the runtimes concerned, with the fix; what could not be done is an error there."""
    got = outcomes(sample())

    assert got["models/encoder.onnx", "onnxruntime 1.18.1"][0] == "failure"
    assert "fix: export at opset 21" in got["models/encoder.onnx", "onnxruntime 1.18.1"][1]
    assert got["models/encoder.onnx", "onnxruntime 1.20.1"] == ("passed", "")
    assert got["models/encoder.onnx", "onnxruntime 1.24.4"][0] == "error"
    assert got["models/tagger.onnx", "file"][0] == "failure"
    assert got["models/tagger.onnx", "export"][0] == "error"
    assert got["models/tagger.onnx", "onnxruntime 1.31.1"][0] == "error"
    assert ("models/legacy.onnx", "onnxruntime 1.18.1") not in got  # not asked for
    assert ("models/legacy.onnx", "export") not in got  # it has no source
    assert got["models/legacy.onnx", "file"][0] == "passed"  # what is wrong with it is ignored, and said
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
def test_no_better_than_the_matrix(state: CellState, expected: str) -> None:
    """A cell alone decides how its test ended, also where nothing else is said."""
    assert one(state)[0] == expected


def test_a_prediction_says_that_nothing_was_run() -> None:
    """It passes where no more was asked for, and is not mistaken for a run."""
    assert one("predicted")[1] == "predicted from support tables, not run"


def test_what_is_undecided_on_a_runtime_that_passed_is_no_pass() -> None:
    """A run that could not be compared, say."""
    undone = not_done(stage="parity", runtime=FIRST)

    assert one("pass", undecided=undone)[0] == "error"


def test_a_failure_hides_nothing_else() -> None:
    """What else is said of the runtime stands beside it."""
    ended, said = one(
        "fail",
        findings=(finding(runtimes=(FIRST,)), finding("is slow", level="warning", runtimes=(FIRST,))),
        undecided=not_done(runtime=FIRST),
    )

    assert ended == "failure"
    assert all(part in said for part in ("does not load", "is slow", "no interpreter was found"))


def test_a_finding_on_a_runtime_without_a_test_is_told_by_its_stage() -> None:
    """A runtime that is not among the model's cells, or was not asked for there."""
    got = outcomes(report(findings=(finding(runtimes=("onnxruntime 9.9.9",)),)))

    assert got["m.onnx", "runtime"][0] == "failure"


def test_warnings_fail_where_they_closed_the_gate() -> None:
    """With `--fail-on warning` there is no error to show; without it a warning passes."""
    warnings = (finding(level="warning", runtimes=(FIRST,)),)

    assert one("warning", findings=warnings, verdict="fail", exit=1)[0] == "failure"
    assert one("warning", findings=warnings)[0] == "passed"


def test_control_characters_are_spelled() -> None:
    """XML 1.0 cannot hold them, however they are escaped."""
    text = junit.format(report(findings=(finding("a\x00b\x1bc\ufffed\udc80e\nf"),)))

    assert r"a\x00b\x1bc\ufffed\udc80e\nf" in text
    ElementTree.fromstring(text)
