"""Recorded observations for the runtime and parity stages: a small model, its cases, and what came back."""

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
    """A model of two nodes, `first` and `second`; the first was made by line 2 of `build.py`."""
    model = onnx.parser.parse_model(TEXT)
    first, second = model.graph.node
    first.name, second.name = "first", "second"
    (folder / "build.py").write_text("import torch\ny = x.relu()\n")
    entry = first.metadata_props.add()
    entry.key = "pkg.torch.onnx.stack_trace"
    entry.value = f'File "{folder / "build.py"}", line 2, in forward\n    y = x.relu()'
    return ExecutedModel("m.onnx", PLACE, ModelView(model), folder, folder, memory_limit_mib=512)


def case(batch: int) -> InputCase:
    """A generated case; its inputs are never read in these tests."""
    return InputCase(name=f"sizes batch={batch}", origin="generated", inputs={}, sizes={"batch": batch})


CASES = (case(1), case(3))


def job(level: Optimization, cases: Sequence[InputCase] = CASES) -> Run:
    """A run at one level."""
    return Run(model="m.onnx", cases=tuple(cases), output="out", optimization=level)


def saved(folder: Path, *arrays: Any) -> CaseResult:
    """A case's outputs as files; None for what numpy cannot hold."""
    paths: list[str | None] = []
    for array in arrays:
        path = folder / f"{len(list(folder.iterdir()))}.npy"
        if array is not None:
            np.save(path, np.asarray(array))
        paths.append(None if array is None else str(path))
    return CaseResult(outputs=tuple(paths))


def refused(text: str) -> CaseResult:
    """A case that the runtime refused."""
    return CaseResult(failure=Failure(type="Fail", text=text))


def done(*results: CaseResult, outputs: Sequence[str] = ("y", "z")) -> Observation:
    """All cases of a job came to their end."""
    return Completed(result=RunResult(providers=("CPUExecutionProvider",), outputs=tuple(outputs), cases=results))


def ran(runtime: str, level: Optimization, observation: Observation, cases: Sequence[InputCase] = CASES) -> ObservedRun:
    """One job with its observation."""
    return ObservedRun(runtime, job(level, cases), observation)
