"""Changes of the policy since a git revision: which are reported, where, and whether they weaken the gate."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from onnxgate.gate.policy.comparison import find_removed_configs
from onnxgate.project.git.revisions import resolve_revision
from tests.harness.models import parse, write
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


def at(folder: Path) -> PolicyRepository:
    """Return the project in a folder of another repository, to edit and to compare it."""
    project = PolicyRepository.__new__(PolicyRepository)
    project.folder, project.config_name = folder, "onnxgate.toml"
    return project


def create_projects(root: Path, *names: str) -> None:
    """Create a repository of projects in folders with these names."""
    for name in names:
        PolicyRepository(root / name)
        shutil.rmtree(root / name / ".git")
    git(root, "init", "--quiet", "--initial-branch=main")
    commit(root)


def test_a_moved_project_with_new_models_keeps_its_settings(tmp_path: Path) -> None:
    """Moving a project and exporting its models again must not hide that a source was removed."""
    create_projects(tmp_path, "old")
    git(tmp_path, "mv", "old", "new")
    for name in ("a", "b"):
        write(tmp_path / f"new/models/{name}.onnx", parse("g (int64 z) => (int64 r) { r = Neg(z) }"))
    at(tmp_path / "new").edit('source = "export.py:build"\n', "")
    git(tmp_path, "add", "--all")

    assert ["`source` of `models/a.onnx` was removed"] == [
        change.partition(": ")[2].partition(";")[0] for change in at(tmp_path / "new").changes()
    ]


def test_each_of_several_renamed_folders_keeps_its_policy(tmp_path: Path) -> None:
    """Renaming two projects at once must not hide a change of one."""
    create_projects(tmp_path, "one", "two")
    git(tmp_path, "mv", "one", "first")
    git(tmp_path, "mv", "two", "second")
    at(tmp_path / "first").edit(EDGE, "")
    git(tmp_path, "add", "--all")

    assert ["- [targets.server]: target `edge` (`onnxruntime>=1.20,<1.22`) was removed"] == at(
        tmp_path / "first"
    ).changes()
    assert [] == at(tmp_path / "second").changes()


def test_a_config_that_was_not_used_is_not_the_baseline(repository: PolicyRepository) -> None:
    """If both kinds of config exist, the baseline is the one that checks use, which is not `pyproject.toml`."""
    other = repository.folder / "pyproject.toml"
    other.write_text(
        '[tool.onnxgate]\nmodels = ["models/*.onnx"]\n[tool.onnxgate.targets.edge]\nruntime = "onnxruntime"'
    )
    commit(repository.folder)
    (repository.folder / "onnxgate.toml").unlink()
    repository.config_name = "pyproject.toml"

    assert any("target `server`" in change and "removed" in change for change in repository.changes())


def test_a_folder_that_is_a_link_has_the_policy_of_its_target(tmp_path: Path) -> None:
    """Settings of models are compared, too, if the project is selected by a link to its folder."""
    create_projects(tmp_path, "one")
    (tmp_path / "link").symlink_to("one")
    commit(tmp_path)
    at(tmp_path / "one").edit('source = "export.py:build"\n', "")
    direct = at(tmp_path / "one").changes()

    assert len(direct) == 1
    assert direct == at(tmp_path / "link").changes()


def test_a_table_of_a_config_may_be_written_with_spaces(repository: PolicyRepository) -> None:
    """The config at the baseline is found by its table, not by its text."""
    HONEST["config-moved"][0](repository)
    path = repository.folder / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.onnxgate", "[ tool . onnxgate"))
    commit(repository.folder)
    path.write_text(path.read_text().replace('size-grew = "error"', 'size-grew = "off"'))

    assert ["- size-grew: rule `size-grew` was turned off (previously `error`)"] == repository.changes()


def test_a_project_that_is_split_keeps_its_models(repository: PolicyRepository) -> None:
    """A model that another new config selects is still checked."""
    config = CONFIG[: CONFIG.rindex("[[model]]")].replace('"models/a.onnx"', '"models/*.onnx"')
    for name in ("a", "b"):
        (repository.folder / name / "models").mkdir(parents=True)
        git(repository.folder, "mv", f"models/{name}.onnx", f"{name}/models")
        (repository.folder / name / "onnxgate.toml").write_text(config)
        shutil.copy(repository.folder / "onnxgate.lock", repository.folder / name)
    (repository.folder / "onnxgate.toml").unlink()
    git(repository.folder, "add", "--all")

    for name in ("a", "b"):
        assert not [change for change in at(repository.folder / name).changes() if "is not checked" in change]


def test_a_new_config_above_hides_no_project(tmp_path: Path) -> None:
    """A check without paths uses the config in its folder instead of those below it, whose models it then skips."""
    create_projects(tmp_path, "one")
    (tmp_path / "one/models/c.onnx").write_bytes((tmp_path / "one/models/a.onnx").read_bytes())
    config, lock = tmp_path / "onnxgate.toml", tmp_path / "onnxgate.lock"
    lock.write_text((tmp_path / "one/onnxgate.lock").read_text())
    config.write_text('models = ["one/models/c.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n')
    hidden = at(tmp_path).changes()
    config.write_text('models = ["one/models/*.onnx"]\n[targets.all]\nruntime = "onnxruntime"\n')

    assert hidden == [
        "- models: `one/onnxgate.toml` is not used by checks in this folder, which now has a config; it selects "
        "`one/models/a.onnx` and `one/models/b.onnx`"
    ]
    assert [] == at(tmp_path).changes()


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


@pytest.mark.parametrize("folder", ["archive", ".models"])
def test_a_removed_config_is_found_if_its_models_were_moved(folder: str, tmp_path: Path) -> None:
    """Neither a folder without a config nor a hidden folder, whose config is not found, is checked."""
    create_projects(tmp_path, "one")
    git(tmp_path, "mv", "one", folder)
    if folder == "archive":
        (tmp_path / folder / "onnxgate.toml").unlink()

    assert {"one/onnxgate.toml": [f"{folder}/models/a.onnx", f"{folder}/models/b.onnx"]} == removed(tmp_path)


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
    assert " -- :/onnxgate.toml`; if these models need no check, use `--against none`\n" in ran.stderr
