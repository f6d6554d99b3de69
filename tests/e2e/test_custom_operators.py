"""Custom operators on a target whose extensions register them and on a target without extensions."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

CONFIG = """models = ["models/*.onnx"]

[targets.plain]
runtime = "onnxruntime==1.18.*"

[targets.extended]
runtime = "onnxruntime==1.18.*"
extensions = ["onnxruntime-extensions==0.15.*"]

[targets.own]
runtime = "onnxruntime==1.18.*"
python = ".venv"
required = false
"""
MODEL = """
<ir_version: 8, opset_import: ["" : 17, "{0}" : 1]>
g (string[N] x) => (string[N] y) {{ y = {0}.StringUpper(x) }}
"""
DOMAINS = {"models/known.onnx": "ai.onnx.contrib", "models/foreign.onnx": "my.domain"}
PLAIN = "onnxruntime 1.18.1"
EXTENDED = "onnxruntime+onnxruntime-extensions==0.15.* 1.18.1"

pytestmark = pytest.mark.index


@pytest.fixture
def repository(command: Repository, tmp_path: Any) -> Repository:
    """Return a repository of two models with custom operators, one of which the extension supports."""
    made = command.at(tmp_path / "custom")
    (made.folder / "models").mkdir(parents=True)
    for path, domain in DOMAINS.items():
        onnx.save(onnx.parser.parse_model(MODEL.format(domain)), made.folder / path)
    made.write("onnxgate.toml", CONFIG)
    commit(made.folder)
    return made


def accused(report: dict[str, Any], model: str, *levels: str) -> set[tuple[str, str]]:
    """Return the rules with findings on a model, each with a runtime."""
    findings = [finding for finding in report["findings"] if finding["model"] == model and finding["level"] in levels]
    return {(finding["rule"], runtime) for finding in findings for runtime in finding["runtimes"]}


def test_custom_operators(repository: Repository) -> None:
    """A model passes only on the target whose extension registers its operator."""
    locked = repository.run("lock")
    repository.run("lock", "--check")
    report = repository.report(status=1)
    cells = {(cell["model"], cell["runtime"]): cell["state"] for cell in report["cells"]}

    assert "note: target `own`: `.venv` does not exist; it is not locked" in locked.out
    assert {
        ("models/known.onnx", EXTENDED): "pass",
        ("models/known.onnx", PLAIN): "fail",
        ("models/foreign.onnx", EXTENDED): "fail",
        ("models/foreign.onnx", PLAIN): "fail",
    } == cells
    assert {runtime for _, runtime in accused(report, "models/known.onnx", "error", "warning", "note")} == {PLAIN}
    assert ("unknown-domain", PLAIN) in accused(report, "models/known.onnx", "error")
    assert EXTENDED in {runtime for _, runtime in accused(report, "models/foreign.onnx", "error")}
    assert [entry["reason"] for entry in report["skipped"]] == [
        "target `own` is not locked: `.venv` did not contain `onnxruntime==1.18.*`"
    ]
