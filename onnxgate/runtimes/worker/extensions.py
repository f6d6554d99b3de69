"""Libraries of custom operators: found by package or path, and registered for a session."""

from __future__ import annotations

import importlib
import os
from importlib import metadata
from typing import Any, List

from . import failures


def register(options: Any, extensions: List[str]) -> None:
    """Have the session that is made with these options know the operators of all of them.

    Raises:
        failures.UnusableError: one is not there, or is no library of custom operators.
    """
    for extension in extensions:
        try:
            options.register_custom_ops_library(_library(extension))
        except Exception as error:  # noqa: BLE001 - a package's own import raises what it likes
            raise failures.UnusableError(_refusal(extension, error)) from error


def _library(extension: str) -> str:
    """A path as it is; of a package, the library that it names itself."""
    if os.path.isabs(extension):
        if not os.path.isfile(extension):
            raise LookupError("there is no such file")
        return extension
    module = importlib.import_module(_module(extension))
    path = getattr(module, "get_library_path", None)
    if path is None:
        raise LookupError("its module `%s` has no `get_library_path`" % module.__name__)
    return str(path())


def _module(package: str) -> str:
    """What is imported for a package: what it says, else its own name."""
    usual = package.replace("-", "_")
    said = (metadata.distribution(package).read_text("top_level.txt") or "").split()
    return usual if usual in said or not said else said[0]


def _refusal(extension: str, error: Exception) -> str:
    said = failures.clean(str(error)).replace(os.path.dirname(extension) + os.sep, "")
    text = "%s: %s" % (type(error).__name__, said) if not isinstance(error, LookupError) else said
    return "extension `%s` cannot be registered: %s" % (os.path.basename(extension), text)
