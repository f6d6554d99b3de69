"""Engines other than ONNX Runtime, in their locked environments."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

ENGINES = ["onnx 1.23.2", "onnxruntime 1.31.1", "openvino 2026.4.1", "tract 0.23.9"]
QUICKSTART = ROOT / "fixtures" / "projects" / "quickstart" / "models"
CONFIG = """models = ["models/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"

[targets.edge]
runtime = "openvino==2026.4.1"

[targets.rust]
runtime = "tract==0.23.9"

[targets.specification]
runtime = "onnx==1.23.2"
"""
# Self-attention as quantizers write it: each product and the weights are rounded to int8.
ATTENTION = """
<ir_version: 10, opset_import: ["" : 21]>
attention (float[batch, 6, 8] x) => (float[batch, 6, 8] y)
<float s = {0.02}, uint8 z = {128}, float score_s = {0.1}, float weight_s = {0.00392157}, uint8 weight_z = {0}>
{
    rounded = QuantizeLinear(x, s, z)
    tokens = DequantizeLinear(rounded, s, z)
    turned = Transpose<perm = [0, 2, 1]>(tokens)
    [score] scores = MatMul(tokens, turned)
    score_q = QuantizeLinear(scores, score_s, z)
    score_d = DequantizeLinear(score_q, score_s, z)
    [weigh] weights = Softmax<axis = -1>(score_d)
    weight_q = QuantizeLinear(weights, weight_s, weight_z)
    weight_d = DequantizeLinear(weight_q, weight_s, weight_z)
    [mix] y = MatMul(weight_d, tokens)
}
"""
CUSTOM = """
<ir_version: 8, opset_import: ["" : 18, "my.domain" : 1]>
g (float[N, 4] x) => (float[N, 4] y) {
    [first] a = my.domain.Twist(x)
    [second] b = my.domain.Bend(a)
    [third] y = my.domain.Twist(b)
}
"""


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a repository with four engines, locked without an index, and without models."""
    actual = command.at(tmp_path / "engines")
    (actual.folder / "models").mkdir(parents=True)
    actual.write("onnxgate.toml", CONFIG)
    shutil.copy(ROOT / "fixtures" / "locks" / "engines.lock", actual.folder / "onnxgate.lock")
    return actual


def check(repository: Repository, status: int) -> dict[str, Any]:
    """Commit and lock the repository and return the report of a full check."""
    commit(repository.folder)
    repository.run("lock", "--offline")
    return repository.report(status=status)


def engine_findings(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the findings without the note that three of the engines have no support data."""
    return [finding for finding in report["findings"] if finding["rule"] != "no-support-data"]


def test_four_engines_agree(repository: Repository) -> None:
    """Both quickstart models have the same outputs on all four engines at several sizes."""
    for model in QUICKSTART.glob("*.onnx"):
        shutil.copy(model, repository.folder / "models")
    report = check(repository, status=0)
    compared = {(measurement["model"], measurement["pair"]) for measurement in report["measured"]}
    models = ["models/classifier.onnx", "models/encoder.onnx"]
    others = [each for each in ENGINES if not each.startswith("onnxruntime")]

    assert (report["verdict"], engine_findings(report), report["undecided"]) == ("pass", [], [])
    assert [(cell["model"], cell["runtime"]) for cell in report["cells"]] == [(m, e) for m in models for e in ENGINES]
    assert compared >= {(model, f"{engine} against onnxruntime 1.31.1") for model in models for engine in others}
    assert all(measurement["value"] <= measurement["bound"] for measurement in report["measured"])


def test_providers(repository: Repository) -> None:
    """Only ONNX Runtime has execution providers; the report lists none for other engines."""
    write(repository.folder / "models" / "small.onnx")
    report = check(repository, status=0)
    providers = {runtime["engine"]: runtime["providers"] for runtime in report["runtimes"]}

    assert providers == {"onnx": [], "onnxruntime": ["CPUExecutionProvider"], "openvino": [], "tract": []}


def test_known_limit(repository: Repository) -> None:
    """A wrong result of quantized attention fails the check, and the finding names the known limit."""
    write(repository.folder / "models" / "attention.onnx", parse(ATTENTION, head=""))
    report = check(repository, status=1)
    states = {cell["runtime"]: cell["state"] for cell in report["cells"]}
    (found,) = engine_findings(report)

    assert states == {**dict.fromkeys(ENGINES, "pass"), "tract 0.23.9": "fail"}
    assert (found["rule"], found["runtimes"]) == ("engine-mismatch", ["tract 0.23.9"])
    assert "(a known limitation of tract: `Softmax` between `DequantizeLinear` and `Quant" in found["message"]


def test_unsupported_operators(repository: Repository) -> None:
    """OpenVINO lists all unsupported operators: each is a finding at the first node that uses it."""
    write(repository.folder / "models" / "custom.onnx", parse(CUSTOM, head=""))
    report = check(repository, status=1)
    findings = [
        (finding["node"], finding["message"].partition(";")[0])
        for finding in report["findings"]
        if "openvino 2026.4.1" in finding["runtimes"] and finding["rule"] == "load-failed"
    ]

    assert findings == [
        ("second", "does not load: `my.domain.Bend` is not supported (node `second`)"),
        ("first", "does not load: `my.domain.Twist` is not supported (node `first`, and 1 more)"),
    ]
