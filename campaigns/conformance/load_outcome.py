"""Classify a real load: the model loads, is refused, or is refused for reasons that predictions do not cover."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from campaigns.conformance.real_loads import CRASHED, TIMED_OUT
from onnxgate.diagnostics.classification import failure_family, find_missing_locale

BACKEND, FUZZ, PAIRS = "backend", "fuzz", "pairs"
KERNEL_IS_THERE = "the kernel is there, its constructor wants other values"
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
    """Classify a load. Every refusal of a backend model counts; invalid fuzzed models are ignored."""
    reason = _everywhere(text) or (_fuzz(name, text) if corpus != BACKEND else "")
    if reason:
        return Real("excluded", reason, text)
    return Real("refused" if text else "loads", "", text)


def _everywhere(text: str) -> str:
    if text.startswith(CRASHED):
        return "the runtime crashes"
    if text.startswith(TIMED_OUT):
        return "the runtime does not come back"
    return "depends on the machine's locale" if find_missing_locale(text) else ""


def _fuzz(name: str, text: str) -> str:
    """Return why a fuzzed case is invalid: values beyond the schema, or wrongly declared types."""
    match failure_family(text):
        case "shape_inference" if not _OTHER_NODES.search(text):
            return "the operator's own inference wants other values"
        case "constructor" if not _TYPES.search(text):
            return KERNEL_IS_THERE
        case "type" if name.endswith(" typed") and _DECLARED.search(text):
            return "the case declares another type for a result than inference finds"
        case "" if text:
            return _unnamed(text)
    return ""


def _unnamed(text: str) -> str:
    if "type inference failed" in text:
        return "the type of a result is unknown"
    if "index < data_.size()" in text:
        return "the operator's own inference looks for an argument that may be left out"
    if "is not compatible with any execution provider" in text:
        return "the operator is for other execution providers"
    return ""
