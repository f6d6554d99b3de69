"""Exporters of frameworks: each is one module of this folder and one entry of `FRAMEWORKS`."""

from __future__ import annotations

from typing import NamedTuple, Tuple


class Framework(NamedTuple):
    """One framework, its exporter, and the packages that its exports require or depend on."""

    title: str  # name in messages
    exporter: str  # module of this folder, and its function
    modules: Tuple[str, ...]  # top-level packages that sources import, and that classes of models come from
    packages: Tuple[str, ...]  # distributions of the framework, of which one suffices
    recorded: Tuple[str, ...]  # other distributions that affect an export: the lock records their versions
    converters: Tuple[str, ...] = ()  # modules that an export requires, named as their distributions
    class_modules: Tuple[str, ...] = ()  # further packages that only classes of models come from


PYTORCH = Framework("PyTorch", "pytorch:export", ("torch",), ("torch",), ("onnx", "onnxscript", "onnx-ir"))
"""It reports missing packages itself."""

_TREE_PACKAGES = (("onnx", "onnxmltools", "skl2onnx"), ("skl2onnx", "onnxmltools", "packaging"))
"""Recorded packages and converters of boosted trees. onnxmltools imports packaging without requiring it. Source: its
release 1.16."""

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
    # The converter of Keras depends on its backend.
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
