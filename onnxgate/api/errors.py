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


def require_type(name: str, value: object, *types: type) -> None:
    """Raise a `TypeError` unless an argument has one of the types. `bool` does not count as `int`."""
    if not isinstance(value, types) or isinstance(value, bool):
        expected = " or ".join(f"`{it.__name__}`" for it in types)
        raise TypeError(f"`{name}` must be {expected}, got `{type(value).__name__}`")
