"""The CPU time of commands is at most proportional to the size of a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.fuzz.scaled_models import SCALED
from tests.conftest import ROOT

SIZES = (500, 4000)
BASE_S = 2.0
"""Part of the CPU time that is independent of the model, with a reserve for slow machines."""


def cpu_time_s(folder: Path, *arguments: str) -> float:
    """Return the CPU time of one command with its children."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(folder / ".cache")}
    before = os.times()
    subprocess.run(
        [sys.executable, "-m", "onnxgate", *arguments], cwd=folder, env=environment, capture_output=True, check=False
    )
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("diff old.onnx new.onnx", "nodes_in_chain"),
        ("diff old.onnx new.onnx", "outputs_of_graph"),
        ("check --static new.onnx", "opset_imports"),
        ("check --static new.onnx", "trace_frames"),
        ("check --static new.onnx --target onnxruntime==1.31.1", "nodes_unknown"),
        ("check --static new.onnx --target onnxruntime==1.31.1", "operator_domains"),
    ],
)
def test_costs_are_proportional(tmp_path: Path, command: str, name: str) -> None:
    """A model that is eight times as large takes at most twelve times as long."""
    costs = []
    for size in SIZES:
        model = SCALED[name](size)
        (tmp_path / "old.onnx").write_bytes(model.SerializeToString())
        model.graph.node[len(model.graph.node) // 2].op_type = "Abs"
        (tmp_path / "new.onnx").write_bytes(model.SerializeToString())
        costs.append(cpu_time_s(tmp_path, *command.split()))

    assert costs[1] < 12 * max(costs[0] - 0.4, 0.05) + BASE_S
