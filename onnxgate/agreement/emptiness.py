"""Outputs from which nothing can be concluded: no number on either side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


def tells_nothing(candidate: Array, reference: Array) -> bool:
    """Whether both are NaN everywhere: they are alike, and that is no agreement. An infinity is a value."""
    return _is_blank(candidate) and _is_blank(reference)


def _is_blank(array: Array) -> bool:
    import numpy as np

    return array.dtype.kind in "fc" and array.size > 0 and bool(np.isnan(array).all())
