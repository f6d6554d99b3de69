"""The CPU time of commands is at most proportional to the size of a model."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.fuzz import scaling
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
        ("diff old.onnx new.onnx", "inputs_of_node_distinct"),
        ("diff old.onnx new.onnx", "values_captured"),
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


COSTS = {
    "proportional": [("0", 1.0, 100), ("1", 2.0, 140), ("1", 6.0, 300)],
    "superlinear time": [("0", 1.0, 100), ("0", 2.0, 140), ("0", 20.0, 300)],
    "superlinear memory": [("0", 1.0, 100), ("0", 2.0, 140), ("0", 6.0, 900)],
    "usage error": [("2", 0.1, 40), ("2", 0.1, 40), ("2", 0.1, 40)],
    "usage error of a small model": [("2", 0.1, 40), ("0", 0.2, 40), ("0", 0.3, 40)],
    "undecided": [("0", 1.0, 100), ("0", 2.0, 140), ("3", 2.0, 140)],
    "time limit": [("0", 1.0, 100), ("0", 2.0, 140), ("timeout", 4.0, 140)],
}
"""Status, CPU time in s and memory in MiB of a command on models of three sizes."""


@pytest.mark.parametrize("name", COSTS)
def test_a_command_that_did_not_run_is_not_cheap(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A usage error costs little, so that it would hide the costs of each dimension."""
    costs = dict(zip((100, 400, 1600), COSTS[name], strict=True))

    def measure(_command: str, _name: str, count: int, _limit_s: float) -> scaling.Cost:
        return scaling.Cost(count, *costs.get(count, ("0", 0.5, 50)))

    monkeypatch.setattr(scaling, "measure", measure)

    assert (name != "proportional") == scaling.print_costs(["check"], ["nodes_in_chain"], list(costs), 9)
    assert capsys.readouterr().out.rstrip().endswith("<<<") is (name != "proportional")


def test_a_command_runs_on_a_model_of_a_dimension() -> None:
    """The models of a measurement are valid, so that the command does its work."""
    cost = scaling.measure("diff", "nodes_in_chain", 2)

    assert ("0", True) == (cost.status, cost.memory_mib > 0)
