"""The user's environment settings do not affect the programs that create onnxgate's environments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onnxgate.core.subprocesses import CommandRunner

ASK = "import json, os; print(json.dumps([os.getcwd(), os.listdir(), sorted(os.environ)]))"


def test_settings_of_the_project_do_not_reach_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uv neither reads `[tool.uv]` from the working directory nor constraints from the environment; it uses the user's
    index.
    """
    (tmp_path / "pyproject.toml").write_text("[tool.uv]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UV_CONSTRAINT", "constraints.txt")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://index.example.org/simple")
    folder, names, variables = json.loads(CommandRunner().run([sys.executable, "-c", ASK], timeout_s=60).out)

    assert (folder != str(tmp_path), names) == (True, [])
    assert ("UV_CONSTRAINT" in variables, "UV_DEFAULT_INDEX" in variables) == (False, True)
