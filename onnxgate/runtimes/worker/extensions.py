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
        library = ""
        try:
            library = _library(extension)
            options.register_custom_ops_library(library)
        except Exception as error:  # noqa: BLE001 - a package's own import raises what it likes
            name = os.path.basename(extension)
            said = _said(error, os.path.dirname(library))
            raise failures.UnusableError("extension `%s` cannot be registered: %s" % (name, said)) from error


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


def _said(error: Exception, hide: str) -> str:
    said = failures.failure(error, hide)
    return str(said["text"]) if isinstance(error, LookupError) else "%(type)s: %(text)s" % said
