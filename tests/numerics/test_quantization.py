"""Comparison of quantized outputs by ratios: bounds, verdicts and recorded values."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxgate.numerics.metrics import OutputScale, measure_scale
from onnxgate.numerics.quantization import (
    FLOAT_BOUNDS,
    MARGIN_DB,
    MAX_REQUIRED_DB,
    SAME_FILE_BOUNDS,
    RatioAgreement,
    RatioBounds,
    choose_float_bounds,
    compare_quantized,
    limit_bounds,
    measure_quantization,
)
from onnxgate.project.lock.types import LockedModel, MeasuredQuantization

Array = NDArray[Any]
NOTHING = OutputScale()
RECORDED = MeasuredQuantization(sqnr_db=36.0, cosine=0.999, top1=1.0, source="f.onnx", runtime="onnxruntime 1.31.1")


def noisy(reference: Array, db: float, seed: int = 1) -> Array:
    """Return the reference with noise of exactly this ratio."""
    noise = np.random.default_rng(seed).normal(size=reference.shape)
    wanted = np.sqrt(np.square(reference).mean() / 10 ** (db / 10))
    return np.asarray(reference + noise * wanted / np.sqrt(np.square(noise).mean()), np.float32)


def signal(*shape: int) -> Array:
    """Return random values with mean 0 and variance 1."""
    return np.asarray(np.random.default_rng(0).normal(size=shape), np.float32)


def figures(held: RatioAgreement) -> dict[str, float]:
    """Return the ratios by name."""
    return {metric: value for metric, value, _ in held.figures}


@given(st.floats(-10, 60))
def test_ratio_decides(db: float) -> None:
    """The measured ratio is that of the added noise, and the verdict follows from the bound."""
    reference = signal(4, 64)
    held = compare_quantized(noisy(reference, db), reference, FLOAT_BOUNDS, NOTHING)

    assert figures(held)["sqnr_db"] == pytest.approx(db, abs=0.01)
    if abs(db - FLOAT_BOUNDS.sqnr_db) > 3:
        assert held.agreement.agrees == (db > FLOAT_BOUNDS.sqnr_db)


def test_one_wrong_element_is_accepted() -> None:
    """A step of one element in a thousand is accepted; a change of a fifth in all elements is not."""
    reference = signal(10, 100)
    stepped = reference.copy()
    stepped[3, 4] += 0.5

    assert compare_quantized(stepped, reference, FLOAT_BOUNDS, NOTHING).agreement.agrees
    assert not compare_quantized(reference * np.float32(0.8), reference, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_rows_that_agree_on_the_largest() -> None:
    """Changed classes fail the comparison even if the noise is small relative to an offset."""
    reference = np.full((50, 4), 100.0, np.float32)
    reference[:, 1], candidate = 101.0, np.full((50, 4), 100.0, np.float32)
    candidate[:, 2] = 101.0
    held = compare_quantized(candidate, reference, FLOAT_BOUNDS, NOTHING)

    assert (held.agreement.agrees, held.metric, held.value) == (False, "top1", 0.0)


@pytest.mark.parametrize(
    ("rows", "wrong", "agrees"), [(51, 4, True), (51, 5, False), (1000, 33, True), (1000, 34, False)]
)
def test_top1_of_few_rows_varies(rows: int, wrong: int, agrees: bool) -> None:
    """A default bound allows for the standard error of a sample; 2 of 51 rows do not show a wrong model."""
    reference = np.full((rows, 4), 100.0, np.float32)
    reference[:, 1] = 101.0
    candidate = reference.copy()
    candidate[:wrong, 2] = 101.5

    assert agrees == compare_quantized(candidate, reference, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_recorded_top1_has_no_further_margin() -> None:
    """A recorded value belongs to the same inputs, so only the margin of the lock applies."""
    recorded = choose_float_bounds(locked(y=RECORDED), "y")

    assert (recorded.top1_of(51), recorded.top1) == (0.98, 0.98)
    assert FLOAT_BOUNDS.top1_of(51) < 0.93


def test_near_ties_change_places_freely() -> None:
    """Classes that are equal within the noise may be exchanged."""
    reference = signal(50, 4)
    reference[:, 0], reference[:, 1] = 3.0, 3.05
    candidate = reference.copy()
    candidate[:, 0] = 3.06

    assert figures(compare_quantized(candidate, reference, FLOAT_BOUNDS, NOTHING))["top1"] == 1.0


def test_steps_of_the_output_are_right_between_two_runs() -> None:
    """One quantization step per element is accepted between two runs, even if the output has few steps."""
    reference = np.array([[0.1, 0.0, -0.1, 0.2]], np.float32)
    candidate = reference + np.float32(0.1)
    stepped = RatioBounds(SAME_FILE_BOUNDS.sqnr_db, SAME_FILE_BOUNDS.cosine, SAME_FILE_BOUNDS.top1, "type", step=0.101)

    assert compare_quantized(candidate, reference, stepped, NOTHING).agreement.agrees
    assert not compare_quantized(candidate, reference, SAME_FILE_BOUNDS, NOTHING).agreement.agrees


def test_output_near_zero_uses_the_usual_scale() -> None:
    """An output near zero is compared relative to its usual scale, if other cases provide one."""
    reference, usual = np.array([[0.001]], np.float32), OutputScale(power=1.0, spread=1.0)
    candidate = np.array([[-0.009]], np.float32)

    assert compare_quantized(candidate, reference, FLOAT_BOUNDS, usual).agreement.agrees
    assert not compare_quantized(candidate, reference, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_scale_is_taken_over_all_cases() -> None:
    """The scale has the power and spread of the finite elements; integers have none."""
    scale = measure_scale([np.array([3.0, np.inf]), np.array([5.0])])

    assert (scale.power, scale.spread) == (17.0, 1.0)
    assert measure_scale([np.array([3], np.int64)]) == NOTHING


def test_output_of_zeros() -> None:
    """An output of zeros has no ratio and is compared with a small absolute bound."""
    zeros = np.zeros((2, 20), np.float32)

    assert compare_quantized(zeros + np.float32(1e-3), zeros, FLOAT_BOUNDS, NOTHING).agreement.agrees
    assert not compare_quantized(zeros + np.float32(1e-1), zeros, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_non_finite_values() -> None:
    """A non-finite value in place of a number is a mismatch; non-finite reference values are ignored."""
    reference = signal(2, 20)
    lost, unknown = reference.copy(), reference.copy()
    lost[0, 0], unknown[0, 0] = np.nan, np.inf

    assert (
        compare_quantized(lost, reference, FLOAT_BOUNDS, NOTHING).metric,
        compare_quantized(lost, reference, FLOAT_BOUNDS, NOTHING).value,
    ) == (
        "not finite",
        1.0,
    )
    assert compare_quantized(reference, unknown, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_shapes_and_types_must_be_alike() -> None:
    """Shapes and types must match."""
    reference = signal(2, 20)

    assert compare_quantized(reference[:1], reference, FLOAT_BOUNDS, NOTHING).metric == "shape"
    assert not compare_quantized(reference.astype(np.int64), reference, FLOAT_BOUNDS, NOTHING).agreement.agrees


def test_labels() -> None:
    """Most labels must be equal; too few labels are undecided, and 8-bit values may differ by one step."""
    many, few = np.arange(100), np.arange(4)
    wrong = np.where(many < 7, 77, many)

    assert compare_quantized(np.where(many < 1, 7, many), many, FLOAT_BOUNDS, NOTHING).agreement.agrees
    assert not compare_quantized(wrong, many, FLOAT_BOUNDS, NOTHING).agreement.agrees
    assert not compare_quantized(wrong, many, FLOAT_BOUNDS, NOTHING).too_few
    assert compare_quantized(few + 1, few, FLOAT_BOUNDS, NOTHING).too_few
    assert compare_quantized((few + 1).astype(np.uint8), few.astype(np.uint8), FLOAT_BOUNDS, NOTHING).agreement.agrees


def locked(**quantization: MeasuredQuantization) -> LockedModel:
    """Return a locked model with recorded values."""
    return LockedModel(sha256="aa", size_bytes=1, ir_version=8, opsets={}, quantization=quantization)


def test_recorded_figures_are_the_bound() -> None:
    """The bound is the recorded value minus a margin, up to a maximum; without a record the default is used."""
    float_bounds = choose_float_bounds(locked(y=RECORDED), "y")
    perfect = choose_float_bounds(
        locked(y=MeasuredQuantization(sqnr_db=200, cosine=1, top1=1, source="", runtime="")), "y"
    )

    assert (float_bounds.sqnr_db, float_bounds.cosine, float_bounds.bound_from) == (
        36.0 - MARGIN_DB,
        pytest.approx(0.998),
        "lock",
    )
    assert (perfect.sqnr_db, perfect.cosine < 1) == (MAX_REQUIRED_DB, True)
    assert choose_float_bounds(locked(), "y") == choose_float_bounds(None, "y") == FLOAT_BOUNDS


def test_measured_outputs_pass_their_own_record() -> None:
    """The measured outputs pass with their own record, and a loss of twice the margin fails."""
    reference = signal(8, 64)
    cases = [
        ({"y": noisy(reference, db, seed), "n": np.ones(1, int)}, {"y": reference}) for seed, db in ((1, 33), (2, 30))
    ]
    quantization = measure_quantization(cases, "f.onnx", "onnxruntime 1.31.1")
    bounds = choose_float_bounds(locked(**quantization), "y")

    assert list(quantization) == ["y"]
    assert quantization["y"].sqnr_db == pytest.approx(30.0, abs=0.11)
    assert all(
        compare_quantized(quantized["y"], real["y"], bounds, NOTHING).agreement.agrees for quantized, real in cases
    )
    assert not compare_quantized(noisy(reference, 24), reference, bounds, NOTHING).agreement.agrees


def test_few_rows_do_not_decide() -> None:
    """A different largest element is accepted in one of two rows, but not in 1 of 10 of many rows."""
    few, many = signal(2, 1000), signal(100, 1000)
    results = []
    for reference in (few, many):
        swapped = reference.copy()
        for row in swapped[:: max(len(swapped) // 10, 2)]:
            row[row.argmin()] = row.max() + 1
        results.append(compare_quantized(swapped, reference, RatioBounds(10.0, 0.5, 0.98, "lock"), NOTHING))

    assert [True, False] == [result.agreement.agrees for result in results]
    assert "top1" not in figures(results[0])


def test_record_allows_for_the_spread_of_the_cases() -> None:
    """If cases differ by more than the margin, other inputs may be as much worse than the worst case."""
    reference = signal(4, 64)
    cases = [({"y": noisy(reference, db, seed=int(db))}, {"y": reference}) for db in (30.0, 35.0, 40.0)]
    (recorded,) = measure_quantization(cases, "f.onnx", "onnxruntime 1.31.1").values()
    (plain,) = measure_quantization(cases, "f.onnx", "onnxruntime 1.31.1", allow_spread=False).values()

    assert pytest.approx((30.0 - 7.0, 30.0), abs=0.2) == (recorded.sqnr_db, plain.sqnr_db)
    assert recorded.cosine < plain.cosine


def test_noise_lowers_bounds_only() -> None:
    """Bounds are lower if runs with different rounding do not meet them, and never higher."""
    inaccurate = msgspec.structs.replace(RECORDED, sqnr_db=15.0)

    assert RatioBounds(12.0, 0.99, 0.98, "measured") == limit_bounds(SAME_FILE_BOUNDS, inaccurate)
    assert RatioBounds(20.0, 0.99, 0.98, "measured") == limit_bounds(SAME_FILE_BOUNDS, RECORDED)
