"""The package `onnx` without what its initialization imports.

Reading and checking a small model takes milliseconds, importing `onnx` a quarter of a second: numpy and a dozen modules
that build, convert and print models. Its protobuf classes, its checker and its shape inference need none of that.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

_PROTOBUF_MODULE = "onnx.onnx_ml_pb2"
"""Module of the protobuf classes. Source: onnx 1.18 to 1.23."""


class _DeferredPackage(ModuleType):
    """The package `onnx`: each name is imported when it is used, from the module of onnx that has it."""

    def __getattr__(self, name: str) -> object:
        """Return a protobuf class or a module of onnx; for any other name, initialize the package."""
        classes = importlib.import_module(_PROTOBUF_MODULE)
        if name == "load_from_string":  # as `infer_shapes` calls it, with the bytes of a model and without a format
            return classes.ModelProto.FromString
        if hasattr(classes, name):
            found: object = getattr(classes, name)
            setattr(self, name, found)
            return found
        if not name.startswith("_") and importlib.util.find_spec(f"onnx.{name}") is not None:
            return importlib.import_module(f"onnx.{name}")
        object.__setattr__(self, "__class__", ModuleType)  # an ordinary package from now on
        if self.__spec__ is not None and self.__spec__.loader is not None:
            self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def defer_initialization() -> None:
    """Have `import onnx` not initialize the package before something needs it; no effect if it was imported."""
    spec = None if "onnx" in sys.modules else importlib.util.find_spec("onnx")
    if spec is not None:
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _DeferredPackage
        sys.modules["onnx"] = package
