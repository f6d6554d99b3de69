"""Comparison of float16 models in float32, executed by the reference implementation of ONNX."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.core.jobs import CaseResult, Completed, ExportResult, InputCase, Job, Observation, Run, RunResult
from onnxgate.gate.execution.parity.extra_runs import ExtraRuns
from onnxgate.gate.execution.parity.widened_comparison import (
    MAX_DIFFERING,
    MAX_WIDENED_DB,
    WidenedComparison,
    WidenedDifferences,
)
from onnxgate.model.subgraphs.widened_models import hash_weight
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages.parity.differing_weights import WeightComparison, compare_weights
from onnxgate.stages.parity.source_difference import match_fresh_export
from tests.harness.models import parse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

WEIGHTS = np.linspace(1.0, 1.1, 64).astype(np.float16)
STEADY, SENSITIVE = "y = Mul(x, w)", "a = Mul(x, w)  y = Sub(a, x)"


def save(path: Path, nodes: str, **weights: Array) -> Path:
    """Save a model with float16 weights of 64 elements."""
    stored = (f"float16[64] {name} = {{{','.join(map(str, it.view(np.uint16)))}}}" for name, it in weights.items())
    head = 'ir_version: 8, opset_import: ["" : 17]'
    text = f"<{head}> g (float16[64] x) => (float16[64] y) <{', '.join(stored)}> {{ {nodes} }}"
    onnx.save(parse(text, head=""), path)
    return path


def compare(
    folder: Path,
    nodes: str,
    lost: int = 0,
    *,
    stored: Array | None = None,
    exported: Path | None = None,
    parameters: Sequence[Array] = (),
    is_half: bool = True,
    ranked: Sequence[str] = (),
) -> WidenedDifferences:
    """Compare a model whose weights were computed; the first `lost` runs return no output.

    It is correct unless it contains the `stored` weights. The source contains the weights `parameters`.
    """
    model = save(folder / "m.onnx", nodes, w=WEIGHTS if stored is None else stored)
    fresh = match_fresh_export(onnx.load(model), model, exported) if exported is not None else None
    weights = compare_weights(fresh, model, MAX_DIFFERING) if fresh is not None else WeightComparison()
    values = np.random.default_rng(0).normal(size=64).astype(np.float16)
    wide = values.astype(np.float64) * WEIGHTS.astype(np.float64)
    np.save(folder / "x.npy", values)
    np.save(folder / "y.npy", wide if nodes == STEADY else wide - values)
    numbers, places = itertools.count(), itertools.count()
    place = Path(tempfile.mkdtemp(dir=folder))

    def submit(_: PlannedRuntime, job: Job, __: JobLimits | None) -> Future[Observation]:
        assert isinstance(job, Run)
        (y,) = ReferenceEvaluator(job.model).run(None, {"x": np.load(job.cases[0].inputs["x"])})
        np.save(Path(job.output) / "y.npy", y)
        path = str(Path(job.output) / "y.npy") if next(numbers) >= lost else None
        result = RunResult(providers=(), outputs=("y",), cases=(CaseResult(outputs=(path,)),))
        future: Future[Observation] = Future()
        future.set_result(Completed(result=result))
        return future

    wide_outputs = (CaseResult(outputs=(str(folder / "y.npy"),)),)
    hashes = tuple(sorted({hashed for it in parameters for hashed in hash_weight(it)}))
    source = ExportResult(model=None, eager64=wide_outputs, is_half=is_half, half_weights=hashes)
    case = InputCase(name="sizes", origin="generated", inputs={"x": str(folder / "x.npy")})
    runtime = LockedRuntime(engine="onnxruntime", release="1.31.1", python="3.11")
    planned = PlannedRuntime(runtime, ("server",), ("all",), ("CPUExecutionProvider",), required=True)
    extra = ExtraRuns({planned.name: planned}, submit, lambda: place / str(next(places)))
    comparison = WidenedComparison(extra, planned.name, weights, ranked)
    return comparison.compare(model, [case], Completed(result=source))


def test_bound_is_measured(tmp_path: Path) -> None:
    """Runs with other rounding of computed weights lower the required SNR."""
    (difference,), limits, _ = compare(tmp_path, STEADY)

    assert difference.agrees
    assert difference.bound < MAX_WIDENED_DB
    assert difference.bound_from == "measured"
    assert limits == {}


def test_sensitive_output_is_named(tmp_path: Path) -> None:
    """An output that rounding of computed weights changes too much is not compared, but not silently."""
    differences, limits, _ = compare(tmp_path, SENSITIVE)

    assert differences == ()
    assert limits["y"] == pytest.approx(36, abs=6)


def test_output_that_is_lost_by_rounding_is_named(tmp_path: Path) -> None:
    """An output that the runs with other rounding do not return cannot be compared either."""
    assert compare(tmp_path, STEADY, lost=2) == ((), {"y": 0.0}, ())


WRONG = np.where(np.arange(64) < 16, WEIGHTS * np.float16(1.01), WEIGHTS)


def test_weight_that_differs_from_a_fresh_export_does_not_lower_its_bound(tmp_path: Path) -> None:
    """Otherwise, the effect of a wrong weight is hidden by the effect of its own rounding."""
    hidden = compare(tmp_path, SENSITIVE, stored=WRONG)
    exported = save(tmp_path / "fresh.onnx", SENSITIVE, w=WEIGHTS)
    (difference,), limits, names = compare(tmp_path, SENSITIVE, stored=WRONG, exported=exported, parameters=[WEIGHTS])

    assert (hidden.differences, [*hidden.limits]) == ((), ["y"])
    assert (difference.agrees, difference.bound, limits, names) == (False, MAX_WIDENED_DB, {}, ("w",))


def test_weight_that_is_not_in_the_source_is_computed(tmp_path: Path) -> None:
    """Two exports may compute it differently, for example with other rounding of large numbers."""
    exported = save(tmp_path / "fresh.onnx", SENSITIVE, w=WEIGHTS)

    assert compare(tmp_path, SENSITIVE, stored=WRONG, exported=exported).wrong_weights == ()


def test_weight_that_was_combined_in_one_export_only_is_computed(tmp_path: Path) -> None:
    """It differs from the weight in the same place of the other export, which brings outputs farther from the source.

    For example, one of two exports may combine a convolution with a normalization.
    """
    parts = {"v": WEIGHTS * np.float16(0.5), "u": np.full(64, 2, np.float16)}
    exported = save(tmp_path / "fresh.onnx", "b = Mul(x, v)  y = Mul(b, u)", **parts)
    (difference,), _, names = compare(tmp_path, STEADY, exported=exported, parameters=[*parts.values()])

    assert (difference.agrees, difference.bound_from, names) == (True, "measured", ())


def test_weights_that_were_computed_in_float16_are_rounded_more_than_once(tmp_path: Path) -> None:
    """A model may have been exported from a float16 copy of its source. Its weights differ slightly from an export."""
    stored = np.nextafter(WEIGHTS, np.float16(2))
    exported = save(tmp_path / "fresh.onnx", STEADY, w=WEIGHTS)
    once = compare(tmp_path, STEADY, stored=stored, is_half=False)
    (difference,), *_ = compare(tmp_path, STEADY, stored=stored, exported=exported, is_half=False)

    assert not all(it.agrees for it in once.differences)
    assert difference.agrees


def test_selection_of_other_items_is_a_limit(tmp_path: Path) -> None:
    """With equal scores, a model in float32 may select other items than the source in float64."""
    wrong = WEIGHTS * np.float16(-1)
    (difference,), *_ = compare(tmp_path, STEADY, stored=wrong)
    ranked = compare(tmp_path, STEADY, stored=wrong, ranked=["y"])

    assert not difference.agrees
    assert (ranked.differences, [*ranked.limits]) == ((), ["y"])
