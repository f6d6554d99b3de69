"""Provoke errors of OpenCV DNN."""

from __future__ import annotations

from pathlib import Path

from packaging.version import Version

from tools.harvest_texts import engines, snippets

OPENING = "import cv2\nimport numpy as np\nload = cv2.dnn.readNetFromONNX\n"
CASES = (
    ("unknown", "opencv-operator-unknown", "load('unknown.onnx')"),
    ("custom", "opencv-operator-unknown", "load('custom.onnx')"),
    ("not-a-model", "opencv-not-a-model", "load('lfs.onnx')"),
    ("no-file", "opencv-not-a-model", "load('nope.onnx')"),
    ("shape", "opencv-node", "net = load('matmul.onnx')\nprint(net.getLayerNames())"),
)


def harvest(release: str, folder: Path) -> dict[str, str]:
    """Return the error text of each case on one release."""
    numpy = "numpy<2" if Version(release) < Version("4.10") else "numpy<2.3"
    packages = [f"opencv-python-headless=={release}", numpy]
    return engines.run(f"opencv-{release}", packages, CASES, folder, OPENING)


def expected(_: str) -> dict[str, str]:
    """Return the name of the catalogue entry that must explain the error of each case."""
    return snippets.expected(CASES)
