"""Generated values: reproducible, within bounds, and meaningful."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.inputs.axis_sizes import DTYPES
from onnxgate.inputs.roles import CategoryRole, IndexRole, LengthRole, MaskRole, PlainRole, ValueDomain
from onnxgate.inputs.values import draw_normal, generate_values

SHAPES = st.lists(st.integers(0, 5), max_size=3)


def test_values_never_change() -> None:
    """Values never change, so that measured bounds and failures stay comparable between releases."""
    floats = generate_values(PlainRole(), "float32", [2, 3], "x\0sizes batch=2")
    words = generate_values(PlainRole(), "str", [4], "x")

    digest = hashlib.sha256(floats.tobytes()).hexdigest()
    assert (digest[:8], words.tolist()) == ("0e450095", ["alpha", "epsilon", "gamma", "zeta"])


def test_normal_values_are_nearly_normal() -> None:
    """Values have mean 0 and variance 1, and none is beyond 3.47."""
    values = draw_normal("seed", (100, 1000))

    assert (pytest.approx(values.mean(), abs=0.01), pytest.approx(values.std(), abs=0.01)) == (0.0, 1.0)
    assert 3.0 < np.abs(values).max() < 3.47


def test_inputs_differ_from_each_other() -> None:
    """Two inputs of the same shape get different values, and so does one input in two cases."""
    first, second = (generate_values(PlainRole(), "float32", [8], seed) for seed in ("a\0one", "b\0one"))

    assert not np.array_equal(first, second)


@given(st.sampled_from(sorted(set(DTYPES.values()))), SHAPES, st.text(max_size=3))
def test_every_type_has_values(dtype: str, shape: list[int], seed: str) -> None:
    """Values have the requested shape and type, are finite, and can be saved without pickle."""
    values = generate_values(PlainRole(), dtype, shape, seed)

    assert (tuple(shape), np.dtype(dtype).kind) == (values.shape, values.dtype.kind)
    assert values.dtype.kind != "f" or np.isfinite(values).all()


@given(st.integers(-3, 50), st.integers(-3, 60), SHAPES)
def test_indices_stay_in_bounds(low: int, high: int, shape: list[int]) -> None:
    """Indices stay in bounds, even if only one index is valid."""
    values = generate_values(IndexRole(low, high), "int64", shape, "ids")

    assert ((low <= values) & (values < max(high, low + 1))).all()


def test_padding_token_is_avoided() -> None:
    """The padding token is avoided, because rows of padding would be masked completely."""
    values = generate_values(IndexRole(0, 3, avoid=0), "int64", [1000], "ids")

    assert {1, 2} == set(values.tolist())


def test_places_to_write_are_distinct() -> None:
    """Indices for writing are distinct, because the result of writing one twice is undefined."""
    values = generate_values(IndexRole(0, 5, distinct_along=1), "int64", [2, 4], "where")

    assert values.tolist() == [[0, 1, 2, 3]] * 2


@given(st.sampled_from([True, False, None]), st.integers(1, 4), st.integers(1, 9))
def test_no_row_of_a_mask_is_masked_completely(keeps: bool | None, rows: int, length: int) -> None:
    """No row is masked completely; if the meaning of ones is unknown, longer rows contain both values."""
    mask = generate_values(MaskRole(keeps), "bool", [rows, length], "mask")
    kept = ~mask if keeps is False else mask

    assert kept.any(axis=-1).all()
    assert kept[:, 0].all()
    assert keeps is not None or length == 1 or not mask.all(axis=-1).any()
    assert keeps is None or kept[0].all()


def test_some_rows_are_padded() -> None:
    """Some positions are masked, because a mask of only ones would not test masking."""
    assert not generate_values(MaskRole(True), "int64", [3, 12], "mask").all()


@given(st.integers(1, 20), st.integers(1, 5))
def test_lengths_are_possible(limit: int, count: int) -> None:
    """Lengths are between 1 and the limit, and the first one is the limit."""
    values = generate_values(LengthRole(limit), "int32", [count], "lengths")

    assert limit == values[0]
    assert ((values >= 1) & (values <= limit)).all()


@pytest.mark.parametrize(
    ("domain", "low", "high"),
    [("positive", 0.05, 4), ("unit", -0.9, 0.9), ("fraction", 0, 0.9), ("above one", 1.05, 5), ("zero", 0, 0)],
)
def test_domains(domain: ValueDomain, low: float, high: float) -> None:
    """Values are in the domain of the function that uses them."""
    values = generate_values(PlainRole(domain), "float32", [1000], "x")

    assert low <= values.min() <= values.max() <= high


def test_integers_that_divide_are_not_zero() -> None:
    """Divisors are not zero, because an integer division by zero ends the process on some systems."""
    assert generate_values(PlainRole("positive"), "int64", [1000], "x").min() == 1


def test_categories_are_known_ones() -> None:
    """Categories are drawn from the encoder's, in the input's type."""
    words = generate_values(CategoryRole(("red", "blue")), "str", [50], "x")
    numbers = generate_values(CategoryRole((5, 9)), "float32", [50], "x")

    assert ({"red", "blue"}, {5.0, 9.0}) == (set(words.tolist()), set(numbers.tolist()))
