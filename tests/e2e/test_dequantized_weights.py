"""Models whose weights alone are quantized, compared with a source and a float model that have the rounded weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

SOURCE = """
import numpy as np
import torch

class Layers(torch.nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.first, self.second = (torch.nn.Parameter(torch.from_numpy(weights[name])) for name in ("a", "b"))

    def forward(self, x):
        return torch.relu(x @ self.first) @ self.second

def rounded():
    return Layers(np.load("rounded.npz")).eval(), (torch.ones(4, 32),)

def original():
    return Layers(np.load("original.npz")).eval(), (torch.ones(4, 32),)
"""
MODELS = {  # name -> source or float model
    "wrong-source": 'source = "net.py:rounded"',
    "good-source": 'source = "net.py:rounded"',
    "original-source": 'source = "net.py:original"',
    "wrong-float": 'quantized-from = "models/rounded.onnx"',
    "good-float": 'quantized-from = "models/rounded.onnx"',
}
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"
""" + "".join(f'\n[[model]]\npath = "models/{name}.onnx"\n{value}\n' for name, value in MODELS.items())
ORIGINAL = {name: np.random.default_rng(seed).normal(size=(32, 32)).astype("f4") for seed, name in enumerate("ab")}
SCALES = {name: (np.abs(weight).max(axis=0) / 127).astype("f4") for name, weight in ORIGINAL.items()}
INTEGERS = {name: np.round(weight / SCALES[name]).astype("i1") for name, weight in ORIGINAL.items()}
ROUNDED = {name: (integers * SCALES[name]).astype("f4") for name, integers in INTEGERS.items()}


def save(path: Path, *, is_quantized: bool, tensors: dict[str, Any]) -> None:
    """Save a model with two layers."""
    dequantizers = [helper.make_node("DequantizeLinear", [f"{it}_q", f"{it}_s"], [it], axis=1) for it in "ab"]
    nodes = [("MatMul", ["x", "a"], "c"), ("Relu", ["c"], "r"), ("MatMul", ["r", "b"], "y")]
    layers = [helper.make_node(operator, inputs, [output]) for operator, inputs, output in nodes]
    values = [helper.make_tensor_value_info(name, 1, ["batch", 32]) for name in "xy"]
    stored = [numpy_helper.from_array(array, name) for name, array in tensors.items()]
    graph = helper.make_graph([*(dequantizers if is_quantized else []), *layers], "g", values[:1], values[1:], stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.torch
def test_rounded_weights_are_compared_as_floats(small: Repository, toolchain: Path) -> None:
    """One scale that is 2 % off is found if the reference has the rounded weights; quantization is not a fault."""
    models = small.folder / "models"
    (models / "small.onnx").unlink()
    save(models / "rounded.onnx", is_quantized=False, tensors=ROUNDED)
    for name in MODELS:
        factors = np.where(np.arange(32) == 3, np.float32(1.02 if name.startswith("wrong") else 1), np.float32(1))
        scales = {"a_s": SCALES["a"], "b_s": SCALES["b"] * factors}
        integers = {f"{name}_q": values for name, values in INTEGERS.items()}
        save(models / f"{name}.onnx", is_quantized=True, tensors={**integers, **scales})
    for name, weights in (("rounded", ROUNDED), ("original", ORIGINAL)):
        np.savez(small.folder / f"{name}.npz", **weights)
    small.write("net.py", SOURCE)
    small.write("onnxgate.toml", f'{CONFIG}\n[toolchain]\npython = "{toolchain.as_posix()}"\n')
    small.run("lock")
    report = small.report("--stage", "parity", status=1)
    metrics = {it["metric"] for it in report["measured"] if Path(it["model"]).stem == "original-source"}

    assert sorted((Path(it["model"]).stem, it["rule"]) for it in report["findings"]) == [
        ("wrong-float", "quantization-drift"),
        ("wrong-source", "source-mismatch"),
    ]
    assert report["undecided"] == []
    assert "sqnr_db" in metrics
