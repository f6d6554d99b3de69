"""Outputs of saturated activations: their inputs are compared instead."""

from __future__ import annotations

import subprocess
from pathlib import Path

import onnx
import pytest
from onnx import helper

from tests.e2e.conftest import Repository
from tests.gate.mismatch_search.faulty_networks import convolutions

pytestmark = pytest.mark.index
SOURCE = """
import torch

class Detector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(8, 8)

    def forward(self, x):
        return torch.sigmoid(self.layer(x) - 20)

def build():
    return Detector().eval(), (torch.randn(4, 8),)

if __name__ == "__main__":
    model, args = build()
    torch.onnx.export(model, args, "models/small.onnx", dynamo=False, input_names=["x"], output_names=["y"])
"""


def _write_detector(path: Path, operator: str) -> None:
    """Write a network whose output is a probability of about 2e-9."""
    attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}
    if operator == "AveragePool":
        attributes["count_include_pad"] = 1
    model = onnx.load(convolutions(path, operator, 7, attributes))
    model.graph.node[-1].output[0] = "score"
    bias = helper.make_tensor("bias", onnx.TensorProto.FLOAT, [1], [-20.0])
    model.graph.initializer.append(bias)
    model.graph.node.extend(
        [
            helper.make_node("Add", ["score", "bias"], ["logits"], "biased"),
            helper.make_node("Sigmoid", ["logits"], ["p"], "probability"),
            helper.make_node("Identity", ["p"], ["y"]),
        ]
    )
    onnx.save(model, path)


def test_input_of_a_saturated_activation_is_compared(small: Repository) -> None:
    """ONNX Runtime 1.28 pools incorrectly if its optimizer has changed the layout, and the output hides it."""
    models = small.folder / "models"
    (models / "small.onnx").unlink()
    _write_detector(models / "right.onnx", "MaxPool")
    _write_detector(models / "wrong.onnx", "AveragePool")
    small.write("onnxgate.toml", 'models = ["models/*.onnx"]\n[targets.server]\nruntime = "onnxruntime==1.28.0"\n')
    small.run("lock")
    report = small.report("--stage", "parity", status=1)
    (finding,) = report["findings"]

    assert report["undecided"] == []
    assert ("optimization-mismatch", "models/wrong.onnx", "pool") == (
        finding["rule"],
        finding["model"],
        finding["node"],
    )
    assert "output `y` differs between optimization levels" in finding["message"]
    assert "in `logits`, before it saturates, with" in finding["message"]
    assert {"logits", "y"} == {row["output"] for row in report["measured"]}
    assert [
        "output `y` saturates near zero with these inputs, so the input of its `Sigmoid` was compared instead"
    ] * 2 == [row["reason"] for row in report["skipped"] if "saturates" in row["reason"]]


@pytest.mark.torch
def test_model_with_a_source_is_undecided(small: Repository, toolchain: Path) -> None:
    """The input of the activation is not known in the source, so runtimes that agree prove nothing about it."""
    small.write("net.py", SOURCE)
    subprocess.run([toolchain, "-W", "ignore", "net.py"], cwd=small.folder, check=True, capture_output=True)
    small.write(
        "onnxgate.toml",
        '[targets.server]\nruntime = "onnxruntime==1.31.1"\n[[model]]\npath = "models/small.onnx"\n'
        f'source = "net.py:build"\n[toolchain]\npython = "{toolchain.as_posix()}"\n',
    )
    small.run("lock")
    report = small.report("--stage", "parity", status=3)

    assert report["findings"] == []
    assert ["output `y` differs from zero by less than its tolerance (1e-05), so any output near zero would pass"] == [
        row["reason"] for row in report["undecided"]
    ]
