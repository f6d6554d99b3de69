"""Models are in memory only while they are evaluated, and large weights are read only when needed."""

from __future__ import annotations

import gc
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core.findings import Place, Stage
from onnxgate.core.jobs import Failure, Job, Load, Observation, Refused, Run
from onnxgate.gate.execution import executor
from onnxgate.gate.request import ExecutionResult, ExecutionSettings, RunnableModel
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.model.reading.omitted_data import find_omitted_data
from onnxgate.model.reading.structure import LIGHT_BYTES
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import PlannedModel
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.gate.execution.test_size_retries import NEW, Runtimes, _planned
from tests.harness.locks import project_of
from tests.harness.models import RELU, parse

CONFIG = 'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n'
LARGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2000] x) => (float[2000] y, float[COUNT] z) { y = Add(x, bias) z = Neg(table) }"""


class WatchedRuntimes(Runtimes):
    """Runtimes that call `watch` before each job, and reject all models if `text` is not empty."""

    def __init__(self, watch: Callable[[Job], None], text: str = "") -> None:
        super().__init__(lambda _, __: True, None, text)
        self._watch, self._refusal = watch, text

    def submit(self, worker_spec: WorkerSpec, job: Job, *, limits: JobLimits | None = None) -> Future[Observation]:
        """Reject a model, or answer immediately."""
        self._watch(job)
        if not self._refusal or not isinstance(job, Load | Run):
            return super().submit(worker_spec, job, limits=limits)
        future: Future[Observation] = Future()
        future.set_result(Refused(failure=Failure(type="Fail", text=self._refusal)))
        return future


def execute(folder: Path, host: WatchedRuntimes, watch: Callable[..., None] | None = None) -> ExecutionResult:
    """Run all models of the folder for all stages that need no source."""
    project = project_of(folder, CONFIG)
    models = [
        RunnableModel(
            PlannedModel(selected, (_planned(NEW),)),
            read_facts(selected.absolute, selected.path),
            Place("onnxgate.lock"),
        )
        for selected in project.models()
    ]
    settings = ExecutionSettings(
        project, Lock(targets={}, models={}), frozenset({Stage.RUNTIME, Stage.PARITY}), watch=watch
    )
    with executor.execute(models, settings, cast("Any", host)) as result:
        return result


def remove(path: Path) -> None:
    """Remove a model if it exists."""
    path.unlink(missing_ok=True)


def spoil(path: Path) -> None:
    """Replace a model by a truncated one."""
    path.write_bytes(b"\x08\x08\x3a\x7f")


def replace_by_another(path: Path) -> None:
    """Replace a model by another valid one."""
    onnx.save(parse(RELU.replace("Relu", "Abs")), path)


def list_views() -> list[ModelView]:
    """List the models that are in memory."""
    gc.collect()
    return [held for held in gc.get_objects() if isinstance(held, ModelView)]


def save_large_model(path: Path) -> None:
    """Save a model of `LIGHT_BYTES` whose nodes read a large weight, and one of 8,000 bytes."""
    count = LIGHT_BYTES // 4
    model = onnx.parser.parse_model(LARGE.replace("COUNT", str(count)))
    for name, size in (("bias", 2000), ("table", count)):
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(size, np.float32), name))
    path.write_bytes(model.SerializeToString())


def test_one_model_is_in_memory_at_a_time(tmp_path: Path) -> None:
    """No model is in memory during runs, and only one at a time while results are evaluated."""
    for name in ("a.onnx", "b.onnx", "c.onnx"):
        onnx.save(parse(), tmp_path / name)
    before = len(list_views())
    during_runs: list[int] = []
    while_judged: list[int] = []

    host = WatchedRuntimes(lambda job: during_runs.append(len(list_views())) if isinstance(job, Run) else None)
    execute(tmp_path, host, lambda *_: while_judged.append(len(list_views())))

    assert [before] * 6 == during_runs
    assert [before + 1] * 3 == while_judged


@pytest.mark.parametrize("change", [remove, spoil, replace_by_another])
def test_model_that_changes_during_the_check(tmp_path: Path, change: Callable[[Path], object]) -> None:
    """Only the changed model is undecided, even if the new file is valid, because some runs used the old one."""
    onnx.save(parse(), tmp_path / "a.onnx")
    onnx.save(parse(), tmp_path / "m.onnx")

    def watch(job: Job) -> None:
        if isinstance(job, Run) and job.model.endswith("m.onnx"):
            change(tmp_path / "m.onnx")

    incomplete = execute(tmp_path, WatchedRuntimes(watch)).step.undone

    changed = [(it.model, it.stage) for it in incomplete if it.reason == "the model files changed during the check"]
    assert [("m.onnx", Stage.PARITY), ("m.onnx", Stage.RUNTIME)] == changed


def test_large_weights_stay_in_the_file(tmp_path: Path) -> None:
    """Weights of models above 8 MB stay in the file, also during evaluation."""
    save_large_model(tmp_path / "m.onnx")
    before = {id(view) for view in list_views()}
    omitted: list[list[str]] = []

    def watch(*_: object) -> None:
        views = [view for view in list_views() if id(view) not in before]
        omitted.extend([name for name, tensor in view.tensors if find_omitted_data(tensor)] for view in views)

    execute(tmp_path, WatchedRuntimes(lambda _: None), watch)

    assert [["bias", "table"]] == omitted


def test_isolated_nodes_keep_their_weights(tmp_path: Path) -> None:
    """A kernel may require a constant that was omitted from the model in memory, so it is read from the file."""
    save_large_model(tmp_path / "m.onnx")
    constants: dict[str, list[int]] = {}

    def watch(job: Job) -> None:
        if isinstance(job, Load):
            graph = onnx.load(job.model).graph
            constants[graph.node[0].op_type] = [len(tensor.raw_data) for tensor in graph.initializer]

    execute(tmp_path, WatchedRuntimes(watch, "Could not find an implementation for Add(14) node"))

    assert {"Add": [8000], "Neg": []} == constants
