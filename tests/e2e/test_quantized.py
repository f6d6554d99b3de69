"""Int8 models created by `onnxruntime.quantization`, compared with their float model on three releases."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import numpy_helper
from uv import find_uv_bin

from tests.conftest import ROOT
from tests.harness.locks import with_digests
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

QUANTIZER = ("onnx==1.19.1", "onnxruntime==1.23.2")
RELEASES = ["onnxruntime 1.18.1", "onnxruntime 1.23.2", "onnxruntime 1.31.1"]
FINE = ("dynamic", "good", "network", "operators")


@pytest.fixture(scope="module")
def quantized_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the project with its models, quantized in a separate environment."""
    folder = tmp_path_factory.mktemp("quantized") / "project"
    shutil.copytree(ROOT / "fixtures" / "projects" / "quantized", folder)
    subprocess.run([find_uv_bin(), "venv", "-q", "--python", sys.executable, folder.parent / "venv"], check=True)
    python = folder.parent / "venv" / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    subprocess.run([find_uv_bin(), "pip", "install", "-q", "--python", python, *QUANTIZER], check=True)
    subprocess.run([python, "quantize.py"], cwd=folder, check=True, capture_output=True)
    commit(folder)
    return folder


@pytest.fixture
def repository(command: Repository, quantized_project: Path, tmp_path: Path) -> Repository:
    """Return a locked copy of the project."""
    shutil.copytree(quantized_project, tmp_path / "project")
    repository = command.at(tmp_path / "project")
    repository.run("lock")
    return repository


def drifting(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the finding of each model; all findings must be `quantization-drift`."""
    assert {finding["rule"] for finding in report["findings"]} <= {"quantization-drift"}
    return {Path(finding["model"]).stem: finding for finding in report["findings"]}


def test_bad_calibration_closes_the_gate(repository: Repository) -> None:
    """The finding covers every release and names the layer that was calibrated badly; the other models pass.

    The report contains the figures of each quantized model with their bounds and the source of each bound.
    """
    report = repository.report(status=1)
    actual = drifting(report)
    states = {(Path(cell["model"]).stem, cell["state"]) for cell in report["cells"]}
    figures = [
        measurement for measurement in report["measured"] if measurement["pair"].endswith("against models/network.onnx")
    ]
    bounds = {
        (figure["metric"], figure["bound"], figure["bound_from"]) for figure in figures if figure["bound"] is not None
    }

    assert sorted(actual) == ["bad", "spoiled"]
    assert [each["runtimes"] for each in actual.values()] == [RELEASES, RELEASES]
    assert "largest loss at the input `pixels` of `Conv` node `conv1`" in actual["bad"]["message"]
    assert "largest loss at the output of `Relu` node `relu2`" in actual["spoiled"]["message"]
    assert (actual["bad"]["node"], actual["spoiled"]["node"]) == ("conv1", "relu2")
    assert states == {*((name, "pass") for name in FINE), ("bad", "fail"), ("spoiled", "fail")}
    assert (report["undecided"], report["skipped"]) == ([], [])
    assert {Path(figure["model"]).stem for figure in figures} == {"bad", "dynamic", "good", "operators", "spoiled"}
    assert bounds == {("sqnr_db", 20.0, "type"), ("cosine", 0.99, "type")}  # too few rows for top-1 agreement


def test_removed_activation_is_reported(repository: Repository) -> None:
    """With a zero point that is off by one, negative values remain that the removed `Relu` would set to 0."""
    path = repository.folder / "models" / "good.onnx"
    model = onnx.load(path)
    point = next(tensor for tensor in model.graph.initializer if tensor.name == "r2_zero_point")
    point.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(point) + 1, point.name))
    onnx.save(model, path)
    repository.run("lock", "models/good.onnx")
    message = drifting(repository.report("models/good.onnx", status=1))["good"]["message"]

    assert message.startswith("activations of `models/network.onnx` were removed, but the scale or zero point does not")
    assert "`r2` contains -0.0" in message
    assert "(`Relu` node `relu2` returns at least 0) (onnxruntime 1.18.1–1.31.1)" in message


def test_measured_values_are_the_bounds(repository: Repository) -> None:
    """Values recorded by `lock --measure` are the bounds, also for a model that was quantized again."""
    output = repository.run("lock", "--measure").out
    recorded = repository.report(status=0)
    lock = repository.folder / "onnxgate.lock"
    better, count = re.subn(
        r'(good.onnx"\.quantization]\nscores = { sqnr-db = )[0-9.]+', r"\g<1>59.9", lock.read_text()
    )
    lock.write_text(with_digests(better))
    with (repository.folder / "models" / "good.onnx").open("ab") as model:
        model.write(onnx.ModelProto(doc_string="quantized again").SerializeToString())
    repository.run("lock", "models/good.onnx")
    report = drifting(repository.report(status=1))

    assert output.count("these values are now recorded and accepted") == 2
    assert recorded["findings"] == []
    assert (count, list(report)) == (1, ["good"])
    assert "required: 56.9 dB, recorded in the lock" in report["good"]["message"]
