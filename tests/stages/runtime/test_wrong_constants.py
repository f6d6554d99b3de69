"""Runs that fail or crash at a node whose constant inputs are wrong: the model's inputs are not the cause."""

from __future__ import annotations

from pathlib import Path

import msgspec
import onnx.parser
import pytest

from onnxgate.core.advice import correct_constant
from onnxgate.core.findings import Place
from onnxgate.core.jobs import Crashed, InputCase
from onnxgate.evidence.runtime import ModelRuns, is_unusable
from onnxgate.model.reading.view import ModelView
from onnxgate.rules.runtime.inputs_unusable import inputs_unusable
from onnxgate.rules.runtime.run_failed import run_failed
from onnxgate.rules.runtime.runtime_crashed import FIX, runtime_crashed
from onnxgate.stages.runtime import ExecutedModel, collect_evidence
from tests.harness.recorded_runs import PLACE, done, ran, refused

RUNTIME = "onnxruntime 1.31.1"
TEXT = (
    "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Non-zero status code returned while running {} node. Name:'{}' "
    "Status Message: indices element out of data bounds, idx=9 must be within the inclusive range [-4,3]"
)
CONSTANTS = "<float[4] k = {0, 1, 2, 3}, int64[1] wrong = {9}, int64[1] right = {3}>"
IN_GRAPH = f"(float[N] x, int64[1] i) => (float[N] y) {CONSTANTS} {{ z = Gather (k, wrong) [own] w = Gather (x, i) "
IN_GRAPH += "v = Add (z, w) y = Add (x, v) }"
IN_BRANCH = f"""(float[1] x, bool c) => (float[1] y) {CONSTANTS} {{
    b = If (c) <then_branch = t () => (float[1] z) {{ z = Gather (k, wrong) }},
                else_branch = e () => (float[1] o) {{ o = Gather (k, wrong) }}>
    y = Add (x, b) }}"""
RIGHT_AND_WRONG = IN_BRANCH.replace("o = Gather (k, wrong)", "o = Gather (k, right)")


def fail(graph: str, operator: str = "Gather", name: str = "", case: InputCase | None = None) -> ModelRuns:
    """Return the runs of a model of which one node fails."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {graph}')
    executed = ExecutedModel("m.onnx", PLACE, ModelView(model), Path(), Path())
    case = case or InputCase(name="generated inputs", origin="generated", inputs={})
    observation = done(refused(TEXT.format(operator, name)), outputs=("y",))
    (runs,), _ = collect_evidence(executed, [ran(RUNTIME, "all", observation, (case,))], {}, {})
    return runs


@pytest.mark.parametrize(
    ("graph", "operator", "name", "expected"),
    [
        (IN_GRAPH, "Gather", "", True),
        (IN_GRAPH, "Gather", "own", False),
        (IN_GRAPH, "GatherElements", "", False),
        (IN_GRAPH.replace("{9}", "{2}"), "Gather", "", False),
        (IN_BRANCH, "Gather", "", True),
        (RIGHT_AND_WRONG, "Gather", "", False),
    ],
)
def test_the_node_that_failed_has_wrong_constants(graph: str, operator: str, name: str, expected: bool) -> None:
    """A node of the graph always runs; one in a branch must be distinguished from nodes with valid constants."""
    runs = fail(graph, operator, name)

    assert (expected, not expected) == (
        runs.attempts[0].refusal.wrong_constant is not None,
        is_unusable(runs.attempts[0], runs),
    )


def test_wrong_constants_are_an_error_of_the_model() -> None:
    """The finding names the node and its constant, and suggests no other inputs."""
    runs = fail(IN_GRAPH)
    (hit,) = run_failed.judge(runs)

    assert [] == [*inputs_unusable.judge(runs)]
    assert hit.message == (
        "loads but fails to run because the index 9 is out of range for 4 elements (`Gather`, the node that makes `z`)"
    )
    assert hit.fix == correct_constant("Gather")


def test_values_that_were_guessed_for_a_branch_may_be_invalid() -> None:
    """No valid input may lead to the branch with the wrong constants."""
    guessed = InputCase(name="c = true", origin="generated", inputs={}, chosen={"c": True})
    runs = fail(IN_BRANCH, case=guessed)

    assert is_unusable(runs.attempts[0], runs)


def test_place_of_wrong_constants() -> None:
    """The finding is at the source line of the node if it is known."""
    runs = fail(IN_GRAPH)
    (attempt,) = runs.attempts
    assert attempt.refusal.wrong_constant is not None
    wrong = msgspec.structs.replace(attempt.refusal.wrong_constant, place=Place("build.py", 3))
    refusal = msgspec.structs.replace(attempt.refusal, wrong_constant=wrong)
    attempts = (msgspec.structs.replace(attempt, refusal=refusal),)
    (hit,) = run_failed.judge(msgspec.structs.replace(runs, attempts=attempts))

    assert Place("build.py", 3) == hit.place


IN_MAIN_GRAPH = "(int64[2] x) => (int64[2] y) <int64[2] d = {0, 1}> { a = Neg (x) [own] y = Div (a, d) }"
OF_ANY_SIZE = "(int64[N] x) => (int64[N] y) <int64[1] d = {0}> { a = Neg (x) [own] y = Div (a, d) }"
NOT_ALWAYS = """(int64[2] x, bool c) => (int64[2] y) <int64[2] d = {0, 1}> {
    y = If (c) <then_branch = t () => (int64[2] z) { z = Div (x, d) },
                else_branch = e () => (int64[2] o) { o = Neg (x) }> }"""


def crash(graph: str, signal: str, during: str = "case generated inputs") -> ModelRuns:
    """Return the runs of a model that crashes."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]> g {graph}')
    executed = ExecutedModel("m.onnx", PLACE, ModelView(model), Path(), Path())
    case = InputCase(name="generated inputs", origin="generated", inputs={})
    crashed = Crashed(signal=signal, during=during, log="")
    (runs,), _ = collect_evidence(executed, [ran("onnxruntime 1.18.1", "all", crashed, (case,))], {}, {})
    return runs


@pytest.mark.parametrize(
    ("graph", "signal", "expected"),
    [
        (IN_MAIN_GRAPH, "SIGFPE", True),
        (IN_MAIN_GRAPH, "SIGSEGV", False),
        (IN_MAIN_GRAPH.replace("{0, 1}", "{2, 1}"), "SIGFPE", False),
        (IN_MAIN_GRAPH.replace("Neg (x)", "Div (x, i)").replace("x)", "x, int64[2] i)", 1), "SIGFPE", None),
        (IN_MAIN_GRAPH.replace("Neg (x)", "Div (x, d)"), "SIGFPE", True),
        (IN_MAIN_GRAPH.replace("int64[2] x", "int64[0] x"), "SIGFPE", False),
        (OF_ANY_SIZE, "SIGFPE", True),
        (OF_ANY_SIZE.replace("Neg (x)", "Div (x, d)"), "SIGFPE", None),
        (NOT_ALWAYS, "SIGFPE", None),
        (NOT_ALWAYS.replace("{0, 1}", "{2, 1}"), "SIGFPE", False),
    ],
)
def test_a_division_by_zero_crashes(graph: str, signal: str, *, expected: bool | None) -> None:
    """The node is certainly the cause if it runs with all inputs, and no other node may divide by 0."""
    wrong = crash(graph, signal).attempts[0].end.wrong_constant

    assert expected == ((wrong.is_certain or None) if wrong is not None else False)


def test_a_possible_cause_of_a_crash() -> None:
    """The finding is not about the node, and suggests reporting the crash if the constant is not the cause."""
    (hit,) = runtime_crashed.judge(crash(NOT_ALWAYS, "SIGFPE"))

    assert hit.message == (
        "crashes the runtime when run with `generated inputs`, possibly because integers are divided by a constant 0 "
        "(`Div`, the node that makes `z`)"
    )
    assert ("", f"correct the constant input of `Div`; if the model still crashes, {FIX}") == (hit.node, hit.fix)


@pytest.mark.parametrize(
    ("during", "phase"), [("case generated inputs", "run with `generated inputs`"), ("load", "loaded")]
)
def test_a_crash_because_of_a_constant_is_an_error_of_the_model(during: str, phase: str) -> None:
    """The finding names the node, and does not suggest reporting the crash."""
    (hit,) = runtime_crashed.judge(crash(IN_MAIN_GRAPH, "SIGFPE", during))

    assert hit.message == (
        f"crashes the runtime when {phase} because integers are divided by a constant 0 (`Div`, node `own`)"
    )
    assert (hit.node, hit.fix) == ("own", correct_constant("Div"))
