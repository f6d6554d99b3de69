"""Exports before the first lock."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onnxgate.commands.export import assume_runtimes
from onnxgate.project.config.loader import load_config
from onnxgate.project.plan import plan_models
from onnxgate.stages.export_jobs import ProjectToolchain, plan_export


@pytest.mark.parametrize(
    ("targets", "opset", "ir_version"),
    [
        ({"server": 'runtime = "onnxruntime>=1.17,<1.19"'}, 20, 9),
        ({"server": 'runtime = "onnxruntime>=1.17,<1.19"\nselect = "newest"'}, 21, 10),
        ({"gpu": 'runtime = "onnxruntime-gpu>=1.17,<1.19"\npython = ".venv"'}, 20, 9),
        ({"edge": 'runtime = "onnxruntime==1.17.3"', "other": 'runtime = "openvino>=2025"'}, 20, 9),
        ({"future": 'runtime = "onnxruntime>=99"\nselect = "bounds"'}, None, None),
    ],
)
def test_the_versions_of_an_export_before_the_first_lock(
    tmp_path: Path, targets: dict[str, str], opset: int | None, ir_version: int | None
) -> None:
    """A model that is exported before the first lock loads on the oldest release of each target."""
    text = "".join(f"[targets.{name}]\n{keys}\n" for name, keys in targets.items())
    entry = '[[model]]\npath = "m.onnx"\nsource = "export.py:build"\n'
    (tmp_path / "onnxgate.toml").write_text(text + entry, encoding="utf-8")
    (tmp_path / "export.py").write_text("def build(): ...\n", encoding="utf-8")
    project = load_config(tmp_path / "onnxgate.toml")
    (planned,) = plan_models(project, assume_runtimes(project), project.models(absent=True))
    source = plan_export(ProjectToolchain(project, Path(sys.executable)), planned, tmp_path / "scratch").source

    assert source is not None
    assert (opset, ir_version) == (source.opset_max, source.ir_version_max)
