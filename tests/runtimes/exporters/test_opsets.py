"""Opset versions of an export: limited to what the targets support, and the pinned `ai.onnx.ml` version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from onnxgate.runtimes.worker.exporters import model_file

SCALER = """<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : {version}]>
g (float[N, 4] x) => (float[N, 4] y) {{ y = ai.onnx.ml.{operator} (x) }}"""


def scaler(version: int, operator: str = "Scaler") -> onnx.ModelProto:
    """Return a model with one operator of `ai.onnx.ml`."""
    return onnx.parser.parse_model(SCALER.format(version=version, operator=operator))


@pytest.mark.parametrize(
    ("job", "calls"),
    [
        ({"opset": None, "opset_max": 21, "opset_ml_max": 3}, [(None, None), (21, None)]),
        ({"opset": None, "opset_max": 25, "opset_ml_max": 3}, [(None, None)]),
        ({"opset": None, "opset_max": 21, "opset_ml_max": 1}, [(None, None), (21, 1)]),
        ({"opset": 22, "opset_max": 21, "opset_ml_max": 3}, [(22, None)]),
        ({"opset": None}, [(None, None)]),
    ],
)
def test_conversion_is_repeated_within_the_limits(job: dict[str, Any], calls: list[tuple[Any, Any]]) -> None:
    """The exporter's default opset is used if all targets support it; a pinned version is never replaced."""
    called = []

    def convert(job: dict[str, Any]) -> onnx.ModelProto:
        called.append((job["opset"], job.get("opset_ml")))
        model = scaler(job.get("opset_ml") or 2)
        model.opset_import[0].version = job["opset"] or 22
        return model

    model = model_file.convert_within_limits(job, convert, "unused")

    assert called == calls
    assert model.opset_import[0].version == (calls[-1][0] or 22)


def test_conversion_into_a_file(tmp_path: Path) -> None:
    """For an exporter that writes a file, the opsets are read from that file."""
    path = str(tmp_path / "model.onnx")

    def convert(job: dict[str, Any]) -> str:
        model = scaler(1)
        model.opset_import[0].version = job["opset"] or 22
        onnx.save(model, path)
        return f"at {job['opset']}"

    assert model_file.convert_within_limits({"opset": None, "opset_max": 20}, convert, path) == "at 20"
    assert onnx.load(path).opset_import[0].version == 20


@pytest.mark.parametrize(
    ("operator", "before", "wanted", "after"),
    [
        ("Scaler", 1, 3, 3),
        ("Scaler", 1, None, 1),
        ("Scaler", 3, 1, 3),
        ("TreeEnsembleRegressor", 1, 2, 2),
        ("TreeEnsembleRegressor", 1, 3, 1),
        ("NoSuchOperator", 1, 3, 1),
    ],
)
def test_pinned_ml_opset(operator: str, before: int, wanted: int | None, after: int) -> None:
    """The version is raised to the pin only if every operator has the same definition there."""
    model = scaler(before, operator)
    changed = model_file.raise_ml_opset(model, wanted)

    assert {opset.domain: opset.version for opset in model.opset_import}["ai.onnx.ml"] == after
    assert changed is (before != after)
