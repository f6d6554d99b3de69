"""Branches that no input case reached, and probes that are dropped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core.findings import Place
from onnxgate.core.jobs import CaseResult, Completed, Failure, InputCase, Run, RunResult
from onnxgate.evidence.runtime import (
    Attempt,
    AttemptCase,
    ModelRuns,
    Refusal,
    UnreachedBranch,
    explain_unusable,
    is_unusable,
)
from onnxgate.inputs.cases import CaseGenerator
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.stages.branch_coverage import BranchCoverage
from onnxgate.stages.runtime import ExecutedModel, ObservedRun, collect_evidence

RATE = """<ir_version: 8, opset_import: ["" : 17]> g (float[N] x, int64 sr) => (float[N] y) <int64 k = {16000}> {
    c = Equal(sr, k)
    [choice] y = If(c) <then_branch = a () => (float[N] z) { z = Relu(x) },
                        else_branch = b () => (float[N] w) { w = Neg(x) }> }"""
SIZE = """<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) <int64[1] k = {7}> {
    s = Shape(x) c = Equal(s, k)
    [choice] y = If(c) <then_branch = a () => (float[N] z) { z = Relu(x) },
                        else_branch = b () => (float[N] w) { w = Neg(x) }> }"""
NESTED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[N] x, bool deep, int64 sr) => (float[N] y) <int64 k = {16000}> {
    [outer] y = If(deep) <then_branch = a () => (float[N] z) {
        c = Equal(sr, k)
        [inner] z = If(c) <then_branch = c () => (float[N] u) { u = Relu(x) },
                           else_branch = d () => (float[N] v) { v = Abs(x) }> },
      else_branch = b () => (float[N] w) { w = Neg(x) }> }"""
DATA = """<ir_version: 8, opset_import: ["" : 17]> g (float[N] x) => (float[N] y) <float k = {0.5}> {
    m = ReduceMean<keepdims = 0>(x) e = Exp(m) c = Greater(e, k)
    y = If(c) <then_branch = a () => (float[N] z) { z = Relu(x) },
               else_branch = b () => (float[N] w) { w = Neg(x) }> }"""


def _coverage(folder: Path, text: str, inputs: Sequence[dict[str, np.ndarray]]) -> tuple[BranchCoverage, list[str]]:
    path = folder / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    reading = read_model(path, "m.onnx")
    cases = []
    for index, arrays in enumerate(inputs):
        paths = {name: str(folder / f"{index}-{name}.npy") for name in arrays}
        for name, array in arrays.items():
            np.save(paths[name], array)
        cases.append(InputCase(name=str(index), origin="user", inputs=paths, sizes={"N": arrays["x"].shape[0]}))
    generator = CaseGenerator(reading.facts, reading.view, {})
    return BranchCoverage(reading.facts, generator, cases, folder, folder), [case.name for case in cases]


def _runs(*attempts: Attempt) -> ModelRuns:
    return ModelRuns(model="m.onnx", place=Place("onnxgate.lock", 3), runtime="onnxruntime 1.31.1", attempts=attempts)


def _attempt(name: str, outcome: str = "completed") -> Attempt:
    return Attempt(optimization="all", outcome=outcome, case=AttemptCase(name=name, origin="user"))  # type: ignore[arg-type]


def _wave(size: int = 4) -> np.ndarray:
    return np.ones(size, np.float32)


def test_users_inputs_that_miss_a_branch(tmp_path: Path) -> None:
    """The note names the value that would choose the branch."""
    coverage, _ = _coverage(tmp_path, RATE, [{"x": _wave(), "sr": np.array(16000)}])

    assert coverage.find_unreached(_runs(_attempt("0"))) == (
        UnreachedBranch(words="node `choice`", branch="else", node="choice", values={"sr": 8000}, inputs=("sr",)),
    )


def test_cases_that_reach_all_branches(tmp_path: Path) -> None:
    """Two cases together reach both branches, even if one of them failed, which has its own finding."""
    inputs = [{"x": _wave(), "sr": np.array(16000)}, {"x": _wave(), "sr": np.array(11025)}]
    coverage, _ = _coverage(tmp_path, RATE, inputs)

    assert coverage.find_unreached(_runs(_attempt("0"), _attempt("1"))) == ()
    assert coverage.find_unreached(_runs(_attempt("0"), _attempt("1", "run-refused"))) == ()
    assert len(coverage.find_unreached(_runs(_attempt("0")))) == 1


def test_size_that_would_choose_a_branch(tmp_path: Path) -> None:
    """For a condition on a shape, the note names the size."""
    coverage, _ = _coverage(tmp_path, SIZE, [{"x": _wave()}])
    (branch,) = coverage.find_unreached(_runs(_attempt("0")))

    assert (branch.branch, branch.sizes, branch.values) == ("then", {"N": 7}, {})


def test_nested_branch_names_all_inputs_that_it_needs(tmp_path: Path) -> None:
    """The value of the outer condition is named too, also if the given inputs already have it."""
    inputs = [{"x": _wave(), "deep": np.array(False), "sr": np.array(1)}]
    inputs += [{"x": _wave(), "deep": np.array(True), "sr": np.array(1)}]
    shallow, _ = _coverage(tmp_path, NESTED, inputs[:1])
    deep, _ = _coverage(tmp_path, NESTED, inputs)
    found = [
        {branch.words: branch.values for branch in coverage.find_unreached(runs)}
        for coverage, runs in ((shallow, _runs(_attempt("0"))), (deep, _runs(_attempt("0"), _attempt("1"))))
    ]

    assert found == [{"node `outer`": {"deep": True}}, {"node `inner`": {"deep": True, "sr": 16000}}]


@pytest.mark.parametrize("outcome", ["crashed", "load-refused", "run-refused"])
def test_model_that_did_not_run_has_no_note(tmp_path: Path, outcome: str) -> None:
    """The failure itself is reported instead."""
    coverage, _ = _coverage(tmp_path, RATE, [{"x": _wave(), "sr": np.array(16000)}])

    assert coverage.find_unreached(_runs(_attempt("0", outcome))) == ()


def test_computed_condition_is_known_only_from_a_run(tmp_path: Path) -> None:
    """The result of `Exp` is not evaluated, so nothing is claimed until a runtime has computed the condition."""
    coverage, _ = _coverage(tmp_path, DATA, [{"x": _wave()}])
    runs = _runs(_attempt("0"))
    (branch,) = coverage.find_unreached(runs, {"0": {"c": np.array([True])}})

    assert coverage.list_computed_conditions(runs) == ("c",)
    assert coverage.find_unreached(runs) == ()
    assert (branch.branch, branch.words, branch.inputs) == ("else", "the node that makes `y`", ())


def test_conditions_on_shapes_are_not_computed_from_data(tmp_path: Path) -> None:
    """They are evaluated from the shapes."""
    coverage, _ = _coverage(tmp_path, SIZE, [{"x": _wave()}])

    assert coverage.list_computed_conditions(_runs(_attempt("0"))) == ()


@pytest.mark.parametrize("accepted", [False, True])
def test_probe_that_fails_everywhere_is_dropped(tmp_path: Path, accepted: bool) -> None:
    """Sizes of a probe are a guess, so a failure counts only if another runtime accepts them."""
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(SIZE), path)
    reading = read_model(path, "m.onnx")
    np.save(tmp_path / "x.npy", _wave(7))
    inputs = {"x": str(tmp_path / "x.npy")}
    usual = InputCase(name="usual", origin="generated", inputs=inputs, sizes={"N": 7})
    probe = InputCase(name="probe", origin="generated", inputs=inputs, sizes={"N": 7}, probe=True)
    good, bad = CaseResult(outputs=(inputs["x"],)), CaseResult(failure=Failure(type="Fail", text="does not fit"))
    runs = [
        ObservedRun(
            name,
            Run(model=str(path), cases=(usual, probe), output=""),
            Completed(result=RunResult(providers=(), outputs=("y",), cases=(good, result))),
        )
        for name, result in (("onnxruntime 1.18.1", bad), ("onnxruntime 1.31.1", good if accepted else bad))
    ]
    model = ExecutedModel("m.onnx", Place("onnxgate.lock", 3), reading.view, tmp_path, tmp_path, 0, reading.facts)
    subjects, _ = collect_evidence(model, runs, {}, {})
    names = [[(attempt.case.name, attempt.outcome) for attempt in subject.attempts] for subject in subjects]
    kept = [("probe", "run-refused")], [("probe", "completed")]

    assert names == [[("usual", "completed"), *(extra if accepted else [])] for extra in kept]


@pytest.mark.parametrize(
    ("completed", "named", "guessed", "is_bad_input"),
    [
        ({"sr": 16000}, (), (), True),
        ({"sr": 16000}, ("sr",), (), False),
        ({"sr": 16000}, ("sr",), ("N",), True),
        ({"sr": 8000}, (), (), False),
    ],
)
def test_value_is_blamed_only_if_no_run_accepted_it(
    completed: dict[str, int], named: tuple[str, ...], guessed: tuple[str, ...], is_bad_input: bool
) -> None:
    """A value that ran with another batch size, or with which the graph compares the input, is not the cause."""
    failure = Failure(type="InvalidArgument", text="cannot be reshaped")
    case = AttemptCase(name="b", origin="generated", sizes={"N": 3}, chosen={"sr": 8000}, named=named, guessed=guessed)
    failed = Attempt(optimization="all", outcome="run-refused", case=case, refusal=Refusal(failure=failure))
    other = Attempt(
        optimization="all",
        outcome="completed",
        case=AttemptCase(name="a", origin="generated", sizes={"N": 3}, chosen=completed),
    )

    assert is_unusable(failed, _runs(other, failed)) == is_bad_input


@pytest.mark.parametrize(("assumed", "is_bad_input"), [({}, True), ({"size": (2.0,)}, True), ({"size": (3.0,)}, False)])
def test_guessed_sizes_are_blamed_only_if_no_run_accepted_them(
    assumed: dict[str, tuple[float, ...]], is_bad_input: bool
) -> None:
    """A run that fails with guessed values from which sizes are computed is not an error, unless others work."""
    failure = Failure(type="InvalidArgument", text="cannot be reshaped")
    case = AttemptCase(name="b", origin="generated", assumed={"size": (3.0,)})
    failed = Attempt(optimization="all", outcome="run-refused", case=case, refusal=Refusal(failure=failure))
    ran = AttemptCase(name="a", origin="generated", assumed=assumed)
    other = Attempt(optimization="all", outcome="completed", case=ran)

    assert is_unusable(failed, _runs(other, failed)) == is_bad_input
    assert explain_unusable(failed) == (
        "sizes are computed from the values of `size`, which were guessed and may be invalid"
    )
