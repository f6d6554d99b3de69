"""Checks of repeated runs: outputs that differ, and outputs that share memory with the inputs.

Inputs must be private copies, writable and in C order.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np

from . import arrays

LOOSE_TOLERANCE = 1e-3
"""Relative to the largest value: two runs may differ by this if a provider sums in no fixed order (CUDA atomics)."""


def find_unstable_outputs(names: Sequence[str], values: Sequence[Any], paths: Sequence[Any], exact: bool) -> List[str]:
    """Return the outputs that differ from the first run: in any bit if `exact`, or beyond `LOOSE_TOLERANCE`."""
    unstable = []
    for name, value, path in zip(names, values, paths):  # noqa: B905 - Python 3.8
        again = arrays.to_storable(value)
        if path is None or again is None:
            continue
        first = np.load(path, allow_pickle=False)
        if not _are_same_bits(first, again) and (exact or not _are_close(first, again)):
            unstable.append(name)
    return unstable


def find_aliased_outputs(names: Sequence[str], values: Sequence[Any], feeds: Dict[str, Any]) -> List[str]:
    """Return the outputs that share memory with an input, proven by changing the input and comparing the output."""
    pairs = [(name, value, fed) for name, value in zip(names, values) for fed in feeds.values()]  # noqa: B905
    aliased = (name for name, value, fed in pairs if _share_memory(value, fed) and _follows_input(value, fed))
    return list(dict.fromkeys(aliased))


def _are_same_bits(first: Any, again: Any) -> bool:
    """Return whether two arrays have the same bits; all NaNs are equal."""
    if first.shape != again.shape:
        return False
    if first.dtype.kind in "US":
        return bool((first == again).all())
    if first.dtype != again.dtype:
        return False
    if first.tobytes() == again.tobytes():
        return True
    if first.dtype.kind not in "fc":
        return False
    numbers = ~(np.isnan(first) & np.isnan(again))
    return bool(first[numbers].tobytes() == again[numbers].tobytes())


def _are_close(first: Any, again: Any) -> bool:
    if first.shape != again.shape or first.dtype.kind not in "fc" or again.dtype.kind not in "fc":
        return False
    finite = np.abs(first[np.isfinite(first)])
    allowed = LOOSE_TOLERANCE * max(1.0, float(finite.max()) if finite.size else 0.0)
    return bool(np.allclose(again, first, rtol=0, atol=allowed, equal_nan=True))


def _share_memory(value: Any, fed: Any) -> bool:
    """Return whether both arrays share a byte of memory; arrays of strings contain pointers, and are copied."""
    both = isinstance(value, np.ndarray) and isinstance(fed, np.ndarray)
    if not both or not value.size or "O" in (value.dtype.kind, fed.dtype.kind):
        return False
    return bool(np.may_share_memory(value, fed))  # comparing bounds suffices: both are contiguous


def _follows_input(value: Any, fed: Any) -> bool:
    """Return whether the value changes when every bit of the input is inverted; the input is restored."""
    before = value.tobytes()
    bits = fed.reshape(-1).view(np.uint8)
    np.invert(bits, out=bits)
    after = value.tobytes()
    np.invert(bits, out=bits)
    return bool(after != before)
