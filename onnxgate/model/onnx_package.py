"""The `onnx` package with deferred initialization.

Reading and checking a small model takes milliseconds, but importing `onnx` takes a quarter of a second, because it
imports NumPy and many modules that build, convert and print models. The protobuf classes, the checker and shape
inference do not need these modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

_PROTOBUF_MODULE = "onnx.onnx_ml_pb2"
"""Module that contains the protobuf classes. Source: onnx 1.18–1.23."""


class _DeferredPackage(ModuleType):
    """The `onnx` package; each name is imported from its module on first use."""

    def __getattr__(self, name: str) -> object:
        """Return the protobuf class or module of `onnx` with this name; for any other name, initialize the package."""
        classes = importlib.import_module(_PROTOBUF_MODULE)
        if name == "load_from_string":  # `infer_shapes` calls it with the bytes of a model and without a format
            return classes.ModelProto.FromString
        if hasattr(classes, name):
            found: object = getattr(classes, name)
            setattr(self, name, found)
            return found
        if not name.startswith("_") and importlib.util.find_spec(f"onnx.{name}") is not None:
            return importlib.import_module(f"onnx.{name}")
        object.__setattr__(self, "__class__", ModuleType)  # the package is initialized now
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def defer_initialization() -> None:
    """Defer the initialization of `onnx` until it is needed. This has no effect if it is already imported."""
    spec = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    if spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _DeferredPackage
        sys.modules["onnx"] = package
