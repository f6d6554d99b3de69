"""Outputs from which nothing can be concluded: no number on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def tells_nothing(candidate: Array, reference: Array) -> bool:
    """Whether both are NaN everywhere: they are alike, and that is no agreement. An infinity is a value."""
    return _is_blank(candidate) and _is_blank(reference)


def is_faint(candidate: Array, reference: Array, allowed: float, close: float) -> bool:
    """Whether two arrays agree only as zeros would, too: the reference is nowhere larger than what may differ.

    What is as near as the share `close` of the largest element agrees, however small that is.
    """
    import numpy as np

    if reference.dtype.kind not in "fc" or not reference.size or np.array_equal(candidate, reference):
        return False
    told = np.isfinite(reference) & np.isfinite(candidate)
    largest = float(np.abs(reference[told]).max(initial=0.0))
    return largest <= allowed and float(np.abs(candidate[told] - reference[told]).max(initial=0.0)) > close * largest


def _is_blank(array: Array) -> bool:
    import numpy as np

    return array.dtype.kind in "fc" and array.size > 0 and bool(np.isnan(array).all())
