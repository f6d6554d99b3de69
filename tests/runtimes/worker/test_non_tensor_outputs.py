"""Non-tensor outputs as arrays that are equal only if the outputs are equal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxgate.runtimes.worker import arrays

ONE, TWO = np.array([1.0], np.float32), np.array([1.0, 2.0], np.float32)


def _flat(value: Any) -> tuple[list[Any], list[str]]:
    values, layout = arrays.flatten(value)
    return values.tolist(), layout.tolist()


@pytest.mark.parametrize(
    ("value", "values"),
    [
        ({2: 0.25, 1: 0.75}, [0.75, 0.25]),
        ([{"b": 0.25, "a": 0.75}, {"a": 0.5, "b": 0.5}], [[0.75, 0.25], [0.5, 0.5]]),
        ([{"a": 1.0}, {"a": 2.0, "b": 3.0}], [1.0, 2.0, 3.0]),
        ([TWO, TWO], [[1.0, 2.0], [1.0, 2.0]]),
        ([ONE, TWO], [1.0, 1.0, 2.0]),
        (TWO, [1.0, 2.0]),
        ({"a": TWO}, [[1.0, 2.0]]),
        ([], []),
        (None, []),
    ],
)
def test_values(value: Any, values: list[Any]) -> None:
    """Values are in the order of the keys, and stacked if all parts have the same shape."""
    assert _flat(value)[0] == values


@pytest.mark.parametrize(
    ("value", "other"),
    [
        (None, []),
        ([ONE, TWO], [TWO, ONE]),
        ([ONE, ONE], TWO),
        ([{"a": 1.0}, {"b": 1.0}], [{"a": 1.0}, {"a": 1.0}]),
        ([{"a": 1.0}], [{"b": 1.0}]),
        ({1: 1.0}, {"1": 1.0}),
        ([{"a": 1.0, "b": 1.0}, {}], [{"a": 1.0}, {"b": 1.0}]),
        ([None, ONE], [ONE, None]),
    ],
)
def test_layout_tells_apart(value: Any, other: Any) -> None:
    """Outputs with different keys, shapes or lengths have different layouts, even if their values are equal."""
    assert _flat(value)[1] != _flat(other)[1]


def test_order_of_keys_is_no_difference() -> None:
    """The order of a map's keys does not matter."""
    assert _flat({"a": 1.0, "b": 2.0}) == _flat({"b": 2.0, "a": 1.0})


def test_words_stay_words() -> None:
    """A sequence of strings can be written without pickle."""
    values, _ = arrays.flatten([np.array(["a"], dtype=object), np.array(["b"], dtype=object)])

    assert values.astype(np.str_).tolist() == [["a"], ["b"]]


def test_empty_tensors_of_a_sequence_keep_their_shape() -> None:
    """A detector without detections returns a list of empty tensors, which is a valid result."""
    values, _ = arrays.flatten([np.zeros((0, 4), np.float32)] * 2)

    assert values.shape == (2, 0, 4)
