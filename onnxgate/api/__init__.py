"""The public Python API: predict on which releases a model loads, from an export script or a test.

Nothing in it prints, starts a process, or writes to the cache. Importing it loads neither `onnx` nor NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxgate.api.errors import ArgumentError
    from onnxgate.api.operators import Support, support
    from onnxgate.api.predictions import Prediction, assert_supported, predict
    from onnxgate.api.versions import newest_ir_version, newest_opset
    from onnxgate.core.matrix import Reason
    from onnxgate.support.answers.operator_answers import SupportSpan, TypeSupport, VersionSupport

__all__ = (
    "ArgumentError",
    "Prediction",
    "Reason",
    "Support",
    "SupportSpan",
    "TypeSupport",
    "VersionSupport",
    "assert_supported",
    "newest_ir_version",
    "newest_opset",
    "predict",
    "support",
)

_MODULES = {
    "ArgumentError": "onnxgate.api.errors",
    "Prediction": "onnxgate.api.predictions",
    "Reason": "onnxgate.core.matrix",
    "Support": "onnxgate.api.operators",
    "SupportSpan": "onnxgate.support.answers.operator_answers",
    "TypeSupport": "onnxgate.support.answers.operator_answers",
    "VersionSupport": "onnxgate.support.answers.operator_answers",
    "assert_supported": "onnxgate.api.predictions",
    "newest_ir_version": "onnxgate.api.versions",
    "newest_opset": "onnxgate.api.versions",
    "predict": "onnxgate.api.predictions",
    "support": "onnxgate.api.operators",
}
"""The module that defines each name. It is imported on first use, because pytest imports this package at start-up."""


def __getattr__(name: str) -> object:
    """Return a public name from its module."""
    if name not in _MODULES:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    value: object = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, for completion in a REPL."""
    return sorted(__all__)
