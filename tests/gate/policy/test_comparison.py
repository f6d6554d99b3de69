"""Changes of the policy since a git revision: which are reported, where, and whether they weaken the gate."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from onnxgate.gate.policy.comparison import find_removed_configs
from onnxgate.project.git.revisions import resolve_revision
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.policy_edits import CONFIG, EDGE, HONEST, IGNORE, WEAKENINGS, PolicyRepository


@pytest.fixture
def repository(tmp_path: Path) -> PolicyRepository:
    """Return a committed project."""
    return PolicyRepository(tmp_path)


@pytest.mark.parametrize("name", WEAKENINGS)
def test_a_weaker_policy_is_reported(name: str, repository: PolicyRepository) -> None:
    """Each change that checks less is reported once, on the line that caused it."""
    edit, expected = WEAKENINGS[name]
    edit(repository)
    actual = repository.changes()

    assert expected == actual


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_change_is_not_weaker(name: str, repository: PolicyRepository) -> None:
    """A change that checks no less is at most a note."""
    edit, expected = HONEST[name]
    edit(repository)
    actual = repository.changes()

    assert expected == actual


def test_levels_come_from_the_baseline(repository: PolicyRepository) -> None:
    """The current config cannot lower the level of findings about itself."""
    repository.edit('size-grew = "error"', 'size-grew = "error"\npolicy-weakened = "off"')

    assert {"size-grew": "error"} == repository.compare().levels


def test_a_new_ignore_is_known(repository: PolicyRepository) -> None:
    """The entries that accept more than before are named, so that reports mark their findings."""
    repository.edit(IGNORE, IGNORE + '\n[[ignore]]\nrule = "load-failed"\nreason = "later"\n')

    assert frozenset({1}) == repository.compare().new_ignores


def test_an_invalid_config_at_the_baseline_is_a_remark(repository: PolicyRepository) -> None:
    """A commit that repairs the config must not fail because of the commit before it."""
    path = repository.folder / "onnxgate.toml"
    path.write_text("no TOML")
    commit(repository.folder)
    path.write_text(CONFIG)

    assert ("the policy was not compared: `onnxgate.toml` at `HEAD` is not valid",) == repository.compare().remarks


def test_a_project_without_a_config_at_the_baseline_is_new(repository: PolicyRepository) -> None:
    """The first commit with a config has nothing to compare with."""
    path = repository.folder / "onnxgate.toml"
    path.unlink()
    commit(repository.folder)
    path.write_text(CONFIG)

    assert ("the policy was not compared: there is no config at `HEAD`",) == repository.compare().remarks


def test_a_renamed_folder_keeps_its_policy(tmp_path: Path) -> None:
    """The config is found in its old folder, so that renaming the folder cannot hide a change."""
    PolicyRepository(tmp_path / "old")
    (tmp_path / "old" / ".git").rename(tmp_path / ".git")
    commit(tmp_path)
    git(tmp_path, "mv", "old", "new")
    moved = PolicyRepository.__new__(PolicyRepository)
    moved.folder, moved.config_name = tmp_path / "new", "onnxgate.toml"
    moved.edit(EDGE, "")

    assert ["- [targets.server]: target `edge` (`onnxruntime>=1.20,<1.22`) was removed"] == moved.changes()


def removed(folder: Path) -> dict[str, list[str]]:
    """Return the removed configs since the commit, with their models."""
    return find_removed_configs(folder, resolve_revision(folder, "HEAD"))


def test_a_removed_config_is_found(repository: PolicyRepository) -> None:
    """Without its config, a check of the same paths would only predict on all releases."""
    (repository.folder / "onnxgate.toml").unlink()

    assert {"onnxgate.toml": ["models/a.onnx", "models/b.onnx"]} == removed(repository.folder)


def test_a_config_removed_with_its_models_is_not_found(repository: PolicyRepository) -> None:
    """A project may be removed as a whole."""
    git(repository.folder, "rm", "-r", "--quiet", "onnxgate.toml", "models")

    assert {} == removed(repository.folder)


def test_a_config_replaced_by_the_one_above_is_not_found(tmp_path: Path) -> None:
    """The projects of a repository may be joined, but then the other config must select the models."""
    PolicyRepository(tmp_path / "nested")
    (tmp_path / "nested" / ".git").rename(tmp_path / ".git")
    commit(tmp_path)
    (tmp_path / "nested" / "onnxgate.toml").unlink()
    config = tmp_path / "onnxgate.toml"
    config.write_text('models = ["**/*.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n')

    assert {} == removed(tmp_path)

    config.write_text('models = ["other/*.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n')

    assert ["nested/onnxgate.toml"] == list(removed(tmp_path))


def test_a_check_without_the_removed_config_is_refused(repository: PolicyRepository, installed: Path) -> None:
    """In CI, the same command as before must not pass because the config is gone."""
    (repository.folder / "onnxgate.toml").unlink()
    command = [str(installed), "check", "models/a.onnx", "--against", "HEAD"]
    ran = subprocess.run(command, cwd=repository.folder, capture_output=True, text=True, check=False)

    assert (2, True) == (ran.returncode, "`onnxgate.toml` was removed since `HEAD`" in ran.stderr), ran.stderr
