"""Outputs whose items rounding errors select are compared after selecting the items of the source."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

SOURCES = '''
import onnx
import torch

class Detector(torch.nn.Module):
    """Boxes with nearly equal scores, of which the best ones and their classes are selected."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        self.scores, self.boxes = torch.nn.Linear(64, 5), torch.nn.Linear(64, 4)
        torch.nn.init.normal_(self.scores.weight, std=3e-7)
        torch.nn.init.zeros_(self.scores.bias)

    def forward(self, x):
        features = self.body(x)
        scores, classes = self.scores(features).sigmoid().max(-1)
        best = scores.topk(40).indices
        return self.boxes(features)[best] + 10.0 * classes[best][:, None]

def right():
    return Detector().eval(), (torch.randn(200, 16),)

wrong = right

def opposite():
    model, args = right()
    torch.nn.init.normal_(model.scores.weight)
    return model, args

if __name__ == "__main__":
    for name, build in (("right", right), ("wrong", wrong), ("opposite", opposite)):
        model, args = build()
        if name == "wrong":
            model.boxes.weight.data[2, 7] *= 1.5
        torch.onnx.export(
            model, args, f"models/{name}.onnx", dynamo=True, external_data=False,
            input_names=["x"], output_names=["y"],
        )
    file = onnx.load("models/opposite.onnx")
    (node,) = (node for node in file.graph.node if node.op_type == "TopK")
    next(it for it in node.attribute if it.name == "largest").i = 0
    onnx.save(file, "models/opposite.onnx")
'''
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"
""" + "".join(
    f'\n[[model]]\npath = "models/{name}.onnx"\nsource = "net.py:{name}"\n' for name in ("right", "wrong", "opposite")
)
NOTE = "rounding errors decide which items output `y` lists, so the model was compared after selecting the same items"


@pytest.mark.torch
def test_the_items_of_the_source_are_compared(small: Repository, toolchain: Path) -> None:
    """A right model passes, although it selects other items; of wrong ones, the first differing node is named.

    This includes a node that selects other items although rounding errors decide about none.
    """
    small.write("net.py", SOURCES)
    small.write("onnxgate.toml", f'{CONFIG}\n[toolchain]\npython = "{toolchain.as_posix()}"\n')
    (small.folder / "models" / "small.onnx").unlink()
    subprocess.run([toolchain, "-W", "ignore", "net.py"], cwd=small.folder, check=True, capture_output=True)
    small.run("lock")
    report = small.report("--stage", "parity", status=1)
    opposite, finding = report["findings"]

    assert report["undecided"] == []
    assert {"models/right.onnx", "models/wrong.onnx"} == {
        row["model"] for row in report["skipped"] if row["reason"].startswith(NOTE)
    }
    assert ("source-mismatch", "models/wrong.onnx") == (finding["rule"], finding["model"])
    assert "whose weight `boxes.weight` differs from the source" in finding["message"]
    assert ("source-mismatch", "models/opposite.onnx") == (opposite["rule"], opposite["model"])
    assert "`node_topk__1` (TopK); onnxruntime 1.31.1 differs in 40 of 40 items" in opposite["message"]
    assert "an item with the lowest score instead of the highest in" in opposite["message"]
