"""Generated inputs on a real runtime: no failures and only finite outputs, for many seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from onnxgate.core.jobs import Completed, InputCase, Run, RunResult
from onnxgate.inputs import cases as inputs_cases
from onnxgate.inputs import roles
from onnxgate.model.reading.fact_extraction import read_model
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.conftest import ROOT
from tests.inputs.role_models import HEAD, MODELS

pytestmark = pytest.mark.index
RELEASE = "1.31.1"
SEEDS = range(20)
Try = Callable[[str, Path], list[str]]


@dataclass(frozen=True, slots=True)
class Newest:
    """A real runtime and its worker pool."""

    host: WorkerPool
    seat: WorkerSpec


@pytest.fixture(scope="module")
def newest(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Newest]:
    """Yield the newest release in the quickstart project's lock."""
    lock = load_lock(ROOT / "fixtures" / "projects" / "quickstart" / "onnxgate.lock")
    every = [runtime for target in lock.targets.values() for runtime in target.runtimes]
    (runtime,) = (each for each in every if each.release == RELEASE)
    with WorkerPool(Environments(shared_folder / "a cache", offline=False), 1, JobLimits(time_s=60)) as host:
        host.show(tmp_path_factory.getbasetemp())
        yield Newest(host, WorkerSpec.of_runtime(runtime, lock.packages, ROOT))


@pytest.fixture
def faults(newest: Newest) -> Try:
    """Return a function that runs a model with all seeds and returns failures and non-finite outputs."""

    def attempt(text: str, folder: Path) -> list[str]:
        path = folder / "model.onnx"
        onnx.save(_filled(onnx.parser.parse_model(HEAD + text)), path)
        reading = read_model(path, "model.onnx")
        cases: list[InputCase] = []
        for seed in SEEDS:
            made = inputs_cases.generate_cases(reading.facts, reading.view, {}, folder / str(seed), (), seed)
            cases += [msgspec.structs.replace(case, name=f"{case.name}, seed {seed}") for case in made]
        (folder / "output").mkdir()
        job = Run(model=str(path), cases=tuple(cases), output=str(folder / "output"))
        return list(_faults(cases, newest.host.submit(newest.seat, job).result()))

    return attempt


def _filled(model: onnx.ModelProto) -> onnx.ModelProto:
    """Add values for weights that the text declares without values."""
    made = {name for node in model.graph.node for name in node.output}
    for value in list(model.graph.value_info):
        if value.name not in made:
            shape = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
            weight = np.random.default_rng(0).random(shape, dtype=np.float32)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weight, value.name))
            model.graph.value_info.remove(value)
    return model


def _faults(cases: list[InputCase], answer: object) -> Iterator[str]:
    if not isinstance(answer, Completed) or not isinstance(answer.result, RunResult):
        yield str(answer)
        return
    for case, result in zip(cases, answer.result.cases, strict=True):
        if result.failure is not None:
            yield f"{case.name}: {result.failure.text}"
        arrays = (np.load(path, allow_pickle=False) for path in result.outputs if path is not None)
        if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays):
            yield f"{case.name}: not finite"


@pytest.mark.parametrize("name", MODELS)
def test_inputs_do_not_fail_by_themselves(name: str, faults: Try, tmp_path: Path) -> None:
    """Generated inputs cause no failures, for all seeds and sizes."""
    assert faults(MODELS[name], tmp_path) == []


BOUNDS = {
    "index": ("index that is scaled", "INDEX_INPUTS", "Gather"),
    "length": ("lengths of a recurrence", "AXIS_LENGTH_INPUTS", "GRU"),
    "domain": ("probability", "INPUT_DOMAINS", ("Log", 0)),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_without_its_bound_it_fails(bound: str, faults: Try, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its bound the model fails, so the model really tests that bound."""
    name, table, entry = BOUNDS[bound]
    monkeypatch.delitem(getattr(roles, table), entry)

    assert faults(MODELS[name], tmp_path) != []
