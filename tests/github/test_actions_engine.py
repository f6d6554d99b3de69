"""The action in the small engine, which implements the runner's rules for logs, files and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.harness.github.actions_engine import ActionRun, Engine, StubFailure
from tests.harness.github.actions_expressions import condition, evaluate, interpolate
from tests.harness.github.workflow_commands import ANNOTATIONS_PER_LEVEL, annotations, commands
from tests.harness.repositories.checkout import ROOT, copy_tree

HOSTILE = "::error::owned ##[error]owned %0A::add-path::/evil"


def use(engine: Engine, project: str, **inputs: str) -> ActionRun:
    """Run the static stages on one of the projects."""
    copy_tree(ROOT / "fixtures/projects" / project, engine.workspace)
    return engine.use(stages="file,lock,support", **inputs)


def test_quickstart_passes(engine: Engine) -> None:
    """Every step succeeds, and there are no warnings or errors."""
    ran = use(engine, "quickstart")

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("success", "pass", "0"), ran.log
    assert [said for said in ran.annotations if said.name != "notice"] == []


def test_broken_fails_within_githubs_limits(engine: Engine) -> None:
    """The step of the gate fails; findings beyond GitHub's annotation limit are counted in one annotation."""
    ran = use(engine, "broken")

    outcomes = {name: step.outcome for name, step in ran.steps.items()}
    ran_at_all = dict.fromkeys(("setup", "packages", "install", "kept"), "success") | {"gate": "failure"}
    assert ran_at_all == {name: outcome for name, outcome in outcomes.items() if outcome != "skipped"}, ran.log
    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["exit-code"]) == ("failure", "fail", "1")
    errors = [said for said in annotations(ran.log) if said.name == "error"]
    assert int(ran.outputs["errors"]) > ANNOTATIONS_PER_LEVEL == len(errors)
    assert errors[-1].data.startswith(f"{int(ran.outputs['errors']) - 9} more errors")
    assert "ir-version-too-new" in ran.summary


def test_findings_of_a_failed_check_are_uploaded(engine: Engine) -> None:
    """The step that uploads them runs although the step before it failed, and a failed upload is a warning."""
    uploaded: list[str] = []

    def upload(values: Mapping[str, str]) -> dict[str, str]:
        uploaded.append(values["sarif_file"])
        raise StubFailure("no permission")

    uploading = replace(engine, stubs={**engine.stubs, "github/codeql-action/upload-sarif": upload})
    ran = use(uploading, "broken", sarif="true")

    assert (ran.conclusion, ran.steps["upload"].outcome) == ("failure", "failure"), ran.log
    assert [ran.outputs["sarif-file"]] == uploaded
    assert "the upload to code scanning failed" in ran.log


def test_summary_can_be_disabled(engine: Engine) -> None:
    """With `summary: false` nothing is added to the job summary."""
    ran = use(engine, "quickstart", summary="false")

    assert (ran.conclusion, ran.summary) == ("success", ""), ran.log


def test_hostile_names_are_not_executed(engine: Engine) -> None:
    """A file name that contains a workflow command is shown in the annotations but not executed."""
    (engine.workspace / f"{HOSTILE.replace('/', '-')}.onnx").write_text("no model", encoding="utf-8")

    ran = engine.use(paths="*.onnx")

    assert (ran.conclusion, ran.outputs["verdict"], ran.outputs["errors"]) == ("failure", "fail", "1"), ran.log
    [said] = commands(ran.log)
    assert said.properties["title"] == "not-a-model"
    assert "owned" in said.properties["file"]
    assert "owned" in ran.summary


def test_an_unknown_input_is_warned_of(engine: Engine) -> None:
    """An input that this release does not have causes a warning."""
    ran = replace(engine, stubs={**engine.stubs, "gate": lambda _: {}}).use(sarifs="true")

    assert (ran.conclusion, ran.warnings) == ("success", ["unexpected input `sarifs`"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inputs.a == 'x'", True),
        ("inputs.a == 'X' && inputs.none == ''", True),
        ("inputs.a != 'x' || !inputs.none", True),
        ("!(inputs.a == 'x')", False),
        ("failure()", False),
        ("'it''s'", "it's"),
        ("steps.s.outputs.some-name", "v"),
    ],
)
def test_expressions(text: str, expected: object) -> None:
    """Expressions are evaluated as GitHub does."""
    context = {"inputs": {"a": "x"}, "steps": {"s": {"outputs": {"some-name": "v"}}}, "status": {"failure": False}}
    actual = evaluate(text, context)

    assert expected == actual


def test_expressions_beyond_the_evaluator_are_refused() -> None:
    """Unsupported syntax is an error and is not evaluated as false."""
    with pytest.raises(ValueError, match="unknown syntax"):
        evaluate("inputs.a >= 1", {})


@pytest.mark.parametrize(("text", "expected"), [("inputs.a", False), ("always()", True), ("${{ failure() }}", True)])
def test_a_condition_implies_success(text: str, expected: bool) -> None:
    """After a failure, only steps with a matching status function run."""
    context = {"inputs": {"a": "x"}, "status": {"success": False, "failure": True, "always": True}}
    actual = condition(text, context)

    assert expected == actual


def test_interpolation() -> None:
    """Text around an expression is preserved."""
    assert interpolate("a ${{ inputs.b }} c", {"inputs": {"b": "${{ x }}"}}) == "a ${{ x }} c"
