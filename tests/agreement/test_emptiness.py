"""Outputs from which nothing can be concluded."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgate.agreement.emptiness import tells_nothing

BLANK = np.full((2, 2), np.nan, np.float32)


def test_no_number_on_either_side() -> None:
    """Whatever the shapes and the precision."""
    assert tells_nothing(BLANK, BLANK.astype(np.float16)[:1])


@pytest.mark.parametrize(
    "other",
    [
        np.array([[np.nan, np.nan], [np.nan, 1]]),
        np.full((2, 2), np.inf),
        np.zeros((2, 2), np.int64),
        np.zeros(0),
        np.array(["nan"]),
    ],
)
def test_anything_else_tells_something(other: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    """One number, an infinity, an empty array: on either side."""
    assert (tells_nothing(BLANK, other), tells_nothing(other, BLANK)) == (False, False)
