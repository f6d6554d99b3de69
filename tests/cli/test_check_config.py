"""Which config `onnxgate check` judges by, and what it does before it works."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.outputs import parse_outputs
from onnxgate.cli.shared.project_check import find_project_config
from onnxgate.core.errors import UsageError


def test_model_of_a_project_below(tmp_path: Path) -> None:
    """A path whose own project has a config is not judged as if there were none."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "ml").mkdir()
    (tmp_path / "ml" / "onnxgate.toml").touch()

    with pytest.raises(UsageError, match="belongs to the project of"):
        find_project_config((Path("ml/a.onnx"),), CommonOptions(directory=tmp_path))


def test_model_of_no_project(tmp_path: Path) -> None:
    """Without any config there is none to judge by."""
    (tmp_path / ".git").mkdir()

    assert find_project_config((Path("a.onnx"),), CommonOptions(directory=tmp_path)) is None


def test_unwritable_output_is_refused_at_once(tmp_path: Path) -> None:
    """Before any work is done, since what it finds would be lost."""
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="cannot be written"):
        parse_outputs([f"json={tmp_path / 'file' / 'x.json'}"])
