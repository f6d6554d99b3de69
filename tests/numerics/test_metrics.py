"""Comparison metrics, checked against their plain definitions."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxgate.numerics.metrics import MAX_DB, compute_cosine, compute_metrics, compute_sqnr_db, compute_ulp_distance

Array = NDArray[Any]
FLOATS = ("float16", "float32", "float64")


@st.composite
def pairs(draw: st.DrawFn, low: float = -1e6, high: float = 1e6) -> tuple[Array, Array]:
    """Draw two arrays of the same shape and floating-point type."""
    dtype = np.dtype(draw(st.sampled_from(FLOATS)))
    shape = draw(hnp.array_shapes(max_dims=3, max_side=6))
    limit = min(high, float(np.finfo(dtype).max) / 8)
    elements = st.floats(max(low, -limit), limit, width=8 * dtype.itemsize)
    return draw(hnp.arrays(dtype, shape, elements=elements)), draw(hnp.arrays(dtype, shape, elements=elements))


@given(pairs())
def test_distances_do_not_depend_on_the_side(pair: tuple[Array, Array]) -> None:
    """Absolute difference, ULP and cosine are symmetric."""
    there, back = compute_metrics(*pair), compute_metrics(pair[1], pair[0])

    assert (there.max_abs, there.median_abs, there.p99_abs) == (back.max_abs, back.median_abs, back.p99_abs)
    assert (there.max_ulp, there.p99_ulp) == (back.max_ulp, back.p99_ulp)
    assert there.cosine == pytest.approx(back.cosine, abs=1e-12)


@given(pairs())
def test_equal_arrays_have_the_best_metrics(pair: tuple[Array, Array]) -> None:
    """All metrics of equal arrays have their best value."""
    metrics = compute_metrics(pair[0], pair[0].copy())

    assert (metrics.max_abs, metrics.p99_abs, metrics.max_rel, metrics.max_ulp, metrics.p99_ulp) == (0, 0, 0, 0, 0)
    assert (metrics.cosine, metrics.sqnr_db) == (pytest.approx(1.0), MAX_DB)
    assert (metrics.top1, metrics.top5) == (metrics.rows, metrics.rows)


@given(pairs(), st.integers(-6, 6))
def test_ratios_do_not_depend_on_the_unit(pair: tuple[Array, Array], power: int) -> None:
    """Cosine and signal-to-noise ratio do not change if both sides are scaled by a power of two."""
    a, b = (side.astype(np.float64) for side in pair)
    scale = 2.0**power

    assert compute_cosine(a * scale, b * scale) == pytest.approx(compute_cosine(a, b), abs=1e-12)
    assert compute_sqnr_db(a * scale, b * scale) == pytest.approx(compute_sqnr_db(a, b), abs=1e-9)


@given(pairs(low=1.0, high=1e3))
def test_figures_are_those_of_their_definitions(pair: tuple[Array, Array]) -> None:
    """The metrics match their definitions in plain arithmetic."""
    a, b = (side.astype(np.float64) for side in pair)
    found, distance = compute_metrics(*pair), np.sort(np.abs(a - b), axis=None)
    noise = float(((a - b) ** 2).sum())

    assert (found.max_abs, found.max_rel) == (distance[-1], (np.abs(a - b) / np.abs(b)).max())
    assert found.median_abs == distance[(distance.size - 1) // 2]
    assert (distance <= found.p99_abs).mean() >= 0.99
    assert found.cosine == pytest.approx(float((a * b).sum()) / float(np.linalg.norm(a) * np.linalg.norm(b)))
    if noise:
        snr_db = min(200.0, 10 * math.log10(float((b**2).sum()) / noise))  # the maximum in a report
        assert found.sqnr_db == pytest.approx(snr_db, abs=1e-6)


@pytest.mark.parametrize("dtype", FLOATS)
@given(data=st.data())
def test_ulp_counts_the_steps_from_one_number_to_the_next(data: st.DataObject, dtype: str) -> None:
    """The ULP distance counts steps of `numpy.nextafter`, also across zero and subnormal numbers."""
    kind = np.dtype(dtype).type
    tiny = float(np.finfo(dtype).smallest_subnormal)
    starts = st.sampled_from([0.0, -0.0, tiny, -tiny, 2 * tiny, -3 * tiny, 1.0, -1.0, float(np.finfo(dtype).tiny)])
    start = value = kind(data.draw(starts))
    steps, towards = data.draw(st.integers(0, 6)), kind(data.draw(st.sampled_from([-math.inf, math.inf])))
    for _ in range(steps):
        value = np.nextafter(value, towards)
    ulp_distance = compute_ulp_distance(np.array([start]), np.array([value]))

    assert ulp_distance is not None
    assert ulp_distance.tolist() == [steps]


@pytest.mark.parametrize("dtype", FLOATS)
def test_ulp_from_end_to_end(dtype: str) -> None:
    """The largest ULP distance of each type does not overflow."""
    most = np.finfo(dtype).max
    top = int(np.array(most).view(f"i{np.dtype(dtype).itemsize}"))
    ulp_distance = compute_ulp_distance(np.array([-most]), np.array([most]))

    assert ulp_distance is not None
    assert ulp_distance.tolist() == [float(2 * top)]


def test_ulp_needs_one_type() -> None:
    """The ULP distance is undefined for different types and for integers."""
    ones = np.ones(2, np.float32)

    assert compute_ulp_distance(ones, ones.astype(np.float16)) is None
    assert compute_ulp_distance(ones.astype(np.int32), ones.astype(np.int32)) is None
    assert compute_metrics(ones, ones.astype(np.float64)).max_ulp is None


def test_zeros_have_defined_ratios() -> None:
    """Arrays of zeros have defined ratios."""
    zeros, ones = np.zeros(3), np.ones(3)

    assert (compute_sqnr_db(zeros, zeros), compute_sqnr_db(ones, zeros), compute_sqnr_db(zeros, ones)) == (
        MAX_DB,
        -MAX_DB,
        0.0,
    )
    assert (compute_cosine(zeros, zeros), compute_cosine(ones, zeros), compute_cosine(-ones, ones)) == (1.0, 0.0, -1.0)


def test_figures_of_huge_numbers_stay_finite() -> None:
    """The metrics of the largest floats are finite, although their squares overflow."""
    most = np.full(4, np.finfo(np.float64).max / 4)
    metrics = compute_metrics(most, most / 2)

    assert (metrics.cosine, metrics.sqnr_db) == (pytest.approx(1.0), pytest.approx(20 * math.log10(1)))
    assert math.isfinite(metrics.max_abs)


def test_non_finite_elements_are_ignored() -> None:
    """Non-finite elements are ignored."""
    metrics = compute_metrics(np.array([1.0, np.nan, 3.0]), np.array([1.0, 2.0, np.inf]))

    assert (metrics.elements, metrics.max_abs, metrics.rows) == (1, 0.0, 0)


def test_largest_element_of_each_row() -> None:
    """Top-1 and top-5 are computed per row of the last axis; rows of NaN are ignored."""
    reference = np.array([[1.0, 9.0, 2.0, 3.0, 4.0, 5.0], [1.0, 9.0, 2.0, 3.0, 4.0, 5.0], [np.nan] * 6])
    candidate = np.array([[1.0, 9.5, 2.0, 3.0, 4.0, 5.0], [9.0, 2.5, 8.0, 7.0, 6.0, 5.0], [1.0] * 6])
    metrics = compute_metrics(candidate, reference)

    assert (metrics.rows, metrics.top1, metrics.top5) == (2, 1, 1)
    assert metrics.top1_share == 0.5


def test_near_ties_agree() -> None:
    """The largest of two nearly equal elements may differ; `tie` is the allowed distance."""
    reference, candidate = np.array([[1.0, 1.0, 0.0], [1.0, 0.9, 0.0]]), np.array([[0.0, 1.0, 0.0], [0.9, 1.0, 0.0]])

    assert compute_metrics(candidate, reference).top1 == 1
    assert compute_metrics(candidate, reference, tie=0.05).top1 == 1
    assert compute_metrics(candidate, reference, tie=0.11).top1 == 2


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4, 1)])
def test_rows_of_one_element_have_no_rank(shape: tuple[int, ...]) -> None:
    """Scalars, empty arrays and rows of one element have no ranking, but all other metrics."""
    metrics = compute_metrics(np.ones(shape), np.ones(shape))

    assert (metrics.rows, metrics.top1_share, metrics.max_abs, metrics.sqnr_db) == (0, 1.0, 0.0, MAX_DB)
