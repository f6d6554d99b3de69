"""Exporters for frameworks. Each has one module in this folder and one entry in `FRAMEWORKS`."""

from __future__ import annotations

from typing import NamedTuple, Tuple


class Framework(NamedTuple):
    """One framework with its exporter and the packages that affect its exports."""

    title: str  # name in messages
    exporter: str  # module in this folder and its function
    modules: Tuple[str, ...]  # top-level packages that sources import and that define model classes
    packages: Tuple[str, ...]  # alternative distributions of the framework
    recorded: Tuple[str, ...]  # other distributions whose versions the lock records
    converters: Tuple[str, ...] = ()  # required modules, which have the same names as their distributions
    class_modules: Tuple[str, ...] = ()  # other packages that define model classes


PYTORCH = Framework("PyTorch", "pytorch:export", ("torch",), ("torch",), ("onnx", "onnxscript", "onnx-ir"))
"""`converters` is empty, since the exporter itself reports missing packages."""

_TREE_PACKAGES = (("onnx", "onnxmltools", "skl2onnx"), ("skl2onnx", "onnxmltools", "packaging"))
"""Recorded packages and converters for boosted trees. onnxmltools imports `packaging` but does not declare it.

Source: onnxmltools 1.16.
"""

FRAMEWORKS = (
    PYTORCH,
    Framework(
        "scikit-learn",
        "estimators:export_sklearn",
        ("sklearn",),
        ("scikit-learn",),
        ("onnx", "skl2onnx"),
        ("skl2onnx",),
    ),
    Framework("XGBoost", "estimators:export_xgboost", ("xgboost",), ("xgboost", "xgboost-cpu"), *_TREE_PACKAGES),
    Framework("LightGBM", "estimators:export_lightgbm", ("lightgbm",), ("lightgbm",), *_TREE_PACKAGES),
    # The converter of Keras depends on the backend.
    Framework(
        "Keras",
        "keras:export",
        ("keras",),
        ("keras",),
        ("onnx", "tf2onnx", "jax2onnx"),
        class_modules=("tf_keras",),
    ),
    Framework(
        "TensorFlow",
        "tensorflow:export",
        ("tensorflow",),
        ("tensorflow", "tensorflow-cpu", "tensorflow-macos"),
        ("onnx", "tf2onnx"),
        ("tf2onnx",),
    ),
    Framework(
        "JAX",
        "jax:export",
        ("jax", "flax", "equinox"),
        ("jax",),
        ("onnx", "onnx-ir", "jax2onnx"),
        ("jax2onnx",),
        class_modules=("jaxlib",),
    ),
)
