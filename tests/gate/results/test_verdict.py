"""Verdict and cells of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.commands.files_without_config import make_request
from onnxgate.core.findings import ALL_STAGES, STATIC_STAGES, IncompleteCheck, Place, Stage
from onnxgate.core.report import Finding, Report
from onnxgate.evidence.runtime import Attempt, AttemptCase, ModelRuns
from onnxgate.gate import pipeline
from onnxgate.gate.request import ExecutionResult, StageResults, StepResult, create_execution_result
from onnxgate.gate.results.verdict import build_report
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Ignore
from tests.harness.models import write
from tests.harness.sharded_outcomes import make_project, report_of, request_of


class Counted(tuple[Finding, ...]):
    """Findings that count how often they are iterated."""

    walks = 0

    def __iter__(self) -> Iterator[Finding]:
        Counted.walks += 1
        return super().__iter__()


def test_findings_are_not_searched_for_each_cell(tmp_path: Path) -> None:
    """The findings are not searched again for each cell, because thousands of models have thousands of findings."""
    double = "g (double[1, 3, 8, 8] x, double[4, 3, 3, 3] w) => (double[1, 4, 6, 6] y) { y = Conv(x, w) }"
    for number in range(3):
        write(tmp_path / f"{number}.onnx", double)
    request = make_request([tmp_path], None, tmp_path, 1)
    outcome = pipeline.run(request)
    report = build_report(request, replace(outcome, findings=Counted(outcome.findings)), "error")

    assert {cell.state for cell in report.cells if cell.runtime == "onnxruntime 1.18.1"} == {"fail"}
    assert len(report.cells) > 100
    assert Counted.walks < 20


def test_errors_fail_the_cells_that_they_concern(tmp_path: Path) -> None:
    """An error without runtimes fails all cells of its model in each set of stages; an ignored one is a warning."""
    project = make_project(tmp_path / "project")
    for stages in (frozenset({Stage.LOCK}), frozenset({Stage.FILE, Stage.LOCK}), frozenset(STATIC_STAGES)):
        request = request_of(project, stages)
        outcome = pipeline.run(request)
        errors = [finding for finding in outcome.findings if finding.rule == "unlocked-model"]
        runtime = outcome.planned[0].runtimes[0].name
        partial = replace(outcome, findings=tuple(replace(error, runtimes=(runtime,)) for error in errors))
        ignored = replace(outcome, findings=tuple(replace(error, ignored="known") for error in errors))
        noted = replace(outcome, findings=tuple(replace(it, level="note") for it in ignored.findings))

        assert {cell.state for cell in build_report(request, outcome, "error").cells} == {"fail"}
        cells = build_report(request, partial, "error").cells
        assert {cell.runtime for cell in cells if cell.state == "fail"} == {runtime}
        assert {cell.state for cell in build_report(request, ignored, "error").cells} == {"warning"}
        assert "warning" not in {cell.state for cell in build_report(request, noted, "error").cells}


def test_a_model_with_a_static_error_is_not_predicted(tmp_path: Path) -> None:
    """A model that is not locked fails on every runtime, although its operators are supported there."""
    project = make_project(tmp_path / "project")
    request = request_of(project, frozenset(STATIC_STAGES))
    outcome = pipeline.run(request)
    report = build_report(request, outcome, "error")
    without_errors = build_report(request, replace(outcome, findings=()), "error")

    assert {finding.rule for finding in report.findings if finding.level == "error" and finding.model} == {
        "unlocked-model"
    }
    assert {cell.state for cell in report.cells} == {"fail"}
    assert {cell.state for cell in without_errors.cells} == {"predicted"}


def test_a_missing_comparison_does_not_concern_the_runtimes(tmp_path: Path) -> None:
    """A runtime on which the model ran is `pass` without the source; one on which it did not run is undecided."""
    request = request_of(make_project(tmp_path / "project"), frozenset(ALL_STAGES))
    source = IncompleteCheck(Stage.PARITY, "a.onnx", "", "torch is not installed")
    ran = ExecutionResult(StepResult(undone=(source,)), ran=frozenset({("a.onnx", "onnxruntime 1.18.1")}))
    report = report_of(request, StageResults(execution=ran))

    assert {cell.runtime: cell.state for cell in report.cells if cell.model == "a.onnx"} == {
        "onnxruntime 1.18.1": "pass",
        "onnxruntime 1.19.2": "undecided",
    }
    assert (report.exit, [it.reason for it in report.undecided]) == (3, ["torch is not installed"])


def test_a_run_that_did_not_complete_is_undecided(tmp_path: Path) -> None:
    """A runtime is never `pass` if a case did not complete, or if no case could be run."""
    request = request_of(make_project(tmp_path / "project"), frozenset(ALL_STAGES))
    runtimes = ("onnxruntime 1.18.1", "onnxruntime 1.19.2")
    failed = ModelRuns(model="a.onnx", place=Place("a.onnx"), runtime=runtimes[0], attempts=())
    undone = IncompleteCheck(Stage.RUNTIME, "a.onnx", runtimes[1], "no inputs could be generated")
    execution = ExecutionResult(
        StepResult(undone=(undone,)), ran=frozenset(("a.onnx", name) for name in runtimes), faulty=(failed,)
    )
    report = report_of(request, StageResults(execution=execution))

    assert [cell.state for cell in report.cells if cell.model == "a.onnx"] == ["undecided", "undecided"]


def test_a_run_that_passed_is_a_pass_whatever_else_is_unknown(tmp_path: Path) -> None:
    """Incomplete and skipped checks of other questions do not hide that the model ran; the check stays undecided."""
    request = request_of(make_project(tmp_path / "project"), frozenset(ALL_STAGES))
    runtimes = ("onnxruntime 1.18.1", "onnxruntime 1.19.2")
    passed = [
        ModelRuns(model="a.onnx", place=Place("a.onnx"), runtime=name, attempts=(attempt_of(case),))
        for name, case in zip(runtimes, ("generated inputs", ""), strict=True)
    ]
    undone = (
        IncompleteCheck(Stage.RUNTIME, "a.onnx", "", "axis `n` in the config is in no model", prevents_run=False),
        IncompleteCheck(Stage.RUNTIME, "a.onnx", "", "the budget could not be checked", prevents_run=False),
        IncompleteCheck(Stage.RUNTIME, "a.onnx", runtimes[1], "no inputs can be generated"),
        IncompleteCheck(Stage.PARITY, "a.onnx", "", "torch is not installed"),
    )
    unfound = (IncompleteCheck(Stage.PARITY, "a.onnx", runtimes[0], "the first node that differs was not found"),)
    report = report_of(
        request, StageResults(execution=create_execution_result(StepResult((), undone, unfound), passed))
    )

    assert [cell.state for cell in report.cells if cell.model == "a.onnx"] == ["pass", "undecided"]
    assert report.exit == 3


def attempt_of(case: str) -> Attempt:
    """Return a completed run of an input case; a load if the case has no name."""
    return Attempt(optimization="all", outcome="completed", case=AttemptCase(name=case))


def accept_undecided(project: Project, stages: frozenset[Stage], *undone: IncompleteCheck) -> Report:
    """Return the report of a check in which the config accepts undecided checks of all models."""
    entry = Ignore(rule="undecided", reason="random graph")
    config = replace(project.config, ignore=(entry,))
    request = request_of(dataclasses.replace(project, config=config), stages)
    ran = frozenset({("a.onnx", "onnxruntime 1.18.1")})
    return report_of(request, StageResults(execution=ExecutionResult(StepResult(undone=undone), ran=ran)))


def test_an_accepted_undecided_check_is_never_a_pass(tmp_path: Path) -> None:
    """The check passes; the reason and the ignore are reported once, and the cells that it concerns are warnings."""
    undone = [
        IncompleteCheck(stage, "a.onnx", "", "does not run", cause="inputs") for stage in (Stage.PARITY, Stage.RUNTIME)
    ]
    report = accept_undecided(make_project(tmp_path / "project"), frozenset(ALL_STAGES), *undone)

    assert (report.verdict, report.exit, report.undecided) == ("pass", 0, ())
    assert [("undecided", "does not run", "random graph")] == [
        (finding.rule, finding.message, finding.ignored) for finding in report.findings if finding.model == "a.onnx"
    ]
    assert {cell.state for cell in report.cells if cell.model == "a.onnx"} == {"warning"}
    assert report.counts["ignored"] == 1


def test_an_accepted_comparison_does_not_concern_runs(tmp_path: Path) -> None:
    """A runtime on which the model ran stays `pass` if only a comparison is missing, accepted or not."""
    undone = IncompleteCheck(Stage.PARITY, "a.onnx", "", "all elements are NaN", cause="nan y")
    report = accept_undecided(make_project(tmp_path / "project"), frozenset(ALL_STAGES), undone)

    assert {cell.runtime: cell.state for cell in report.cells if cell.model == "a.onnx"} == {
        "onnxruntime 1.18.1": "pass",
        "onnxruntime 1.19.2": "warning",
    }


@pytest.mark.parametrize(
    ("undone", "stages"),
    [
        (IncompleteCheck(Stage.RUNTIME, "a.onnx", "", "the disk is full"), ALL_STAGES),
        (IncompleteCheck(Stage.LOCK, "", "", "the base was not fetched", cause="inputs"), ALL_STAGES),
        (IncompleteCheck(Stage.PARITY, "a.onnx", "", "does not run", cause="inputs"), (Stage.PARITY, Stage.EXPORT)),
    ],
    ids=["fault of the machine", "fault of the project", "no other stage checked the model"],
)
def test_undecided_checks_that_no_ignore_accepts(
    tmp_path: Path, undone: IncompleteCheck, stages: Sequence[Stage]
) -> None:
    """An ignore hides neither a fault outside of the model nor that nothing was checked."""
    report = accept_undecided(make_project(tmp_path / "project"), frozenset(stages), undone)

    assert (report.verdict, report.exit) == ("undecided", 3)
    assert [it.reason for it in report.undecided] == [undone.reason]


def test_the_fingerprint_of_an_undecided_check_depends_only_on_model_and_cause() -> None:
    """The stage, the runtime and the message of the runtime have no effect."""
    first = IncompleteCheck(Stage.RUNTIME, "a.onnx", "", "requested shape {3,5}", cause="inputs")
    second = IncompleteCheck(Stage.PARITY, "a.onnx", "onnxruntime 1.31.1", "shape {3,5} requested", cause="inputs")

    assert first.fingerprint == second.fingerprint != ""
    assert first.fingerprint != dataclasses.replace(first, model="b.onnx").fingerprint
    assert first.fingerprint != dataclasses.replace(first, cause="source").fingerprint
