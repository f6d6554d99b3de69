"""Comparison of arrays: the formula, non-finite values, exact integers, and mismatched shapes and types."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onnxgate.numerics.agreement import compare_arrays, find_not_finite

FLOATS = arrays.arrays(np.float32, arrays.array_shapes(max_side=4), elements=st.floats(width=32))
INT64 = st.integers(-(2**63), 2**63 - 1)


def _f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, dtype=np.float32)


def test_formula_is_relative_to_the_reference() -> None:
    """The tolerance in `|a - b| <= atol + rtol * |b|` grows with the reference, not with the candidate."""
    assert compare_arrays(_f32(2.0), _f32(1.0), 1.0, 0.0).agrees
    assert not compare_arrays(_f32(2.0), _f32(0.5), 1.0, 0.0).agrees
    assert compare_arrays(_f32(0.5), _f32(2.0), 1.0, 0.0).agrees


def test_figure_is_that_of_the_element_that_uses_most_of_its_bound() -> None:
    """The worst element is the one with the largest share of its tolerance; its index and both values are reported."""
    comparison = compare_arrays(_f32(1010.0, 0.5), _f32(1000.0, 0.25), 0.1, 0.0)

    assert (comparison.agrees, comparison.metric, comparison.value, pytest.approx(comparison.bound)) == (
        False,
        "worst_abs",
        0.25,
        0.025,
    )
    assert (comparison.mismatched, comparison.max_abs) == (1, 10.0)
    assert comparison.detail == "at [1]: 0.5 instead of 0.25; 1 of 2 elements differ"


@pytest.mark.parametrize(
    ("candidate", "reference", "agrees"),
    [
        (np.nan, np.nan, True),
        (np.inf, np.inf, True),
        (-np.inf, -np.inf, True),
        (np.inf, -np.inf, False),
        (np.nan, np.inf, False),
        (np.nan, 0.0, False),
        (0.0, np.nan, False),
        (3e38, np.inf, False),
    ],
)
def test_not_finite(candidate: float, reference: float, agrees: bool) -> None:
    """NaN equals NaN and an infinity equals itself; other non-finite values differ at any tolerance."""
    comparison = compare_arrays(_f32(candidate, 1.0), _f32(reference, 1.0), 1e30, 1e30)

    assert (agrees, "worst_abs" if agrees else "not finite") == (comparison.agrees, comparison.metric)
    assert (0.0 if agrees else 1.0) == comparison.value


@pytest.mark.parametrize(
    ("candidate", "reference", "metric"),
    [
        (np.zeros((2, 10)), np.zeros((1, 10)), "shape"),
        (np.zeros((2,)), np.zeros(()), "shape"),
        (np.zeros((0,)), np.zeros((0, 1)), "shape"),
        (np.zeros(2, np.float32), np.zeros(2, np.int64), "type"),
        (np.zeros(2, bool), np.zeros(2, np.int64), "type"),
        (np.zeros(2, "V4"), np.zeros(2, "V4"), "type"),
    ],
)
def test_unlike_arrays_never_agree(candidate: Any, reference: Any, metric: str) -> None:
    """Arrays of different shapes or kinds differ at any tolerance."""
    comparison = compare_arrays(candidate, reference, 1e30, 1e30)

    assert (False, metric) == (comparison.agrees, comparison.metric)


def test_detail_contains_both_shapes() -> None:
    """Both shapes are in the detail, the candidate's first."""
    assert compare_arrays(np.zeros((2, 10)), np.zeros((1, 10)), 0.0, 0.0).detail == "shape (2, 10) instead of (1, 10)"


def test_widths_of_one_kind_may_be_compared() -> None:
    """Different widths of one kind are compared with a tolerance, in a wider type."""
    assert compare_arrays(np.array([1.0], np.float16), _f32(1.0009), 1e-3, 0.0).agrees
    assert not compare_arrays(np.array([65504.0], np.float16), np.array([-65504.0], np.float16), 1.0, 0.0).agrees


def test_empty_arrays_agree() -> None:
    """Arrays without elements are equal."""
    for dtype in (np.float32, np.int64, bool, "U3"):
        assert compare_arrays(np.zeros((0, 3), dtype), np.zeros((0, 3), dtype), 0.0, 0.0).agrees


def test_words_are_exact() -> None:
    """Strings must be equal at any tolerance; bytes and text of the same string are equal."""
    assert not compare_arrays(np.array(["cat"]), np.array(["cut"]), 1e9, 1e9).agrees
    assert compare_arrays(np.array([b"cat"]), np.array(["cat"]), 0.0, 0.0).agrees


def test_booleans_are_exact_unless_one_more_is_allowed() -> None:
    """Booleans must be equal unless the tolerance is at least 1."""
    true, false = np.array([True]), np.array([False])

    assert [compare_arrays(true, false, 0.0, atol).agrees for atol in (0.0, 0.5, 1.0)] == [False, False, True]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.bool_])
def test_share_of_the_elements_may_differ(dtype: Any) -> None:
    """A share of the elements may differ by any amount, rounded down to whole elements."""
    one, two, reference = (np.zeros(150, dtype) for _ in range(3))
    one[:1], two[:2] = 1, 1

    near, found = compare_arrays(one, reference, 0.0, 0.0, 0.01), compare_arrays(two, reference, 0.0, 0.0, 0.01)

    assert (near.agrees, near.value, near.bound, near.detail) == (True, 1.0, 1.0, "")
    assert (found.agrees, found.value, found.bound) == (False, 2.0, 1.0)
    assert found.detail.endswith("; 2 of 150 elements differ")
    assert not compare_arrays(one[:99], reference[:99], 0.0, 0.0, 0.01).agrees


def test_share_is_not_for_numbers() -> None:
    """A share applies neither to floats nor together with a tolerance."""
    values = np.zeros(150, np.int64)
    far = values.copy()
    far[0] = 9

    assert not compare_arrays(far.astype(np.float32), values.astype(np.float32), 0.0, 0.0, 0.01).agrees
    assert not compare_arrays(far, values, 0.0, 1.0, 0.01).agrees


def test_complex_numbers_are_compared_in_both_parts() -> None:
    """Both parts of complex numbers are compared."""
    assert not compare_arrays(np.array([1 + 2j]), np.array([1 + 3j]), 0.0, 0.5).agrees
    assert compare_arrays(np.array([1 + 2j]), np.array([1 + 3j]), 0.0, 1.0).agrees


def test_neighbouring_large_integers_differ() -> None:
    """Integers are not rounded to float64, and their difference does not overflow."""
    large = np.array([2**63 - 1, -(2**63)], np.int64)
    comparison = compare_arrays(large, np.array([2**63 - 2, 2**63 - 1], np.int64), 0.0, 0.0)

    assert (comparison.value, comparison.metric) == (2.0, "mismatched elements")
    assert float(2**64 - 1) == comparison.max_abs


def test_worst_integer_is_one_beyond_its_bound() -> None:
    """The worst integer is beyond its bound, even if float64 cannot distinguish it from one at its bound."""
    comparison = compare_arrays(np.array([2**60, 2**60 + 1], np.int64), np.zeros(2, np.int64), 0.0, float(2**60))

    assert not comparison.agrees
    assert comparison.detail.startswith(f"at [1]: {2**60 + 1} instead of 0; 1 of 2")


def test_signed_and_unsigned_integers_are_compared_by_value() -> None:
    """Signed and unsigned integers are compared by value, not by bits."""
    assert not compare_arrays(np.array([-1], np.int64), np.array([2**64 - 1], np.uint64), 0.0, 0.0).agrees
    assert compare_arrays(np.array([7], np.int8), np.array([7], np.uint64), 0.0, 0.0).agrees


@given(st.lists(st.tuples(INT64, INT64), min_size=1, max_size=5), st.integers(0, 2**62))
def test_integers_follow_the_formula_exactly(pairs: list[tuple[int, int]], atol: int) -> None:
    """The verdict equals that of exact arithmetic."""
    a, b = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    allowed = int(float(atol))

    assert all(abs(x - y) <= allowed for x, y in pairs) == compare_arrays(a, b, 0.0, float(atol)).agrees


@given(FLOATS)
def test_an_array_agrees_with_itself(array: np.ndarray[Any, Any]) -> None:
    """An array equals itself without a tolerance, even with NaN and infinities."""
    comparison = compare_arrays(array, array.copy(), 0.0, 0.0)

    assert (comparison.agrees, comparison.mismatched, comparison.detail) == (True, 0, "")


@given(st.data(), st.floats(0, 10), st.floats(0, 10))
def test_floats_follow_the_formula(data: st.DataObject, rtol: float, atol: float) -> None:
    """The verdict equals that of exact arithmetic, except for rounding at the bound; `agrees` is `value <= bound`."""
    element = st.floats(-1e6, 1e6, width=32)
    pairs = data.draw(st.lists(st.tuples(element, element), min_size=1, max_size=6))
    a, b = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    comparison = compare_arrays(a, b, rtol, atol)
    over = [Fraction(x) - Fraction(y) for x, y in pairs]
    allowed = [Fraction(atol) + Fraction(rtol) * abs(Fraction(y)) for _, y in pairs]
    margin = [abs(d) - limit for d, limit in zip(over, allowed, strict=True)]
    if all(abs(m) > Fraction(1, 10**9) * (1 + limit) for m, limit in zip(margin, allowed, strict=True)):
        assert all(m < 0 for m in margin) == comparison.agrees

    assert comparison.agrees == (comparison.value <= comparison.bound)
    assert comparison.mismatched == 0 or comparison.detail != ""


@given(FLOATS, st.data())
def test_one_changed_element_is_found(array: np.ndarray[Any, Any], data: st.DataObject) -> None:
    """A single NaN is found in any array."""
    index = data.draw(st.integers(0, array.size - 1))
    reference = np.where(np.isnan(array), np.float32(0), array)
    changed = reference.copy()
    changed.flat[index] = np.nan
    place = ", ".join(map(str, np.unravel_index(index, array.shape)))

    assert compare_arrays(changed, reference, 1e30, 1e30).detail.startswith(f"at [{place}]: nan instead of")


def test_not_finite_marks_places() -> None:
    """Integers are always finite."""
    assert find_not_finite(_f32(np.nan, 1.0, -np.inf)).tolist() == [True, False, True]
    assert find_not_finite(np.array([2**62])).tolist() == [False]
