"""Errors of runtimes and sources, cleaned for display."""

from __future__ import annotations

import os
import re
from typing import Any, Dict

TEXT_LIMIT = 4_000
READ_LIMIT = 40_000

ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.)?")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# The C++ source line and function that ONNX Runtime puts before error messages, including nested ones. Repetitions are
# bounded for speed.
_SIGNATURE = re.compile(
    r"(?<![^\s:])(?:[A-Za-z]:\\|/)[^\s:]*[/\\]\w+\.(?:cc|h):\d+ "
    r".{0,2000}?\)(?: const)?(?:::<lambda\(\)>)?(?: \[with [^\]]{0,2000}\])? "
    r"(?=[A-Z\[a-z])"
)
_SOURCE_LOCATION = re.compile(r"(?<![^\s:])\w+\.(?:cc|h):\d+ ")
# Source: onnxruntime 1.16.3 to 1.31.1 (bfc_arena.cc), libstdc++, numpy, glibc.
_NO_MEMORY = re.compile(r"Failed to allocate memory|bad_?alloc|Unable to allocate|[Cc]annot allocate memory")


class ProviderNotUsedError(Exception):
    """The session does not use the requested providers."""


class UnusableError(Exception):
    """The job cannot run for a reason other than the model, such as an unreadable file."""


def describe_failure(error: BaseException, hide: str = "") -> Dict[str, Any]:
    """Return the error as a `jobs.Failure`, with the path of the folder `hide` removed from its text."""
    text = str(error)
    if hide:
        text = text.replace(hide + os.sep, "").replace(hide, ".")
    return {
        "type": type(error).__name__,
        "text": clean_text(text),
        "memory": isinstance(error, MemoryError) or _NO_MEMORY.search(text[:READ_LIMIT]) is not None,
    }


def clean_text(text: str) -> str:
    """Remove terminal escapes, control characters and C++ source lines, which vary by release; limit the length."""
    text = ESCAPES.sub("", text[:READ_LIMIT]).replace("\r\n", "\n")
    text = _SOURCE_LOCATION.sub("", _SIGNATURE.sub("", CONTROLS.sub("", text))).strip()
    return text if len(text) <= TEXT_LIMIT else text[: TEXT_LIMIT - 1] + "…"
