"""Outputs larger than a chunk: the same results as for whole arrays, with little memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from onnxgate.numerics import metrics, streams
from onnxgate.numerics.agreement import Agreement, are_both_nan, compare_arrays, is_negligible
from onnxgate.numerics.first_difference import measure_distance
from onnxgate.numerics.metrics import Metrics, compute_metrics, compute_snr_db, measure_scale
from onnxgate.numerics.quantization import FLOAT_BOUNDS, compare_quantized
from onnxgate.numerics.streams import load_array
from onnxgate.numerics.tolerance import ElementBound

Array = NDArray[Any]
OUTPUT_BYTES = 100 * 2**20
MAX_TRACED_BYTES = 64 * 2**20


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set chunks to three elements, so that small arrays have several."""
    monkeypatch.setattr(streams, "CHUNK_ELEMENTS", 3)
    monkeypatch.setattr(metrics, "CHUNK_ELEMENTS", 3)


def make_pair(dtype: str) -> tuple[Array, Array]:
    """Return two arrays whose worst element is neither in the first nor in the last chunk."""
    draw = np.random.default_rng(0)
    reference = (10 * draw.normal(size=(2, 2, 5))).astype(dtype)
    candidate = reference.copy()
    candidate[0, 1, 2:] += np.asarray([1, 3, 3], dtype)
    return candidate, reference


def describe(candidate: Array, reference: Array) -> list[Any]:
    """Return all results about two arrays; sums may differ in the last digit."""
    scale = measure_scale([candidate, reference]) if reference.dtype.kind == "f" else metrics.OutputScale()
    agreements = [compare_arrays(candidate, reference, *bounds) for bounds in ((0.0, 0.0), (1e-3, 1e-3), (0.0, 9.0))]
    return [
        *map(asdict, agreements),
        asdict(ElementBound(0.0, 0.0, "type", of_largest=0.5).at(candidate, reference)),
        are_both_nan(candidate, reference),
        is_negligible(candidate, reference, 100.0, 1e-4),
        asdict(measure_distance(candidate, reference)),
        asdict(scale),
        pytest.approx(compute_snr_db(candidate, reference, scale)) if reference.dtype.kind == "f" else None,
        {name: pytest.approx(value) for name, value in asdict(compute_metrics(candidate, reference)).items()},
        compare_quantized(candidate, reference, FLOAT_BOUNDS, scale).metric,
    ]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint64"])
def test_chunks_change_no_result(dtype: str, request: pytest.FixtureRequest) -> None:
    """Positions, counts, extremes and quantiles are those of the whole arrays."""
    pair = make_pair(dtype)
    whole = describe(*pair)
    request.getfixturevalue("small_chunks")

    parts = describe(*pair)

    assert [part for part in parts if isinstance(part, bool)] == [part for part in whole if isinstance(part, bool)]
    for part, expected in zip(parts, whole, strict=True):
        assert part == (pytest.approx(expected) if isinstance(expected, dict) and "power" in expected else expected)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("dtype", ["bool", "complex64", "U1"])
def test_chunks_of_other_types(dtype: str) -> None:
    """The first differing element is found in any chunk."""
    reference = np.array([[0, 1, 0, 1], [1, 0, 1, 0]]).astype(dtype)
    candidate = reference.copy()
    candidate[1, 1:] = candidate[1, :3]

    comparison = compare_arrays(candidate, reference, 0.0, 0.0)

    assert (comparison.agrees, comparison.mismatched) == (False, 3)
    assert comparison.detail.startswith("at [1, 1")


@pytest.mark.usefixtures("small_chunks")
def test_quantiles_of_equal_values() -> None:
    """Quantiles are exact for values that differ only in their last digits."""
    values = np.array([0.0] * 5 + [1.0] * 5 + [np.nextafter(1.0, 2.0)] * 5 + [np.inf])
    actual = [
        metrics._quantile(lambda: iter([values[:7], values[7:]]), values.size, share) for share in (0.3, 0.6, 0.9, 1)
    ]

    assert actual == [0.0, 1.0, np.nextafter(1.0, 2.0), np.inf]


@pytest.mark.usefixtures("small_chunks")
def test_rows_longer_than_a_chunk() -> None:
    """The largest elements of a row may be in different chunks; a row with NaN is ignored."""
    reference = np.array([[5.0, 1, 2, 9, 3, 4, 8, 7, 0], [1, 2, 3, 4, 5, 6, 7, 8, np.nan]])
    second_best = reference.copy()
    second_best[0, 6] = 10.0

    metrics = compute_metrics(second_best, reference)

    assert (metrics.rows, metrics.top1, metrics.top5) == (1, 0, 1)


@pytest.fixture(scope="module")
def large_outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write two outputs of 100 MB that differ slightly in each element."""
    folder = tmp_path_factory.mktemp("outputs")
    block = np.random.default_rng(0).normal(size=(OUTPUT_BYTES // 4 // 25, 25)).astype(np.float32)
    paths = folder / "candidate.npy", folder / "reference.npy"
    for path, factor in zip(paths, (1.001, 1.0), strict=True):
        np.save(path, block * np.float32(factor))
    return paths


def measure_peak_bytes(compute: Callable[[], object]) -> int:
    """Return the peak of Python and numpy allocations, without pages of mapped files."""
    tracemalloc.start()
    try:
        compute()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_comparison_of_large_outputs_needs_little_memory(large_outputs: tuple[Path, Path]) -> None:
    """Two outputs of 100 MB are compared in much less memory than one of them takes."""
    agreements: list[Agreement] = []

    def compare() -> None:
        candidate, reference = map(load_array, large_outputs)
        assert not are_both_nan(candidate, reference)
        agreements.append(compare_arrays(candidate, reference, 1e-4, 1e-5))

    assert measure_peak_bytes(compare) < MAX_TRACED_BYTES
    assert agreements[0].mismatched > OUTPUT_BYTES // 8


def test_figures_of_large_outputs_need_little_memory(large_outputs: tuple[Path, Path]) -> None:
    """Medians and quantiles are computed without a copy of the differences."""
    metrics: list[Metrics] = []

    def compute() -> None:
        candidate, reference = (load_array(path)[:200_000] for path in large_outputs)
        assert measure_scale([reference]).power == pytest.approx(1.0, abs=0.01)
        metrics.append(compute_metrics(candidate, reference))

    assert measure_peak_bytes(compute) < MAX_TRACED_BYTES
    assert metrics[0].sqnr_db == pytest.approx(60, abs=0.1)
    assert metrics[0].median_abs == pytest.approx(0.674e-3, rel=0.01)
