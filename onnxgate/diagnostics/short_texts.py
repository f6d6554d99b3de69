"""Failures of runtimes as one short line."""

from __future__ import annotations

import re

from onnxgate.core.jobs import Failure

MAX_FAILURE_LENGTH = 200

_PREFIXES = re.compile(
    r"^(?:\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S.*? failed: ?|\{\w+\.(?:cc|h):\d+\} |\w+\.(?:cc|h):\d+ "
    r"|Non-zero status code returned while running \w+ node\. Name:'.*?' Status Message: |Fatal error: )"
)
"""Parts of a text of ONNX Runtime that say where, not what; line numbers change with every release."""

_CONDITION = re.compile(r"^[^.]{1,120} was false\. (?=\S)")
"""The condition in C++ before the sentence that explains it; it changes with releases, the sentence does not."""


def shorten_failure(failure: Failure | None) -> str:
    """What the runtime said, as one short line without its own file names; where it said nothing, the error's name."""
    said = (failure.text.strip() or failure.type) if failure is not None else ""
    text = " ".join(said.split()).replace("`", "'")
    before = ""
    while before != text:
        before, text = text, _PREFIXES.sub("", text)
    text = _CONDITION.sub("", text)
    return text if len(text) <= MAX_FAILURE_LENGTH else text[: MAX_FAILURE_LENGTH - 1] + "…"
