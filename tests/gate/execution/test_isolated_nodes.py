"""Loading single nodes: which jobs are submitted to runtimes, and when the search ends."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import onnx
import onnx.parser
import pytest

from onnxgate.core.findings import IncompleteCheck, Place, Stage
from onnxgate.core.jobs import Completed, Crashed, Failure, Load, LoadResult, Observation, Refused
from onnxgate.gate.execution import failed_runs
from onnxgate.gate.execution.failed_runs import NodeLoader
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.isolated_nodes import LevelRefusal, RefusingRuntime
from onnxgate.stages.runtime import ExecutedModel

REFUSED = Failure(type="Fail", text="[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: no")
UNKNOWN = RefusingRuntime(
    (LevelRefusal("all", REFUSED, ""), LevelRefusal("disabled", REFUSED, "")), None, in_full=False
)
LOADS = Completed(result=LoadResult(providers=("CPUExecutionProvider",)))
CRASHED = Crashed(signal="SIGSEGV", during="load", log="")


def planned(release: str) -> PlannedRuntime:
    """Return a runtime with a provider and an extension."""
    runtime = LockedRuntime(engine="onnxruntime", release=release, python="3.11")
    return PlannedRuntime(runtime, ("server",), ("all", "disabled"), ("Some",), required=True, extensions=("more",))


OLD, NEW = planned("1.9.0"), planned("1.10.0")


def run_model(folder: Path, operators: int = 3, ir_version: int = 10) -> ExecutedModel:
    """Return a model with that many kinds of nodes."""
    body = " ".join(f"y{n} = Elu <alpha = {n}.5> (x)" for n in range(operators))
    text = f'<ir_version: {ir_version}, opset_import: ["" : 18]> g (float[2] x) => (float[2] y0) {{ {body} }}'
    return ExecutedModel("m.onnx", Place("onnxgate.lock", 3), ModelView(onnx.parser.parse_model(text)), folder, folder)


class Answering:
    """Answers jobs immediately and records them."""

    def __init__(self, answer: Callable[[Load], Observation | None]) -> None:
        self.asked: list[tuple[str, Load]] = []
        self.futures: list[Future[Observation]] = []
        self.written: list[int] = []
        self._answer = answer

    def __call__(self, runtime: PlannedRuntime, job: Load) -> Future[Observation]:
        """Submit a job; its future is never completed if there is no answer."""
        future: Future[Observation] = Future()
        self.asked.append((runtime.name, job))
        self.futures.append(future)
        self.written.append(Path(job.model).stat().st_mtime_ns)
        observation = self._answer(job)
        if observation is not None:
            future.set_result(observation)
        return future


def test_each_kind_is_loaded_once_per_runtime_and_level(tmp_path: Path) -> None:
    """Each kind of node is loaded once per runtime and level; identical nodes share a file, also across models."""
    answering = Answering(lambda _: LOADS)
    asking = NodeLoader(answering, tmp_path / "nodes")
    asking.examine(run_model(tmp_path), {OLD: UNKNOWN, NEW: UNKNOWN})
    asking.examine(run_model(tmp_path), {OLD: UNKNOWN})

    assert 2 * 2 * 3 == len(answering.asked)
    assert 3 == len({job.model for _, job in answering.asked}) == len(list((tmp_path / "nodes").iterdir()))
    assert 3 == len(set(answering.written))
    assert {("all", ("Some",), ("more",)), ("disabled", ("Some",), ("more",))} == {
        (job.optimization, job.providers, job.extensions) for _, job in answering.asked
    }


def test_omitted_lists_are_read_from_the_model(tmp_path: Path) -> None:
    """Attributes omitted from memory are read from the file, because a runtime must not receive an empty attribute."""
    body = f"y = ai.onnx.ml.LinearRegressor <coefficients = {[0.5] * 2000}> (x)"
    text = f'<ir_version: 8, opset_import: ["ai.onnx.ml" : 1]> g (float[2, 2000] x) => (float[2, 1] y) {{ {body} }}'
    complete = onnx.parser.parse_model(text)
    onnx.save(complete, tmp_path / "m.onnx")
    view = read_view(tmp_path / "m.onnx", large_bytes=0)
    assert view.proto != complete

    answering = Answering(lambda _: LOADS)
    model = ExecutedModel("m.onnx", Place("onnxgate.lock", 3), view, tmp_path, tmp_path)
    NodeLoader(answering, tmp_path).examine(model, {OLD: UNKNOWN})
    assert [complete.graph.node[0]] * 2 == [onnx.load(job.model).graph.node[0] for _, job in answering.asked]


def test_node_has_its_models_ir_version_unless_rejected(tmp_path: Path) -> None:
    """A node has the model's IR version, unless the release rejects it, because it would reject the node as well."""
    answering = Answering(lambda _: LOADS)
    too_new = Failure(type="Fail", text="Unsupported model IR version: 10, max supported IR version: 8")
    NodeLoader(answering, tmp_path).examine(run_model(tmp_path, 1), {OLD: UNKNOWN})
    NodeLoader(answering, tmp_path).examine(
        run_model(tmp_path, 1), {NEW: RefusingRuntime((LevelRefusal("all", too_new, ""),), None, in_full=False)}
    )

    assert [10, 10, 7] == [onnx.load(job.model).ir_version for _, job in answering.asked]


def test_number_of_loaded_kinds_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of tested node kinds is limited, and the limit is reported."""
    monkeypatch.setattr(failed_runs, "MAX_NODE_KINDS", 2)
    answering = Answering(lambda _: LOADS)
    examined = NodeLoader(answering, tmp_path).examine(run_model(tmp_path), {OLD: UNKNOWN})

    reason = "support was tested for only 2 of 3 distinct nodes (limits: 2 nodes, 60 s, 3 crashes)"
    assert [IncompleteCheck(Stage.RUNTIME, "m.onnx", "onnxruntime 1.9.0", reason)] == examined.skipped
    assert 4 == len(answering.asked)


def test_crashes_end_the_search(tmp_path: Path) -> None:
    """The search ends after a few crashes, because each of them costs a process."""
    answering = Answering(lambda _: CRASHED)
    examined = NodeLoader(answering, tmp_path).examine(run_model(tmp_path, 5), {OLD: UNKNOWN})

    assert ["3 of 5" in entry.reason for entry in examined.skipped] == [True]


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The search ends after a time limit, which starts at the first answer; results until then are reported."""
    monkeypatch.setattr(failed_runs, "MAX_WAIT_S", 0.05)
    answering = Answering(lambda _: Refused(failure=REFUSED) if len(answering.asked) < 3 else None)
    examined = NodeLoader(answering, tmp_path).examine(run_model(tmp_path, 4), {OLD: UNKNOWN})

    assert [("Elu", "refused", ("all", "disabled"))] == [
        (each.operator, each.outcome, each.explains) for each in examined.alone["onnxruntime 1.9.0"]
    ]
    assert ["1 of 4" in entry.reason for entry in examined.skipped] == [True]
    assert [False] * 2 + [True] * 6 == [future.cancelled() for future in answering.futures]


def test_unfinished_node_is_loaded_for_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was not tested in time is tested for another model with the same node."""
    monkeypatch.setattr(failed_runs, "MAX_WAIT_S", 0.05)
    answering = Answering(lambda _: LOADS if len(answering.asked) != 3 else None)
    asking = NodeLoader(answering, tmp_path / "nodes")
    first = asking.examine(run_model(tmp_path, 2), {OLD: UNKNOWN})
    second = asking.examine(run_model(tmp_path, 2), {OLD: UNKNOWN})

    assert ([True], []) == (["1 of 2" in entry.reason for entry in first.skipped], second.skipped)


def test_no_node_is_loaded_if_the_file_is_unreadable(tmp_path: Path) -> None:
    """No node is tested if the model's file cannot be read."""
    cut_off = LevelRefusal("all", Failure(type="InvalidProtobuf", text="Protobuf parsing failed."), "")
    answering = Answering(lambda _: LOADS)
    NodeLoader(answering, tmp_path).examine(
        run_model(tmp_path), {OLD: RefusingRuntime((cut_off,), None, in_full=False)}
    )

    assert [] == answering.asked
