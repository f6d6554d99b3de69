"""Classify a real load: the model loads, is refused, or is refused for reasons that predictions do not cover."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from campaigns.conformance.real_loads import CRASHED, TIMED_OUT
from onnxgate.diagnostics.classification import failure_family, find_missing_locale

BACKEND, FUZZ, PAIRS = "backend", "fuzz", "pairs"
KERNEL_IS_THERE = "the kernel exists, but its constructor requires different values"
Outcome = Literal["loads", "refused", "excluded"]

# A node that the runtime created, from a function body or next to an implicit cast.
_OTHER_NODES = re.compile(r"_inlfunc_|_inline_|Inserted\w*Cast")
# A constructor may reject a type rather than a value.
_TYPES = re.compile(r"tensor type \d+ is not supported|Unsupported value attribute datatype")
_DECLARED = re.compile(r"of output arg \(y\d+\) of node \(\) does not match expected type")


@dataclass(frozen=True, slots=True)
class Real:
    """Outcome of one model on one release. `reason` states why the model is ignored; "" if it counts."""

    outcome: Outcome
    reason: str
    text: str


def real(corpus: str, name: str, text: str) -> Real:
    """Classify a load. Every refusal of a backend model counts, while invalid fuzzed models are ignored."""
    reason = _everywhere(text) or (_fuzz(name, text) if corpus != BACKEND else "")
    if reason:
        return Real("excluded", reason, text)
    return Real("refused" if text else "loads", "", text)


def _everywhere(text: str) -> str:
    if text.startswith(CRASHED):
        return "the runtime crashes"
    if text.startswith(TIMED_OUT):
        return "the runtime hangs"
    return "depends on the machine's locale" if find_missing_locale(text) else ""


def _fuzz(name: str, text: str) -> str:
    """Return why a fuzzed case is invalid: values that the schema does not exclude, or wrongly declared types."""
    match failure_family(text):
        case "shape_inference" if not _OTHER_NODES.search(text):
            return "the shape inference of the operator requires different values"
        case "constructor" if not _TYPES.search(text):
            return KERNEL_IS_THERE
        case "type" if name.endswith(" typed") and _DECLARED.search(text):
            return "the declared type of an output differs from the inferred type"
        case "" if text:
            return _unnamed(text)
    return ""


def _unnamed(text: str) -> str:
    if "type inference failed" in text:
        return "the type of an output is unknown"
    if "index < data_.size()" in text:
        return "the shape inference of the operator reads an optional argument that is omitted"
    if "is not compatible with any execution provider" in text:
        return "the operator is only for other execution providers"
    return ""
