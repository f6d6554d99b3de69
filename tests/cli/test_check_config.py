"""The config that commands with PATHS use."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.outputs import parse_outputs
from onnxgate.cli.shared.project_request import (
    EXIT_PRECEDENCE,
    find_project_config,
    group_by_project,
    load_project,
    run_for_each_project,
)
from onnxgate.core.errors import ConfigError, StorageError, UsageError
from onnxgate.project.config.project import Project
from tests.harness.repositories.checkout import git


@pytest.fixture
def monorepo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a repository of two projects, with a model outside of both, and return its folder."""
    monkeypatch.chdir(tmp_path)
    for folder in (".git", "a", "b/models", "tools"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a/onnxgate.toml", "b/onnxgate.toml", "a/m.onnx", "b/models/m.onnx", "tools/m.onnx"):
        (tmp_path / name).touch()
    return tmp_path


def find(start: Path, *paths: str, **options: object) -> Path | None:
    """Find the config from a folder; the fixture restores the working directory."""
    os.chdir(start)
    return find_project_config([Path(path) for path in paths], CommonOptions(**options))  # type: ignore[arg-type]


def group(start: Path, *paths: str, **options: object) -> dict[str, list[str]]:
    """Return the paths of each project, relative to a folder."""
    os.chdir(start)
    groups = group_by_project([Path(path) for path in paths], CommonOptions(**options), all_below=True)  # type: ignore[arg-type]
    names = {config: config.relative_to(start).as_posix() if config else "" for config in groups}
    return {names[config]: [Path(path).as_posix() for path in inside] for config, inside in groups.items()}


@pytest.mark.parametrize("path", ["b/models/m.onnx", "b/models", "b", "b/absent.onnx"])
def test_the_nearest_config_to_the_model(monorepo: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The config nearest to the models is used and announced, even if it is below the working directory."""
    assert find(monorepo, path) == monorepo / "b" / "onnxgate.toml"
    assert capsys.readouterr().err == "note: using `b/onnxgate.toml`, the config nearest to the models\n"


def test_the_config_of_the_working_directory(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The config of the working directory is used without a note."""
    (monorepo / "onnxgate.toml").touch()

    assert [find(monorepo, *paths) for paths in ((), ("tools/m.onnx",), ("tools", "absent.onnx"), (".",))] == [
        monorepo / "onnxgate.toml"
    ] * 4
    assert find(monorepo / "a", "m.onnx") == monorepo / "a" / "onnxgate.toml"
    assert capsys.readouterr().err == ""


def test_a_nested_project(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The config of the working directory applies to all paths; a note names the nested config."""
    (monorepo / "onnxgate.toml").touch()

    assert find(monorepo, "tools/m.onnx", "b/models/m.onnx") == monorepo / "onnxgate.toml"
    assert capsys.readouterr().err == (
        "note: using `onnxgate.toml` also for models that have their own config; "
        "to use `b/onnxgate.toml`, add `--config b/onnxgate.toml`\n"
    )


def test_the_config_option_wins(monorepo: Path) -> None:
    """`--config` is used without a note, even if another config is nearer to the models."""
    config = monorepo / "a" / "onnxgate.toml"

    assert find(monorepo, "b/models/m.onnx", config=config) == config


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("a/m.onnx", "b/models/m.onnx"), "`a/onnxgate.toml` and `b/onnxgate.toml`"),
        ((".",), "`a/onnxgate.toml`, `b/onnxgate.toml` and no config"),
        (("tools/m.onnx", "a"), "`a/onnxgate.toml` and no config"),
    ],
)
def test_models_of_several_projects(monorepo: Path, paths: tuple[str, ...], names: str) -> None:
    """Models of several projects are a usage error in commands that are limited to one project."""
    with pytest.raises(UsageError) as error:
        find(monorepo, *paths)

    assert error.value.message == f"the models belong to several projects: {names}"
    assert error.value.hint == "select one project at a time, for example with `--config a/onnxgate.toml`"


def test_paths_of_several_projects(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Commands that support several projects get the paths of each one. Files of no project, except models, and
    folders that contain models without a config are not lost.
    """
    (monorepo / "tools/firmware.bin").touch()

    assert group(monorepo, "a/m.onnx", "b/models", "tools/firmware.bin") == {
        "a/onnxgate.toml": ["a/m.onnx"],
        "b/onnxgate.toml": ["b/models"],
    }
    assert group(monorepo, ".") == {
        "a/onnxgate.toml": ["."],
        "b/onnxgate.toml": ["."],
        "": ["tools/m.onnx"],
    }
    assert group(monorepo, "a/m.onnx", "tools/m.onnx", "tools/firmware.bin") == {
        "a/onnxgate.toml": ["a/m.onnx"],
        "": ["tools/m.onnx"],
    }
    assert group(monorepo, "tools/firmware.bin") == {"": ["tools/firmware.bin"]}
    assert capsys.readouterr().err == ""


def test_all_projects_below(monorepo: Path) -> None:
    """Hooks without file names run in the root of a monorepo; configs that git ignores are copies, and a submodule has
    its own checks.
    """
    git(monorepo, "init", "--quiet")
    shutil.copytree(monorepo / "a", monorepo / "submodule")
    (monorepo / "submodule/.git").touch()
    shutil.copytree(monorepo / "a", monorepo / "build/a")
    (monorepo / ".gitignore").write_text("build/\n")

    assert group(monorepo) == {"a/onnxgate.toml": [], "b/onnxgate.toml": []}
    assert group(monorepo / "a") == {"onnxgate.toml": []}
    assert group(monorepo, directory=Path("b")) == {"b/onnxgate.toml": []}
    shutil.rmtree(monorepo / ".git")
    assert group(monorepo) == {"": []}


def test_each_project_is_run_and_the_worst_status_returned(monorepo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error in one project does not hide the findings of another one."""
    configs: list[Path | None] = [monorepo / "a/onnxgate.toml", monorepo / "b/onnxgate.toml", None]

    def run(statuses: list[int]) -> int:
        def of_one(config: Path | None, paths: object) -> int:
            status = statuses[configs.index(config)]
            if status == 2:
                raise UsageError("wrong", hint="mend it")
            return status

        return run_for_each_project(dict.fromkeys(configs, ()), of_one)

    assert [run([0, 0, 0]), run([0, 3, 0]), run([3, 1, 0]), run([1, 3, 2])] == [0, 3, 1, 2]
    printed = capsys.readouterr()
    assert printed.out == "a/onnxgate.toml:\n\nb/onnxgate.toml:\n\nmodels without a config:\n" * 4
    assert printed.err == "error: wrong\nhint: mend it\n"
    assert EXIT_PRECEDENCE == (2, 1, 3)


def test_models_without_a_config(monorepo: Path) -> None:
    """Models without a config nearby are checked without one."""
    assert find(monorepo, "tools/m.onnx") is None
    assert find(monorepo, "tools") is None


def test_a_linked_model_belongs_to_the_folder_of_the_link(monorepo: Path) -> None:
    """A link belongs to the project of its folder, because projects may link models of a shared store."""
    (monorepo / "a" / "linked.onnx").symlink_to(monorepo / "b" / "models" / "m.onnx")

    assert find(monorepo / "a", "linked.onnx") == monorepo / "a" / "onnxgate.toml"


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_output_on_an_unwritable_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """A full disk and a read-only disk are faults of the machine, with the same exit status."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(StorageError, match="cannot be written") as caught:
        parse_outputs([f"json={tmp_path / 'x.json'}"])

    assert (caught.value.hint or "").endswith(", or choose another file")


def test_unwritable_output_is_refused_at_once(tmp_path: Path) -> None:
    """An output that cannot be written is reported before the check runs."""
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="cannot be written"):
        parse_outputs([f"json={tmp_path / 'file' / 'x.json'}"])


TARGET = '[targets.server]\nruntime = "onnxruntime>=1.18"\n'


@pytest.fixture
def nested(monorepo: Path) -> Path:
    """Return a repository whose root project contains only `tools/m.onnx`."""
    (monorepo / "onnxgate.toml").write_text(f'models = ["**/*.onnx"]\nexclude = ["a", "b"]\n{TARGET}')
    for folder in ("a", "b"):
        (monorepo / folder / "onnxgate.toml").write_text(f'models = ["**/*.onnx"]\n{TARGET}')
    return monorepo


@pytest.mark.parametrize("models", ['models = ["**/*.onnx"]\nexclude = ["a", "b"]', 'models = ["tools/*.onnx"]'])
@pytest.mark.parametrize("paths", [("b/models/m.onnx",), ("b",), ("b/onnxgate.toml", "b/models/m.onnx", "b/README")])
def test_models_that_only_the_nested_project_contains(
    nested: Path, models: str, paths: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """If the project of the working directory has none of the models, the config nearest to them is used."""
    (nested / "onnxgate.toml").write_text(f"{models}\n{TARGET}")
    (nested / "b" / "README").touch()

    assert find(nested, *paths) == nested / "b" / "onnxgate.toml"
    assert capsys.readouterr().err == "note: using `b/onnxgate.toml`, the config nearest to the models\n"


def test_models_of_a_neighboring_project(nested: Path) -> None:
    """A model outside of the project of the working directory is checked with its own config."""
    assert find(nested / "a", "../b/models/m.onnx") == nested / "b" / "onnxgate.toml"


def test_excluded_models_of_another_project(nested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hook passes all changed files: each is checked with the config of its project, and others are left out."""
    (nested / "b" / "README").touch()
    paths = ("tools/m.onnx", "b/models/m.onnx", "a/m.onnx", "b/onnxgate.toml", "a/onnxgate.lock", "b/README")
    (nested / "a" / "onnxgate.lock").touch()

    assert group(nested, *paths) == {
        "a/onnxgate.toml": ["a/m.onnx", "a/onnxgate.lock"],
        "b/onnxgate.toml": ["b/models/m.onnx", "b/onnxgate.toml"],
        "onnxgate.toml": ["tools/m.onnx", "b/README"],
    }
    assert group(nested, "b/README", "b/models/m.onnx") == {"b/onnxgate.toml": ["b/models/m.onnx"]}
    assert "skipped" not in capsys.readouterr().err
    with pytest.raises(UsageError, match="the models belong to several projects"):
        find(nested, *paths)


def test_models_of_this_project_and_of_nested_ones(nested: Path) -> None:
    """Models are not skipped silently because a nested project contains them."""
    (nested / "onnxgate.toml").write_text(f'models = ["tools/*.onnx"]\n{TARGET}')
    with pytest.raises(UsageError) as error:
        find(nested, "tools/m.onnx", "b/models/m.onnx")

    assert error.value.message == "the models belong to several projects: `b/onnxgate.toml` and `onnxgate.toml`"
    assert error.value.hint is not None
    assert "`--config b/onnxgate.toml`" in error.value.hint


@pytest.mark.parametrize(("start", "path"), [(".", "services"), ("services", "."), ("services", "../services")])
def test_a_folder_with_a_nested_project(
    nested: Path, start: str, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """If the project of the working directory has no model of a folder, a project in the folder may contain them."""
    (nested / "services").mkdir()
    (nested / "a").rename(nested / "services" / "a")
    (nested / "onnxgate.toml").write_text(f'models = ["tools/*.onnx"]\n{TARGET}')
    config = nested / "services" / "a" / "onnxgate.toml"

    assert find(nested / start, path) == config
    assert capsys.readouterr().err == (
        f"note: using `{config.relative_to(nested / start)}`, the config nearest to the models\n"
    )


def test_a_folder_with_nested_projects(nested: Path) -> None:
    """A command uses one project, so the hint is to select one, and not to add their models to the outer project."""
    (nested / "services").mkdir()
    for name in ("a", "b"):
        (nested / name).rename(nested / "services" / name)
    (nested / "onnxgate.toml").write_text(f'models = ["tools/*.onnx"]\n{TARGET}')
    with pytest.raises(UsageError) as error:
        find(nested, "services")

    assert (error.value.message, error.value.hint) == (
        "the models belong to several projects: `services/a/onnxgate.toml` and `services/b/onnxgate.toml`",
        "select one project at a time, for example with `--config services/a/onnxgate.toml`",
    )


def test_each_config_is_asked_once_for_all_paths(nested: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pre-commit run --all-files` passes hundreds of models."""
    names = [f"b/{index}.onnx" for index in range(50)]
    for name in names:
        (nested / name).touch()
    real = Project.models
    calls: list[Project] = []

    def count(project: Project, **options: bool) -> object:
        calls.append(project)
        return real(project, **options)

    monkeypatch.setattr(Project, "models", count)

    assert find(nested, *names) == nested / "b" / "onnxgate.toml"
    assert len(calls) == 2


def test_the_directory_option_selects_the_project(nested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With `--directory`, a model of another project is refused instead of checked with its own config."""
    options = CommonOptions(directory=nested / "a")
    project = load_project(options, ("../b/models/m.onnx",))

    assert (project.path, capsys.readouterr().err) == (nested / "a" / "onnxgate.toml", "")
    with pytest.raises(UsageError, match=r"is outside the folder of `onnxgate\.toml`"):
        project.models(("../b/models/m.onnx",), base=options.start)


def test_an_excluded_model_without_another_config(nested: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The output names the reason why a model is not selected: hooks also pass excluded models."""
    (nested / "onnxgate.toml").write_text(f'models = ["**/*.onnx"]\nexclude = ["tools"]\n{TARGET}')
    project = load_project(CommonOptions(directory=nested), ("tools/m.onnx", "README.md"))

    assert project.models(("tools/m.onnx",), base=nested) == ()
    assert capsys.readouterr().err == "note: `tools/m.onnx` is excluded by `exclude` in `onnxgate.toml`\n"


@pytest.mark.parametrize(
    ("folders", "hint"),
    [
        (("a", "b"), "to use a project below this folder, add `--directory a` or `--directory b`"),
        (("a",), "to use the project below this folder, add `--directory a`"),
        (
            ("a", "b", "c/x y", "d", "e"),
            "to use a project below this folder, add `--directory a`, `--directory b`, `--directory 'c/x y'` or 2 more",
        ),
        ((), "run `onnxgate init`"),
        ((".venv/p", "node_modules/p"), "run `onnxgate init`"),
    ],
)
def test_projects_below_a_folder_without_a_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: tuple[str, ...], hint: str
) -> None:
    """`init` refuses a repository whose models all belong to nested projects, so the hint names these projects."""
    (tmp_path / ".git").mkdir()
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "onnxgate.toml").touch()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        load_project(CommonOptions())

    assert error.value.hint == hint


@pytest.mark.parametrize(
    ("text", "problem"),
    [("models = [", "is not valid TOML"), ("", "has 1 problem"), ('required-version = ">9"', "requires onnxgate `>9`")],
)
def test_an_invalid_nested_config(nested: Path, text: str, problem: str) -> None:
    """The path of a nested config tells it apart from the config of the working directory."""
    (nested / "b" / "onnxgate.toml").write_text(text)
    with pytest.raises(ConfigError) as error:
        load_project(CommonOptions(), ("b/models/m.onnx",))

    assert error.value.message.startswith(f"`b/onnxgate.toml` {problem}")
