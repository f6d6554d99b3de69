"""Tensors stored as `.npy` files without pickle."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterable, Iterator, List, Tuple

import numpy as np

from .failures import UnusableError


def read_array(path: str) -> Any:
    """Read a tensor; strings become Python objects, as runtimes expect."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UnusableError("input `%s` cannot be read: %s" % (os.path.basename(path), error)) from error
    return array.astype(object) if array.dtype.kind == "U" else array


def read_feeds(case: Dict[str, Any]) -> Dict[str, Any]:
    """Return the inputs of a case by name, as writable copies in C order."""
    return {name: np.asarray(read_array(path), order="C") for name, path in case["inputs"].items()}


NUMPY_KINDS = "biufcUSO"
"""Values of `dtype.kind` for numpy's built-in types. Types from ml_dtypes have other kinds."""


def to_storable(value: Any) -> Any:
    """Return the array to store, with bfloat16 as float32; None if numpy cannot represent the value."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    if array.dtype.kind not in NUMPY_KINDS:
        return None
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def write_array(path: str, value: Any) -> bool:
    """Write the value; return False if numpy cannot represent it."""
    array = to_storable(value)
    if array is None:
        return False
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        np.save(path, array, allow_pickle=False)
    except OSError as error:
        raise UnusableError("an output cannot be written: %s" % (error.strerror or error)) from error
    return True


def name_arrays(outputs: Iterable[Tuple[str, bool]]) -> List[str]:
    """Return the names of the output arrays. `outputs` contains the name of each output and whether it is a container.

    A container has two arrays: its values and its layout.
    """
    names: List[str] = []
    for name, is_container in outputs:
        names += [name, name + " (layout)"] if is_container else [name]
    return names


def flatten(value: Any) -> List[Any]:
    """Return two arrays for a container: its values (flattened if their shapes differ) and its layout."""
    layout = np.array(list(_describe_layout(value)), dtype=np.str_)
    leaves = [np.asarray(leaf) for leaf in _leaves(value)]
    return [_join_leaves(leaves, value), layout]


def _describe_layout(value: Any) -> Iterator[str]:
    """Yield the parts of a layout, depth first: lengths, keys and shapes."""
    if value is None:
        yield "nothing"
    elif isinstance(value, dict):
        yield "map of %d" % len(value)
        for key in _sorted_keys(value):
            yield repr(key)
            yield from _describe_layout(value[key])
    elif isinstance(value, (list, tuple)):
        yield "sequence of %d" % len(value)
        for element in value:
            yield from _describe_layout(element)
    elif np.ndim(value):
        yield "shape %s" % list(np.shape(value))


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the arrays and numbers, in the order of `_describe_layout`."""
    if isinstance(value, dict):
        for key in _sorted_keys(value):
            yield from _leaves(value[key])
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _leaves(element)
    elif value is not None:
        yield value


def _sorted_keys(value: Any) -> List[Any]:
    """Return the keys in an order that does not depend on the runtime."""
    return sorted(value, key=lambda key: (type(key).__name__, key))


def _join_leaves(leaves: List[Any], value: Any) -> Any:
    if not leaves:
        return np.zeros(0, np.float32)
    if len({leaf.shape for leaf in leaves}) > 1:
        return np.concatenate([leaf.ravel() for leaf in leaves])
    if isinstance(value, np.ndarray):
        return leaves[0]
    # A list of maps with equal lengths becomes a matrix; all other containers become one axis.
    lengths = {len(part) if isinstance(part, dict) else 0 for part in value} if isinstance(value, list) else {0}
    columns = lengths.pop() if len(lengths) == 1 else 0
    axes = (len(leaves) // columns, columns) if columns else (len(leaves),)  # not -1, since the leaves may be empty
    return np.stack(leaves).reshape((*axes, *leaves[0].shape))
