"""Changes of the policy since a git revision: which are reported, where, and whether they weaken the gate."""

from __future__ import annotations

from pathlib import Path

import pytest

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
