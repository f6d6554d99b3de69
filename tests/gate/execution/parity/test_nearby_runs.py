"""Runs on nearly equal inputs, executed by the reference implementation of ONNX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.core.jobs import CaseResult, Completed, Failure, InputCase, Job, Observation, Refused, Run, RunResult
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.nearby_runs import MIN_HALF_NOISE, RUNS_PER_LEVEL, NearbyRuns
from onnxgate.model.subgraphs.instrumented_models import SELECTION_NOISE
from onnxgate.numerics.ranking import NOISES
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits

NAME = "onnxruntime 1.31.1"
SELECTION = """<ir_version: 8, opset_import: ["" : 17]> g (float[6] x) => (float[2] v, int64[2] i) {
  k = Constant<value_ints = [2]>()  v, i = TopK(x, k) }"""
INTEGERS = """<ir_version: 8, opset_import: ["" : 17]> g (int64[6] x) => (int64[2] v, int64[2] i) {
  k = Constant<value_ints = [2]>()  v, i = TopK<axis = 0>(x, k) }"""


class Session:
    """Runs jobs by the reference implementation; models that `refuses` accepts are refused."""

    def __init__(self, folder: Path, refuses: Callable[[Run], bool] = lambda _: False) -> None:
        self.jobs: list[Run] = []
        self._folder, self._refuses, self._numbers = folder, refuses, itertools.count()

    def place(self) -> Path:
        """Return an unused path."""
        return self._folder / str(next(self._numbers))

    def submit(self, _: PlannedRuntime, job: Job, __: JobLimits | None) -> Future[Observation]:
        """Answer immediately."""
        assert isinstance(job, Run)
        self.jobs.append(job)
        future: Future[Observation] = Future()
        refusal = Refused(failure=Failure(type="Fail", text="not supported"))
        future.set_result(refusal if self._refuses(job) else Completed(result=self._run(job)))
        return future

    def _run(self, job: Run) -> RunResult:
        model = ReferenceEvaluator(job.model)
        results = []
        for number, case in enumerate(job.cases):
            arrays = model.run(None, read(case))
            paths = [str(Path(job.output) / f"{number}-{index}.npy") for index in range(len(arrays))]
            for path, array in zip(paths, arrays, strict=True):
                np.save(path, array)
            results.append(CaseResult(outputs=tuple(paths)))
        return RunResult(providers=(), outputs=tuple(model.output_names), cases=tuple(results))


def read(case: InputCase) -> dict[str, Any]:
    """Load the inputs of a case."""
    return {name: np.load(path) for name, path in case.inputs.items()}


def nearby(session: Session, text: str, values: Any, *, half: bool = False) -> NearbyRuns:
    """Write a model and a case, and return its runs on nearly equal inputs."""
    model, path = session.place().with_suffix(".onnx"), session.place().with_suffix(".npy")
    onnx.save(onnx.parser.parse_model(text), model)
    np.save(path, values)
    case = InputCase(name="sizes", origin="generated", inputs={"x": str(path)})
    runtime = LockedRuntime(engine="onnxruntime", release="1.31.1", python="3.11")
    planned = PlannedRuntime(runtime, ("server",), ("all",), ("CPUExecutionProvider",), required=True)
    extra = ExtraRuns({NAME: planned}, session.submit, session.place)
    return NearbyRuns(extra, model, (case,), half)


def select(runs: NearbyRuns, level: int = 0) -> list[list[int]]:
    """Return the indices that each run selects."""
    return [np.load(run["i"]).tolist() for run in runs.run(NAME, "all", "sizes", level)]


def test_only_unstable_items_change(tmp_path: Path) -> None:
    """An item far above all others is always selected; each of several equal items is selected by some run."""
    runs = nearby(Session(tmp_path), SELECTION, np.array([1.0, 1.0, 9.0, 1.0, 0.1, 1.0], np.float32))
    selected = select(runs)

    assert len(selected) == RUNS_PER_LEVEL
    assert {first for first, _ in selected} == {2}
    assert {second for _, second in selected} == {0, 1, 3, 5}


@pytest.mark.parametrize(("level", "share"), [*enumerate(NOISES)])
def test_inputs_change_by_their_share(tmp_path: Path, level: int, share: float) -> None:
    """Float inputs change by at most a share of the largest value."""
    session, values = Session(tmp_path), np.array([4.0, -2.0, 1.0, 0.5, 0.0, 3.0], np.float32)
    select(nearby(session, SELECTION, values), level)
    changes = [np.abs(read(case)["x"] - values).max() / 4.0 for case in session.jobs[0].cases]

    assert max(changes) <= 1.1 * share
    assert min(changes) > 0.1 * share


def test_runs_are_cached(tmp_path: Path) -> None:
    """Each level runs once; another level uses other inputs and noise."""
    session = Session(tmp_path)
    runs = nearby(session, SELECTION, np.ones(6, np.float32))

    assert select(runs, 1) == select(runs, 1)
    assert select(runs, 0) != select(runs, 1)
    assert len(session.jobs) == 2


def test_half_precision_needs_larger_changes(tmp_path: Path) -> None:
    """In 16 bits, smaller changes would have no effect."""
    session, values = Session(tmp_path), np.ones(6, np.float32)
    select(nearby(session, SELECTION, values, half=True))
    noises = {float(read(case)[SELECTION_NOISE]) for case in session.jobs[0].cases}
    changes = [np.abs(read(case)["x"] - values).max() for case in session.jobs[0].cases]

    assert noises == {float(np.float32(MIN_HALF_NOISE))}
    assert min(changes) > 0.1 * MIN_HALF_NOISE


def test_model_runs_without_noise(tmp_path: Path) -> None:
    """If a runtime refuses the model with noise, the model itself runs on the changed inputs."""
    session = Session(tmp_path, lambda job: SELECTION_NOISE in job.cases[0].inputs)
    selected = select(nearby(session, SELECTION, np.ones(6, np.float32)))

    assert [SELECTION_NOISE in job.cases[0].inputs for job in session.jobs] == [True, False]
    assert len(selected) == RUNS_PER_LEVEL
    assert len({tuple(indices) for indices in selected}) > 1


def test_only_equal_integers_change_places(tmp_path: Path) -> None:
    """Integers have no rounding errors, but runtimes may select others of several equal ones."""
    different = select(nearby(Session(tmp_path), INTEGERS, np.arange(6)))
    (tmp_path / "equal").mkdir()
    runs = nearby(Session(tmp_path / "equal"), INTEGERS, np.ones(6, np.int64))

    assert different == [[5, 4]] * RUNS_PER_LEVEL
    assert select(runs, 0) != select(runs, 1)


@pytest.mark.parametrize(("runtime", "case"), [("onnxruntime 1.18.1", "sizes"), (NAME, "sample")])
def test_unknown_runs(tmp_path: Path, runtime: str, case: str) -> None:
    """A runtime or a case that did not run has no further runs."""
    session = Session(tmp_path)

    assert nearby(session, SELECTION, np.ones(6, np.float32)).run(runtime, "all", case, 0) == ()
