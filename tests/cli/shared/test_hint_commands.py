"""The folder of commands in hints."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.cli.shared.hint_commands import append_command_folder, prefix_command_folder, set_command_folder

LOCK = "run `onnxgate lock models/a.onnx` first"
COMPOUND = "run `git lfs install && git lfs pull`, or `onnxgate lock && git add onnxgate.lock`"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project."""
    folder = tmp_path / "repository" / "a project"
    (folder / "models").mkdir(parents=True)
    (folder / "onnxgate.toml").touch()
    return folder


@pytest.mark.parametrize("text", [LOCK, COMPOUND, "check its permissions: `ls -l onnxgate.toml`"])
@pytest.mark.parametrize(
    ("current", "added"),
    [
        (".", ""),
        ("..", " (in the folder `a project`)"),
        ("models", " (in the folder `..`)"),
        ("/", " (in the folder `PROJECT`)"),
    ],
)
def test_the_working_directory(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, current: str, added: str
) -> None:
    """The folder is named relative to the current one if it is above or below it; commands are unchanged."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere if current == "/" else project / current)
    set_command_folder(project, project / "onnxgate.toml")

    assert append_command_folder(text) == text + added.replace("PROJECT", project.as_posix())


@pytest.mark.parametrize("text", ["use `models/a.onnx`", "run `onnxgate explain a-rule`", "onnxgate lock", ""])
def test_no_command_of_a_folder(project: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """A text without commands, or with commands that work everywhere, is unchanged."""
    monkeypatch.chdir(project.parent)
    set_command_folder(project, project / "onnxgate.toml")

    assert append_command_folder(text) == prefix_command_folder(text) == text


@pytest.mark.parametrize(
    ("current", "added"), [(".", "with `--config b.toml`"), ("..", "in the folder `a project` with `--config b.toml`")]
)
def test_a_config_with_another_name(project: Path, monkeypatch: pytest.MonkeyPatch, current: str, added: str) -> None:
    """A config that onnxgate does not find in its folder is named; git does not need it."""
    monkeypatch.chdir(project / current)
    set_command_folder(project, project / "b.toml")

    assert append_command_folder(LOCK) == f"{LOCK} ({added})"
    assert prefix_command_folder(LOCK) == f"{added}, {LOCK}"
    assert "--config" not in prefix_command_folder("run `git add b.onnx`")


def test_without_a_config(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a config, only the folder is named."""
    monkeypatch.chdir(project.parent)
    set_command_folder(project)

    assert prefix_command_folder(LOCK) == f"in the folder `a project`, {LOCK}"
