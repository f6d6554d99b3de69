"""Tensors on disk: `.npy` without pickle."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .failures import UnusableError


def read(path: str) -> Any:
    """The tensor; strings as objects, which is how runtimes take them."""
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UnusableError("the input `%s` cannot be read: %s" % (os.path.basename(path), error)) from error
    return array.astype(object) if array.dtype.kind == "U" else array


def plain(value: Any) -> Any:
    """The value as it is written; None where it is no tensor that numpy can hold."""
    if not isinstance(value, (np.ndarray, np.generic)):
        return None
    array = np.asarray(value)
    return array.astype(np.str_) if array.dtype.kind == "O" else array


def write(path: str, value: Any) -> bool:
    """False where it is no tensor that numpy can hold."""
    array = plain(value)
    if array is None:
        return False
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        np.save(path, array, allow_pickle=False)
    except OSError as error:
        raise UnusableError("an output cannot be written: %s" % error.strerror) from error
    return True
