"""Comparison of the input of a saturated activation, on runs by the reference implementation of ONNX."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgate.core.findings import IncompleteCheck, Stage
from onnxgate.core.jobs import InputCase, Optimization, Run, RunResult
from onnxgate.evidence.parity import find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.saturated_outputs import (
    SaturatedComparison,
    SaturatedOutput,
    find_saturated_outputs,
)
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.ranked_outputs import RankedOutputs
from onnxgate.project.config.schema import Tolerance
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.stage import NEGLIGIBLE, ParityEvidence, collect_evidence
from onnxgate.stages.runtime import ObservedRun, plan_run
from tests.gate.execution.parity.test_nearby_runs import Session
from tests.harness.models import parse
from tests.harness.recorded_runs import PLACE

DETECTOR = """g (float[4] x) => (float[4] y) {
  bias = Constant<value = float {-20.0}>()  logits = Add(x, bias)  y = Sigmoid(logits) }"""
RUNTIMES = {
    planned.name: planned
    for release in ("1.30.0", "1.31.1")
    for runtime in [LockedRuntime(engine="onnxruntime", release=release, python="3.11")]
    for planned in [PlannedRuntime(runtime, ("server",), ("all", "disabled"), ("CPUExecutionProvider",), True)]
}
MODEL = ParityModel("m.onnx", PLACE, NumericTraits(), None, None)
RANDOM = NumericTraits(random=("Bernoulli",), random_outputs=frozenset({"y"}))
UNDECIDED = IncompleteCheck(Stage.PARITY, "m.onnx", "", "any output near zero would pass", cause=f"{NEGLIGIBLE}y")


class Faulty(Session):
    """Runtimes whose optimizers change the first logit."""

    def _run(self, job: Run) -> RunResult:
        result = super()._run(job)
        if job.optimization == "all" and "logits" in result.outputs:
            path = result.cases[0].outputs[result.outputs.index("logits")]
            array = np.load(str(path))
            array[0] += 0.5
            np.save(str(path), array)
        return result


def _compare(
    session: Session,
    offset: float = 0.0,
    model: ParityModel = MODEL,
    text: str = DETECTOR,
    missing: tuple[IncompleteCheck, ...] = (),
) -> tuple[ParityEvidence, int]:
    """Compare a model on inputs around `offset`; also return how often the model with the exposed value ran."""
    path, inputs = session.place().with_suffix(".onnx"), session.place().with_suffix(".npy")
    onnx.save(parse(text), path)
    np.save(inputs, np.array([0.0, 1.0, 2.0, -1.0], np.float32) + np.float32(offset))
    case = InputCase(name="sizes", origin="generated", inputs={"x": str(inputs)})
    ran, levels = [], tuple[Optimization, ...](("all", "disabled"))
    for planned, level in itertools.product(RUNTIMES.values(), levels):
        folder = session.place()
        folder.mkdir()
        job = plan_run(path, (case,), planned, level, folder)
        ran.append(ObservedRun(planned.name, job, session.submit(planned, job, None).result()))
    session.jobs.clear()
    extra = ExtraRuns(RUNTIMES, session.submit, session.place)
    comparison = SaturatedComparison(extra, lambda it, _, runs: (collect_evidence(it, runs, None, ())[0], missing))
    return comparison.compare(model, path, onnx.load(path), ran, (UNDECIDED,)), len(session.jobs)


def test_equal_inputs_decide(tmp_path: Path) -> None:
    """If the inputs of the activation agree, the output is no longer undecided, and a note says what was compared."""
    (comparisons, (reason,)), count = _compare(Session(tmp_path))
    (difference,) = comparisons[0].differences

    assert ("y", "logits", True) == (difference.output, difference.compared, difference.agrees)
    assert (
        "output `y` saturates near zero with these inputs, so the input of its `Sigmoid` was compared instead"
        == reason.reason
    )
    assert reason.by_design
    assert count == 4


def test_different_inputs_are_a_mismatch(tmp_path: Path) -> None:
    """A fault before the activation is found, although the outputs are zero within their tolerance."""
    (comparisons, _), _ = _compare(Faulty(tmp_path))
    mismatches = [(it.pair, mismatch) for it in comparisons for mismatch in find_mismatches(it)]

    assert [("optimization", "y", "logits", "all")] * 2 == [
        (pair, mismatch.output, mismatch.compared, mismatch.optimization) for pair, mismatch in mismatches
    ]
    assert mismatches[0][1].value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("offset", "model", "text"),
    [
        (20.0, MODEL, DETECTOR),
        (0.0, replace(MODEL, tolerance={"y": Tolerance(rtol=0.0, atol=1e-3)}), DETECTOR),
        (0.0, replace(MODEL, ranked=(RankedOutputs({"y": None}),)), DETECTOR),
        (0.0, replace(MODEL, comparability=RANDOM), DETECTOR),
        (0.0, replace(MODEL, comparability=NumericTraits(quantized=True)), DETECTOR),
        (0.0, MODEL, "g (float[4] x) => (float[4] y) { z = Sub(x, x) y = Relu(z) }"),
    ],
    ids=["not saturated", "tolerance in the config", "depends on a selection", "random", "quantized", "no activation"],
)
def test_other_outputs_are_kept(tmp_path: Path, offset: float, model: ParityModel, text: str) -> None:
    """Nothing runs again for an output that is compared as it is."""
    assert (((), (UNDECIDED,)), 0) == _compare(Session(tmp_path), offset, model, text)


@pytest.mark.parametrize("level", ["all", "disabled"])
def test_output_is_undecided_if_a_run_fails(tmp_path: Path, level: str) -> None:
    """The input must be known for each runtime and level."""

    def refuses(job: Run) -> bool:
        names = [value.name for value in onnx.load(job.model).graph.output]
        return names != ["y"] and job.optimization == level

    evidence, count = _compare(Session(tmp_path, refuses))

    assert ((), (UNDECIDED,)) == evidence
    assert count == 4


def test_output_is_undecided_if_its_input_is(tmp_path: Path) -> None:
    """An input that cannot be compared either, such as an ill-conditioned one, does not decide."""
    (_, reasons), _ = _compare(Session(tmp_path), missing=(replace(UNDECIDED, cause="ill-conditioned logits"),))

    assert (UNDECIDED,) == reasons


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ("a = Relu(x) y = Sigmoid(a)", SaturatedOutput("y", "Sigmoid", "a")),
        ("a = Relu(x) b = Softmax(a) c = Transpose(b) y = Identity(c)", SaturatedOutput("y", "Softmax", "a")),
        ("a = Relu(x) b = Sigmoid(a) y = Mul(b, x)", None),
        ("y = Sigmoid(x)", None),
        ("y = Identity(x)", None),
    ],
)
def test_activation_is_found_through_other_shapes(nodes: str, found: SaturatedOutput | None) -> None:
    """Operators that keep all values may follow the activation, whose input must be computed."""
    graph = parse(f"g (float[4] x) => (float[4] y) {{ {nodes} }}").graph

    assert ([found] if found else []) == [*find_saturated_outputs(graph)]


def test_cycle_is_not_saturated() -> None:
    """A runtime may load a node that reads its own output; the search for an activation ends there."""
    cyclic = parse("g (float[A, B] x) => (float[B, A] y) { y = Transpose<perm = [1, 0]>(y) }")

    assert [*find_saturated_outputs(cyclic.graph)] == []
