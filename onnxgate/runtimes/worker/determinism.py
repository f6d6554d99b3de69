"""The same case run twice: outputs that differ, and outputs that share memory with the inputs.

Inputs must be owned by us, writable and in C order.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence

import numpy as np

from . import arrays

LOOSE_TOLERANCE = 1e-3
"""Of the largest value: so far may two runs differ where a provider adds up in no fixed order, as CUDA's atomics do."""


def find_unstable_outputs(names: Sequence[str], values: Sequence[Any], paths: Sequence[Any], exact: bool) -> List[str]:
    """The outputs that differ from what the first run wrote: bit by bit, or where not `exact`, by more than `LOOSE`."""
    found = []
    for name, value, path in zip(names, values, paths):  # noqa: B905 - Python 3.8
        again = arrays.to_storable(value)
        if path is None or again is None:
            continue
        first = np.load(path, allow_pickle=False)
        if not _are_same_bits(first, again) and (exact or not _are_close(first, again)):
            found.append(name)
    return found


def find_aliased_outputs(names: Sequence[str], values: Sequence[Any], feeds: Dict[str, Any]) -> List[str]:
    """The outputs that lie in the memory of a fed array, proven by changing that array and seeing the output change."""
    pairs = [(name, value, fed) for name, value in zip(names, values) for fed in feeds.values()]  # noqa: B905
    return list(
        dict.fromkeys(name for name, value, fed in pairs if _share_memory(value, fed) and _follows_input(value, fed))
    )


def _are_same_bits(first: Any, again: Any) -> bool:
    """Whether two arrays are the same bits; NaN is NaN, whatever its bits."""
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
    here = ~(np.isnan(first) & np.isnan(again))
    return bool(first[here].tobytes() == again[here].tobytes())


def _are_close(first: Any, again: Any) -> bool:
    if first.shape != again.shape or first.dtype.kind not in "fc" or again.dtype.kind not in "fc":
        return False
    finite = np.abs(first[np.isfinite(first)])
    allowed = LOOSE_TOLERANCE * max(1.0, float(finite.max()) if finite.size else 0.0)
    return bool(np.allclose(again, first, rtol=0, atol=allowed, equal_nan=True))


def _share_memory(value: Any, fed: Any) -> bool:
    """Whether the memory of both has a byte in common; arrays of strings hold pointers, and are copied."""
    both = isinstance(value, np.ndarray) and isinstance(fed, np.ndarray)
    if not both or not value.size or "O" in (value.dtype.kind, fed.dtype.kind):
        return False
    return bool(np.may_share_memory(value, fed))  # by their bounds: both are one block


def _follows_input(value: Any, fed: Any) -> bool:
    """Whether the value changes when every bit of the fed array does; the array is afterwards what it was."""
    before = value.tobytes()
    bits = fed.reshape(-1).view(np.uint8)
    np.invert(bits, out=bits)
    after = value.tobytes()
    np.invert(bits, out=bits)
    return bool(after != before)
