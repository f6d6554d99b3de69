"""Predictions of `onnxgate.api` are what real releases do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onnxgate.api import predict
from tests.cli.test_check_and_matrix import copy_models
from tests.harness.repositories.user_repository import Repository

RULES = ("attribute-unsupported", "deprecated-operator", "ir-version-too-new", "missing-kernel", "opset-too-new")
RANGE = "onnxruntime>=1.18,<1.21"

pytestmark = pytest.mark.index


def test_predictions_and_real_loads(command: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that our rules report and near misses, loaded on three releases."""
    files = command.at(tmp_path)
    for rule in RULES:
        copy_models(f"rules/{rule}", tmp_path / rule)
    monkeypatch.chdir(tmp_path)
    shown = files.run("matrix", ".", "--target", RANGE, "--select", "minors", "--verify", "--output", "json", status=1)
    models = json.loads(shown.out)["models"]
    observed = {(model["path"], entry["runtime"]): entry["observed"] for model in models for entry in model["runtimes"]}
    predicted = {
        (model["path"], it.runtime): it.verdict for model in models for it in predict(Path(model["path"]), RANGE)
    }

    assert len(models) >= 20
    assert {"loads", "refused"} == set(observed.values())
    assert observed == {key: predicted[key] for key in observed if predicted[key] != "unknown"}
