"""The user's environment settings do not affect the programs that create onnxgate's environments."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onnxgate.core import files
from onnxgate.core.subprocesses import CommandRunner, find_uv

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

    assert (folder != str(tmp_path), sorted(names)) == (True, [".venv", "uv.toml"])
    assert ("UV_CONSTRAINT" in variables, "UV_DEFAULT_INDEX" in variables) == (False, True)


def test_parent_folders_do_not_reach_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the temporary folder is in a repository, uv uses neither its `.venv` nor its settings, but the user's."""
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    python.chmod(0o755)
    (tmp_path / ".venv" / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (tmp_path / "uv.toml").write_text("invalid\n")
    (tmp_path / "user" / "uv").mkdir(parents=True)
    (tmp_path / "user" / "uv" / "uv.toml").write_text('python-downloads = "user"\n')
    monkeypatch.setattr(files, "_process_root", lambda: tmp_path)
    monkeypatch.setenv("UV_PROJECT", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.delenv("UV_NO_CONFIG", raising=False)
    command = [find_uv(), "run", "--no-project", "--offline", "python", "-I", "-c", "print(1)"]
    without_user = CommandRunner().run(command, timeout_s=60)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    with_user = CommandRunner().run(command, timeout_s=60)

    assert (0, "1\n", False) == (without_user.status, without_user.out, (tmp_path / "ran").exists())
    assert "unknown variant `user`" in with_user.err
