"""Recorded observations for the runtime and parity stages: a small model, its cases and their results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from onnxgate.core.findings import Place
from onnxgate.core.jobs import CaseResult, Completed, Failure, InputCase, Observation, Optimization, Run, RunResult
from onnxgate.model.reading.view import ModelView
from onnxgate.stages.runtime import ExecutedModel, ObservedRun

OLD, NEW = "onnxruntime 1.9.0", "onnxruntime 1.10.0"
TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 2] x) => (float[batch, 2] y, float[batch, 2] z) { y = Relu(x)  z = Abs(y) }"""
PLACE = Place("onnxgate.lock", 7)


def run_model(folder: Path) -> ExecutedModel:
    """Create a model with the nodes `first` and `second`; `first` was exported from line 2 of `build.py`."""
    model = onnx.parser.parse_model(TEXT)
    first, second = model.graph.node
    first.name, second.name = "first", "second"
    (folder / "build.py").write_text("import torch\ny = x.relu()\n")
    entry = first.metadata_props.add()
    entry.key = "pkg.torch.onnx.stack_trace"
    entry.value = f'File "{folder / "build.py"}", line 2, in forward\n    y = x.relu()'
    return ExecutedModel("m.onnx", PLACE, ModelView(model), folder, folder, memory_limit_mib=512)


def case(batch: int) -> InputCase:
    """Return a generated case; these tests never read its inputs."""
    return InputCase(name=f"sizes batch={batch}", origin="generated", inputs={}, sizes={"batch": batch})


CASES = (case(1), case(3))


def job(level: Optimization, cases: Sequence[InputCase] = CASES) -> Run:
    """Return a run at one optimization level."""
    return Run(model="m.onnx", cases=tuple(cases), output="out", optimization=level)


def saved(folder: Path, *arrays: Any) -> CaseResult:
    """Save a case's outputs as files; None stands for values that numpy cannot represent."""
    paths: list[str | None] = []
    for array in arrays:
        path = folder / f"{len(list(folder.iterdir()))}.npy"
        if array is not None:
            np.save(path, np.asarray(array))
        paths.append(None if array is None else str(path))
    return CaseResult(outputs=tuple(paths))


def refused(text: str) -> CaseResult:
    """Return a case that the runtime rejected."""
    return CaseResult(failure=Failure(type="Fail", text=text))


def done(*results: CaseResult, outputs: Sequence[str] = ("y", "z")) -> Observation:
    """Return the result of a job in which all cases completed."""
    return Completed(result=RunResult(providers=("CPUExecutionProvider",), outputs=tuple(outputs), cases=results))


def ran(runtime: str, level: Optimization, observation: Observation, cases: Sequence[InputCase] = CASES) -> ObservedRun:
    """Return one job with its observation."""
    return ObservedRun(runtime, job(level, cases), observation)
