"""The error that functions of the API raise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnxgate.core.errors import OnnxgateError


class ArgumentError(ValueError):
    """An argument is invalid, for example a requirement that no release matches. The message contains a suggestion."""


@contextmanager
def raise_argument_errors() -> Iterator[None]:
    """Raise the errors of commands about their arguments as `ArgumentError`."""
    try:
        yield
    except OnnxgateError as error:
        raise ArgumentError("; ".join(filter(None, (error.message, error.hint)))) from None
