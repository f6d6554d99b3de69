"""Outputs that are no tensors (sequences, maps, optionals) as two arrays: their values, and how they are laid out.

Two containers are equal where both arrays are: the layout has every key, every shape and every absence.
"""

from __future__ import annotations

from typing import Any, Iterator, List

import numpy as np

ABSENT = "nothing"


def layout_name(name: str) -> str:
    """What the second array of an output is called."""
    return name + " (layout)"


def flat(value: Any) -> List[Any]:
    """The values, as the array that they are if all parts are alike, else in one row; and the layout in words."""
    layout = np.array(list(_words(value)), dtype=np.str_)
    leaves = [np.asarray(leaf) for leaf in _leaves(value)]
    return [_joined(leaves, value), layout]


def _words(value: Any) -> Iterator[str]:
    """Depth first: lengths, keys, shapes."""
    if value is None:
        yield ABSENT
    elif isinstance(value, dict):
        yield "map of %d" % len(value)
        for key in _keys(value):
            yield repr(key)
            yield from _words(value[key])
    elif isinstance(value, (list, tuple)):
        yield "sequence of %d" % len(value)
        for each in value:
            yield from _words(each)
    elif np.ndim(value):
        yield "shape %s" % list(np.shape(value))


def _leaves(value: Any) -> Iterator[Any]:
    """The arrays and numbers, in the order of `_words`."""
    if isinstance(value, dict):
        for key in _keys(value):
            yield from _leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _keys(value: Any) -> List[Any]:
    """In an order that does not depend on the runtime."""
    return sorted(value, key=lambda key: (type(key).__name__, key))


def _joined(leaves: List[Any], value: Any) -> Any:
    if not leaves:
        return np.zeros(0, np.float32)
    if len({leaf.shape for leaf in leaves}) > 1:
        return np.concatenate([leaf.ravel() for leaf in leaves])
    shape = leaves[0].shape
    if isinstance(value, np.ndarray):
        return leaves[0]
    return np.stack(leaves).reshape(_axes(value, len(leaves)) + shape)


def _axes(value: Any, count: int) -> Any:
    """Rows of a sequence of maps with as many keys each; one axis for all else."""
    lengths = {len(each) if isinstance(each, dict) else 0 for each in value} if isinstance(value, list) else {0}
    length = lengths.pop() if len(lengths) == 1 else 0
    return (count // length, length) if length else (count,)
