"""The engines that a target may ask for, and what sets them apart."""

from __future__ import annotations

ONNXRUNTIME = "onnxruntime"
ENGINES = (ONNXRUNTIME, "onnxruntime-web", "openvino", "tract", "onnx", "opencv-python-headless")
BUILDS = ("onnxruntime-gpu", "onnxruntime-directml", "onnxruntime-openvino", "onnxruntime-qnn")
"""Builds of ONNX Runtime under names of their own: they share its module, and need what a machine has or has not."""

NODE_ENGINES = ("onnxruntime-web",)
"""Engines that npm installs and Node runs: they have no Python."""


def runs_on_node(engine: str) -> bool:
    """Whether npm installs it and Node runs it."""
    return engine in NODE_ENGINES


def engine_of(runtime: str) -> str:
    """The engine of a runtime by its name: `onnxruntime` of `onnxruntime+onnxruntime-extensions 1.31.1`."""
    variant, _, _ = runtime.partition(" ")
    return variant.partition("@")[0].partition("+")[0]


def family_of(engine: str) -> str:
    """The engine that computes: `onnxruntime` for each of its builds."""
    return ONNXRUNTIME if engine in BUILDS else engine


def has_levels(engine: str) -> bool:
    """Whether its graph optimiser can be told what to do."""
    return engine.startswith(ONNXRUNTIME)


def has_providers(engine: str) -> bool:
    """Whether it has execution providers, and takes libraries of custom operators."""
    return family_of(engine) == ONNXRUNTIME
