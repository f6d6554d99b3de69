"""Provoke errors of OpenVINO."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from tools.harvest_texts import engines, snippets

OPENING = """
import numpy as np
try:
    from openvino import Core
except ImportError:
    from openvino.runtime import Core

def load(name):
    core = Core()
    return core.compile_model(core.read_model(name), 'CPU')
"""
CASES = (
    ("unknown", "openvino-operator-unknown", "load('unknown.onnx')"),
    ("custom", "openvino-operator-unknown", "load('custom.onnx')"),
    ("not-a-model", "openvino-not-a-model", "load('lfs.onnx')"),
    ("external", "openvino-external-data", "load('external.onnx')"),
    ("no-file", "openvino-not-a-model", "load('nope.onnx')"),
    ("shape", "openvino-shape", "load('matmul.onnx')"),
    ("input-shape", "openvino-input-shape", "load('relu.onnx')([np.zeros((3,), np.float32)])"),
    ("device", "openvino-device", "Core().compile_model('relu.onnx', 'GPU')"),
    ("name", "openvino-input-name", "load('relu.onnx')({'q': np.zeros((2,), np.float32)})"),
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case on one release."""
    numpy = "numpy<2" if Version(release) < Version("2024.3") else "numpy<2.1"
    packages = [f"openvino=={release}", numpy, "openvino-telemetry"]
    return engines.run(f"openvino-{release}", packages, CASES, folder, OPENING)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected(CASES)
