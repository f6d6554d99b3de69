"""Exporters of frameworks: each is one module of this folder and one entry of `FRAMEWORKS`."""

from __future__ import annotations

from typing import NamedTuple, Tuple


class Framework(NamedTuple):
    """One framework, its exporter, and the packages that its exports require or depend on."""

    title: str  # name in messages
    exporter: str  # module of this folder, and its function
    modules: Tuple[str, ...]  # top-level packages that sources import and that classes of models come from
    packages: Tuple[str, ...]  # distributions of the framework, of which one suffices
    recorded: Tuple[str, ...]  # other distributions that affect an export: the lock records their versions
    converters: Tuple[str, ...] = ()  # modules that an export requires, named as their distributions


PYTORCH = Framework("PyTorch", "pytorch:export", ("torch",), ("torch",), ("onnx", "onnxscript", "onnx-ir"))
"""It reports missing packages itself."""

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
    # onnxmltools imports packaging without requiring it. Source: its release 1.16.
    Framework(
        "XGBoost",
        "estimators:export_xgboost",
        ("xgboost",),
        ("xgboost", "xgboost-cpu"),
        ("onnx", "onnxmltools", "skl2onnx"),
        ("skl2onnx", "onnxmltools", "packaging"),
    ),
    Framework(
        "LightGBM",
        "estimators:export_lightgbm",
        ("lightgbm",),
        ("lightgbm",),
        ("onnx", "onnxmltools", "skl2onnx"),
        ("skl2onnx", "onnxmltools", "packaging"),
    ),
    # The converter of Keras depends on its backend.
    Framework("Keras", "keras:export", ("keras", "tf_keras"), ("keras",), ("onnx", "tf2onnx", "jax2onnx")),
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
        ("jax", "jaxlib", "flax", "equinox"),
        ("jax",),
        ("onnx", "onnx-ir", "jax2onnx"),
        ("jax2onnx",),
    ),
)
