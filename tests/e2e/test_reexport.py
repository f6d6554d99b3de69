"""Fingerprints of findings are stable when a network is exported again with additional layers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.torch

SCRIPT = """
import sys
import torch

class Double(torch.nn.Module):
    def forward(self, x):
        return x.double()

class Det(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.det(x)

def conv():
    return torch.nn.Conv1d(4, 4, 1)

before = [conv() for _ in range(int(sys.argv[2]))]
net = torch.nn.Sequential(*before, Double(), conv().double(), torch.nn.ReLU(), conv().double(), Det())
torch.onnx.export(
    net.eval(), (torch.zeros(2, 4, 4),), dynamo=sys.argv[3] == "dynamo", f=sys.argv[1], input_names=["x"],
    output_names=["y"], opset_version=int(sys.argv[4]), external_data=False
)
"""


def exported(repository: Repository, toolchain: Path, layers: int, exporter: str, opset: int) -> list[dict[str, Any]]:
    """Return the errors of the network with the given number of preceding layers."""
    model = repository.folder / "models" / "small.onnx"
    command = [str(toolchain), "-W", "ignore", "-c", SCRIPT, str(model), str(layers), exporter, str(opset)]
    subprocess.run(command, check=True, capture_output=True)
    repository.run("lock", "--offline")
    findings: list[dict[str, Any]] = repository.report("--static", "--fail-on", "never")["findings"]
    return [finding for finding in findings if finding["level"] == "error"]


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_fingerprints_survive_a_new_export(small: Repository, toolchain: Path, exporter: str) -> None:
    """Fingerprints do not depend on node names, node numbers or the opset, so adopted findings remain ignored."""
    before = exported(small, toolchain, 1, exporter, 18)
    small.run("check", "--static", "--write-ignores")
    after = exported(small, toolchain, 3, exporter, 19)

    assert before
    assert {each["node"] for each in before} != {each["node"] for each in after}
    assert sorted(each["fingerprint"] for each in before) == sorted(each["fingerprint"] for each in after)
    assert small.report("--static")["counts"]["errors"] == 0
