"""Changes of weights and inputs by one unit in the last place."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgate.gate.execution.model_noise import change_rounding


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_each_number_becomes_a_neighbor(dtype: str) -> None:
    """About half of the numbers become larger and half smaller, by one unit in the last place."""
    values = np.random.default_rng(0).normal(size=(10, 100)).astype(dtype)
    changed = change_rounding(values, "seed")

    assert changed.dtype == values.dtype
    assert np.array_equal(np.abs(changed - values), np.abs(np.nextafter(values, changed) - values))
    assert 0.4 < (changed > values).mean() < 0.6
    assert (changed != values).all()


def test_special_numbers_are_kept() -> None:
    """Zeros, infinities, NaN and the largest numbers keep their value, because they may have a meaning."""
    values = np.array([0.0, np.inf, -np.inf, np.nan], np.float32)
    largest = np.full(8, np.finfo(np.float32).max)

    assert np.array_equal(values, change_rounding(values, "seed"), equal_nan=True)
    assert np.isfinite(change_rounding(largest, "seed")).all()


def test_changes_depend_only_on_the_seed() -> None:
    """The same seed gives the same changes on every machine."""
    values = np.ones(100, np.float32)

    assert np.array_equal(change_rounding(values, "a"), change_rounding(values, "a"))
    assert not np.array_equal(change_rounding(values, "a"), change_rounding(values, "b"))
