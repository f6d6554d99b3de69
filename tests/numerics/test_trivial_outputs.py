"""Outputs that allow no conclusion."""

from __future__ import annotations

import numpy as np
import pytest

from onnxgate.numerics.agreement import are_both_nan, is_negligible

BLANK = np.full((2, 2), np.nan, np.float32)


def test_no_number_on_either_side() -> None:
    """Outputs that are entirely NaN on both sides are detected in any shape and precision."""
    assert are_both_nan(BLANK, BLANK.astype(np.float16)[:1])


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
def test_other_outputs_are_not_blank(other: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> None:
    """A number, an infinity or an empty array on either side is not blank."""
    assert (are_both_nan(BLANK, other), are_both_nan(other, BLANK)) == (False, False)


FAINT = np.array([[3e-8, -1e-8]], np.float32)


@pytest.mark.parametrize(
    ("candidate", "allowed", "faint"),
    [
        (FAINT * np.float32(1.01), 1e-5, True),
        (np.zeros_like(FAINT), 1e-5, True),
        (FAINT * np.float32(1.00001), 1e-5, False),
        (FAINT, 1e-5, False),
        (FAINT * np.float32(1.01), 1e-9, False),
    ],
)
def test_output_within_tolerance_of_zero_is_negligible(
    candidate: np.ndarray[tuple[int, ...], np.dtype[np.float32]], allowed: float, faint: bool
) -> None:
    """An output within the tolerance of zero is negligible, unless both sides are equal or relatively close."""
    assert faint == is_negligible(candidate, FAINT, allowed, 1e-4)
