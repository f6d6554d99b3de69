"""Provoke errors of other engines: unsupported operators, invalid files and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tools.harvest_texts import onnxruntime_models as m
from tools.harvest_texts import snippets
from tools.harvest_texts.environments import environment
from tools.harvest_texts.snippets import Snippet

MODELS = {
    "unknown.onnx": lambda: m.model([m.node("NotAnOp", "x")], opsets={"": 17}, ir=8),
    "custom.onnx": lambda: m.single("OpA", [m.FLOAT], m.FLOAT, 17, 8, domain="my.dom"),
    "relu.onnx": lambda: m.relu(opsets={"": 17}, ir=8),
    "lfs.onnx": lambda: b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n",
    "external.onnx": lambda: m.external(),
    "loop.onnx": lambda: m.single("StringSplit", [m.STRING], m.STRING, 20, 9),
    "reshape.onnx": lambda: m.model(
        [m.node("Reshape", "x s", "y", "r0")],
        [m.value("x", shape=("n",))],
        [m.value("y", shape=None)],
        [m.weight("s", [3], m.INT64)],
    ),
    "matmul.onnx": lambda: m.model(
        [m.node("MatMul", "a b", name="mm0")],
        [m.value("a", shape=(2, 3)), m.value("b", shape=(2, 3))],
        [m.value("y", shape=None)],
    ),
}


def prepare(folder: Path) -> None:
    """Write the models."""
    for name, made in MODELS.items():
        m.save(made(), folder / name)


def run(
    name: str, packages: Sequence[str], cases: Sequence[Snippet], folder: Path, opening: str, python: str = "3.11"
) -> dict[str, str]:
    """Return the error texts of one engine."""
    prepare(folder)
    return snippets.run(environment(name, python, *packages), cases, folder, opening)
