"""Comparison of float16 models in float32, executed by the reference implementation of ONNX."""

from __future__ import annotations

import itertools
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Job, Observation, Run, RunResult
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.widened_comparison import MAX_WIDENED_DB, WidenedComparison, WidenedDifferences
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from tests.harness.models import parse

STEADY, SENSITIVE = "y = Mul(x, w)", "a = Mul(x, w)  y = Sub(a, x)"


def compare(folder: Path, nodes: str, lost: int = 0) -> WidenedDifferences:
    """Compare a correct model whose weights were computed; the first `lost` runs return no output."""
    weights = np.linspace(1.0, 1.1, 64).astype(np.float16)
    bits = ",".join(map(str, weights.view(np.uint16).tolist()))
    head = 'ir_version: 8, opset_import: ["" : 17]'
    text = f"<{head}> g (float16[64] x) => (float16[64] y) <float16[64] w = {{{bits}}}> {{ {nodes} }}"
    onnx.save(parse(text, head=""), folder / "m.onnx")
    values = np.random.default_rng(0).normal(size=64).astype(np.float16)
    wide = values.astype(np.float64) * weights.astype(np.float64)
    np.save(folder / "x.npy", values)
    np.save(folder / "y.npy", wide if nodes == STEADY else wide - values)
    numbers, places = itertools.count(), itertools.count()

    def submit(_: PlannedRuntime, job: Job, __: JobLimits | None) -> Future[Observation]:
        assert isinstance(job, Run)
        (y,) = ReferenceEvaluator(job.model).run(None, {"x": np.load(job.cases[0].inputs["x"])})
        np.save(Path(job.output) / "y.npy", y)
        path = str(Path(job.output) / "y.npy") if next(numbers) >= lost else None
        result = RunResult(providers=(), outputs=("y",), cases=(CaseResult(outputs=(path,)),))
        future: Future[Observation] = Future()
        future.set_result(Completed(result=result))
        return future

    source = ExportResult(model=None, eager64=(CaseResult(outputs=(str(folder / "y.npy"),)),), is_half=True)
    case = InputCase(name="sizes", origin="generated", inputs={"x": str(folder / "x.npy")})
    runtime = LockedRuntime(engine="onnxruntime", release="1.31.1", python="3.11")
    planned = PlannedRuntime(runtime, ("server",), ("all",), ("CPUExecutionProvider",), required=True)
    extra = ExtraRuns({planned.name: planned}, submit, lambda: folder / str(next(places)))
    comparison = WidenedComparison(extra, planned.name)
    return comparison.compare(folder / "m.onnx", [case], Completed(result=source))


def test_bound_is_measured(tmp_path: Path) -> None:
    """Runs with other rounding of computed weights lower the required SNR."""
    (difference,), limits = compare(tmp_path, STEADY)

    assert difference.agrees
    assert difference.bound < MAX_WIDENED_DB
    assert difference.bound_from == "measured"
    assert limits == {}


def test_sensitive_output_is_named(tmp_path: Path) -> None:
    """An output that rounding of computed weights changes too much is not compared, but not silently."""
    differences, limits = compare(tmp_path, SENSITIVE)

    assert differences == ()
    assert limits["y"] == pytest.approx(36, abs=6)


def test_output_that_is_lost_by_rounding_is_named(tmp_path: Path) -> None:
    """An output that the runs with other rounding do not return cannot be compared either."""
    assert compare(tmp_path, STEADY, lost=2) == ((), {"y": 0.0})
