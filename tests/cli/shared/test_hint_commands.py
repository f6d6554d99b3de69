"""Commands in hints, adapted to the working directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.cli.shared.hint_commands import localize_commands, set_command_folder
from tests.harness.repositories.checkout import git

LOCK, LOCK_MODEL = "onnxgate lock", "onnxgate lock models/a.onnx"
RESTORE, ADD = "git checkout HEAD -- onnxgate.lock", "git add models/a.onnx"
PULL = 'git lfs pull --include "a project/models/a.onnx"'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a project, which is below the root of its repository."""
    folder = tmp_path / "repository" / "a project"
    (folder / "models").mkdir(parents=True)
    (folder / "onnxgate.toml").touch()
    git(folder.parent, "init", "--quiet")
    return folder


def localize(command: str, folder: Path, config: Path | None) -> str:
    """Return the command as it is printed."""
    set_command_folder(folder, config)
    return localize_commands(f"run `{command}` first").removeprefix("run `").removesuffix("` first")


@pytest.mark.parametrize(
    ("command", "from_above", "from_below"),
    [
        (LOCK, f"{LOCK} --directory 'a project'", LOCK),
        (LOCK_MODEL, f"{LOCK_MODEL} --directory 'a project'", f"{LOCK_MODEL} --directory .."),
        (RESTORE, f"git -C 'a project' {RESTORE[4:]}", f"git -C .. {RESTORE[4:]}"),
        (ADD, f"git -C 'a project' {ADD[4:]}", f"git -C .. {ADD[4:]}"),
        ("ls -l onnxgate.toml", "ls -l 'a project/onnxgate.toml'", "ls -l ../onnxgate.toml"),
        *((it, it, it) for it in (PULL, "git fetch", "git add", "onnxgate explain a-rule", "onnxgate check FILE")),
        *((it, it, it) for it in ("onnxgate init", "onnxgate lock --directory x", "onnxgate lock 'x", "models/a.onnx")),
    ],
)
def test_the_working_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch, command: str, from_above: str, from_below: str
) -> None:
    """A command is unchanged in the folder of the project; above and below it, it names that folder if necessary."""
    found = []
    for current in (project.parent, project, project / "models"):
        monkeypatch.chdir(current)
        found.append(localize(command, project, project / "onnxgate.toml"))

    assert found == [from_above, command, from_below]


def test_outside_of_the_repository(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command of git names a folder of the repository."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert localize(PULL, project, None) == f"git -C '{project}' {PULL[4:]}"


def test_a_nested_project(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a nested project, the command names the outer one."""
    (project / "models" / "onnxgate.toml").touch()
    monkeypatch.chdir(project / "models")

    assert localize(LOCK, project, project / "onnxgate.toml") == f"{LOCK} --directory .."


@pytest.mark.parametrize(("current", "added"), [(".", "other.toml"), ("..", "'a project/other.toml'")])
def test_a_config_with_another_name(project: Path, monkeypatch: pytest.MonkeyPatch, current: str, added: str) -> None:
    """The command names a config that it does not find itself."""
    monkeypatch.chdir(project / current)
    directory = "" if current == "." else " --directory 'a project'"

    assert localize(LOCK, project, project / "other.toml") == f"{LOCK}{directory} --config {added}"


def test_without_a_config(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a config, only `--directory` is added."""
    monkeypatch.chdir(project.parent)

    assert localize("onnxgate fix a.onnx", project, None) == "onnxgate fix a.onnx --directory 'a project'"
