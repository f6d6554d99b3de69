"""Provoke errors of tract."""

from __future__ import annotations

from pathlib import Path

from tools.harvest_texts import engines, snippets

OPENING = """
import numpy as np
import tract

def load(name):
    interface = tract.onnx() if callable(getattr(tract, 'onnx', None)) else tract.Onnx()
    model = interface.load(name) if hasattr(interface, 'load') else interface.model_for_path(name)
    model = model.into_model() if hasattr(model, 'into_model') else model.into_optimized()
    return model.into_runnable()
"""
CASES = (
    ("unknown", "tract-operator-unknown", "load('unknown.onnx')"),
    ("custom", "tract-operator-unknown", "load('custom.onnx')"),
    ("not-a-model", "tract-not-a-model", "load('lfs.onnx')"),
    ("external", "tract-external-data", "load('external.onnx')"),
    ("shape", "tract-analysis", "load('matmul.onnx')"),
    ("input-shape", "tract-input", "load('relu.onnx').run([np.zeros((3,), np.float32)])"),
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case on one release."""
    return engines.run(f"tract-{release}", [f"tract=={release}", "numpy<2.1"], CASES, folder, OPENING)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected(CASES)
