"""Discovery of the config file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxgate.project.config import loader
from onnxgate.project.config.loader import find_config, find_configs_below
from onnxgate.project.git.repository import find_git_root


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Create a repository with the folder `deep/er`; the folder above the repository has a config."""
    (tmp_path / "onnxgate.toml").touch()
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / "deep" / "er").mkdir(parents=True)
    return root


def test_nearest(repository: Path) -> None:
    """The nearest config in the folder or its parents is used."""
    (repository / "onnxgate.toml").touch()
    near = repository / "deep" / "onnxgate.toml"
    near.touch()

    assert near == find_config(repository / "deep" / "er")
    assert repository / "onnxgate.toml" == find_config(repository)


def test_up_to_the_root(repository: Path) -> None:
    """The search stops at the root of the git repository."""

    assert find_config(repository / "deep" / "er") is None
    assert repository == find_git_root(repository / "deep" / "er")


def test_root_of_a_worktree(repository: Path) -> None:
    """In a worktree or submodule `.git` is a file."""
    (repository / "deep" / ".git").write_text("gitdir: elsewhere\n")

    assert repository / "deep" == find_git_root(repository / "deep" / "er")


@pytest.mark.parametrize(
    ("text", "actual"),
    [
        ("[tool.onnxgate]\n", True),
        ("[tool.onnxgate.targets.a]\nruntime = 'onnxruntime'\n", True),
        ("[tool.other]\nonnxgate = 1\n", False),
        ("[project]\ndependencies = ['onnxgate']\n", False),
        ("[tool.onnxgate]\nbroken = \n", True),
        ("dependencies = ['onnxgate'\n", False),
    ],
)
def test_pyproject(repository: Path, text: str, actual: bool) -> None:
    """A `pyproject.toml` with a `[tool.onnxgate]` table is used, even with syntax errors, which must be reported."""
    pyproject = repository / "pyproject.toml"
    pyproject.write_text(text)

    assert (pyproject if actual else None) == find_config(repository / "deep")


def test_own_file_first(repository: Path) -> None:
    """`onnxgate.toml` takes precedence over `pyproject.toml` in the same folder."""
    (repository / "pyproject.toml").write_text("[tool.onnxgate]\n")
    (repository / "onnxgate.toml").touch()

    assert repository / "onnxgate.toml" == find_config(repository)


@pytest.mark.parametrize("data", ["data{}", "data/{}", "data/x/{}", "data{}/x"])
def test_projects_below_next_to_many_folders(repository: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of searched folders is limited, but folders of data do not hide a project next to them."""
    monkeypatch.setattr(loader, "MAX_SEARCHED_PER_LEVEL", 20)
    for index in range(50):
        (repository / data.format(index)).mkdir(parents=True)
    configs = [repository / name / "onnxgate.toml" for name in ("deep", "services/a", "services/b")]
    for config in configs:
        config.parent.mkdir(parents=True, exist_ok=True)
        config.touch()

    assert configs == find_configs_below(repository)


def test_projects_below_an_unreadable_folder(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be read is skipped."""
    (repository / "deep" / "onnxgate.toml").touch()
    real = os.stat

    def fail(path: Path, *arguments: object, **options: object) -> os.stat_result:
        if Path(path).parent.name == "er":
            raise PermissionError
        return real(path, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", fail)

    assert [repository / "deep" / "onnxgate.toml"] == find_configs_below(repository)
