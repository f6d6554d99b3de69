"""Differences from the source below the default tolerance, on runs by the reference implementation of ONNX."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgate.core.jobs import InputCase, Run
from onnxgate.evidence.parity import find_mismatches
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.small_differences import NOT_CLOSER, FreshRuns, SmallDifferences
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.model.ranked_outputs import RankedOutputs
from onnxgate.numerics.tolerance import NoiseMeasurement
from onnxgate.project.lock.types import LockedModel, LockedRuntime, MeasuredTolerance
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.parity.stage import ParityEvidence, collect_evidence
from onnxgate.stages.runtime import ObservedRun, plan_run
from tests.gate.execution.parity.test_nearby_runs import Session
from tests.harness.models import parse
from tests.harness.recorded_runs import PLACE, saved

VALUES = np.linspace(0.5, 1.0, 8, dtype=np.float32)
RUNTIMES = {
    planned.name: planned
    for release in ("1.30.0", "1.31.1")
    for runtime in [LockedRuntime(engine="onnxruntime", release=release, python="3.11")]
    for planned in [PlannedRuntime(runtime, ("server",), ("disabled",), ("CPUExecutionProvider",), True)]
}
MODEL = ParityModel("m.onnx", PLACE, NumericTraits(), None, None, noise=NoiseMeasurement())
BOUND = 1e-6


def _write(session: Session, offset: float, names: tuple[str, str]) -> Path:
    """Write a model that adds `offset` to its input; `names` are those of input and output."""
    path, (name, output) = session.place().with_suffix(".onnx"), names
    text = f"b = Constant<value = float {{{offset}}}>() {output} = Add({name}, b)"
    onnx.save(parse(f"g (float[8] {name}) => (float[8] {output}) {{ {text} }}"), path)
    return path


def _compare(
    session: Session, committed: float, fresh: float, bound: float = BOUND, model: ParityModel = MODEL
) -> tuple[list[tuple[str, float]], list[str], int]:
    """Compare a model that adds `committed` with a source that adds 1, when a fresh export adds `fresh`.

    Return the mismatches as runtime and bound, the reasons, and the number of additional runs.
    """
    fresh_names = ("other_input", "other_name")
    paths = {offset: _write(session, offset, it) for offset, it in ((fresh, fresh_names), (committed, ("x", "y")))}
    inputs = session.place().with_suffix(".npy")
    np.save(inputs, VALUES)
    case = InputCase(name="sizes", origin="generated", inputs={"x": str(inputs)})
    folder = session.place()
    folder.mkdir()
    eager = {"sizes": saved(folder, VALUES + np.float32(1))}
    ran = []
    for planned in RUNTIMES.values():
        job = plan_run(paths[committed], (case,), planned, "disabled", folder)
        ran.append(ObservedRun(planned.name, job, session.submit(planned, job, None).result()))
    session.jobs.clear()
    compare = partial(collect_evidence, eager=eager, unusable=())
    export = FreshRuns(
        ExtraRuns(RUNTIMES, session.submit, session.place), paths[fresh], onnx.load(paths[committed]), (case,)
    )
    usual: ParityEvidence = compare(model, ran)
    _, (comparisons, reasons) = SmallDifferences(export).compare(model, {"y": bound}, ran, compare, usual)
    mismatches = [(it.runtime, mismatch.bound) for it in comparisons for mismatch in find_mismatches(it)]
    return mismatches, [reason.reason for reason in reasons], len(session.jobs)


def test_a_small_fault_is_found(tmp_path: Path) -> None:
    """A difference within the default tolerance is reported on each runtime if the fresh export is correct."""
    assert ([(name, BOUND) for name in RUNTIMES], [], 1) == _compare(Session(tmp_path), 1.00001, 1.0)


def test_a_fault_is_found_in_spite_of_an_approximation(tmp_path: Path) -> None:
    """The fresh export may also differ, but much less."""
    assert [(name, BOUND) for name in RUNTIMES] == _compare(Session(tmp_path), 1.00002, 1.000002)[0]


def test_approximations_of_the_runtime_are_a_note(tmp_path: Path) -> None:
    """If the fresh export differs as much as the model, the runtime is less exact than the source."""
    mismatches, (reason,), _ = _compare(Session(tmp_path), 1.00001, 1.00001)

    assert mismatches == []
    assert reason == (
        "output `y` differs from the source by 1e-05, beyond the tolerance measured from the source (1e-06) but within "
        f"the default tolerance; {NOT_CLOSER}"
    )


@pytest.mark.parametrize(("fresh", "is_fault"), [(1.0, True), (1.00001, False)])
def test_tolerances_in_the_lock_are_confirmed_as_well(tmp_path: Path, fresh: float, *, is_fault: bool) -> None:
    """A runtime that is less exact than the source exceeds a recorded tolerance with each export, too."""
    locked = LockedModel(
        sha256="", size_bytes=0, ir_version=8, opsets={}, tolerance={"y": MeasuredTolerance(noise=1e-7, bound=BOUND)}
    )
    model = replace(MODEL, locked=locked, noise=None)
    mismatches, reasons, _ = _compare(Session(tmp_path), 1.00001, fresh, model=model)

    assert mismatches == ([(name, BOUND) for name in RUNTIMES] if is_fault else [])
    assert len(reasons) == (0 if is_fault else 1)


def test_a_fresh_export_that_does_not_run_confirms_nothing(tmp_path: Path) -> None:
    """The note says why the difference is not reported as an error."""

    def refuses(job: Run) -> bool:
        return onnx.load(job.model).graph.output[0].name == "other_name"

    mismatches, (reason,), _ = _compare(Session(tmp_path, refuses), 1.00001, 1.0)

    assert mismatches == []
    assert reason.endswith("; a fresh export does not run on onnxruntime 1.31.1")


def test_large_differences_need_no_confirmation(tmp_path: Path) -> None:
    """A difference beyond the default tolerance is a mismatch without a run of the fresh export."""
    mismatches, _, runs = _compare(Session(tmp_path), 1.1, 1.0)

    assert (len(mismatches), runs) == (2, 0)


@pytest.mark.parametrize(
    ("offset", "model"),
    [
        (1.0, MODEL),
        (1.00001, replace(MODEL, ranked=(RankedOutputs({"y": None}),))),
        (1.00001, replace(MODEL, noise=None)),
    ],
    ids=["equal", "ranked", "not measured"],
)
def test_other_outputs_need_no_run(tmp_path: Path, offset: float, model: ParityModel) -> None:
    """Equal outputs, selected items and outputs with unknown rounding errors are compared as usual."""
    assert ([], [], 0) == _compare(Session(tmp_path), offset, 1.0, model=model)
