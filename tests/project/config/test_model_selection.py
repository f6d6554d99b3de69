"""Selection of the models of a project, their settings, and the models that given paths refer to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Tolerance
from tests.harness.repositories.checkout import commit

FILES = (
    "models/a.onnx",
    "models/deep/b.onnx",
    "models/a.onnx.data",
    "tests/data/c.onnx",
    ".hidden/d.onnx",
    "export.py",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a folder of models that is not a git repository."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x08\x08" + name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project_of(folder: Path, text: str = "") -> Project:
    """Load a project from `text`; a target is added if the text has none."""
    promise = "" if "[targets." in text else '\n[targets.cpu]\nruntime = "onnxruntime"\n'
    (folder / "onnxgate.toml").write_text(text + promise)
    return load_config(folder / "onnxgate.toml")


def models(folder: Path, text: str = "", *paths: str) -> list[str]:
    """Return the paths of all models, or of those that `paths` select."""
    return [model.path for model in project_of(folder, text).models(paths)]


def git(folder: Path, *arguments: str) -> None:
    """Run git without the user's settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def test_without_git(folder: Path) -> None:
    """Without git, all models outside of hidden folders are selected."""

    assert models(folder) == ["models/a.onnx", "models/deep/b.onnx", "tests/data/c.onnx"]


def test_tracked(folder: Path) -> None:
    """All tracked models below the config's folder are selected, hidden or not, except deleted files."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx", "tests/data/c.onnx", ".hidden/d.onnx")
    (folder / "tests/data/c.onnx").unlink()
    (folder / "models/onnxgate.toml").touch()

    assert models(folder) == [".hidden/d.onnx", "models/a.onnx"]
    assert models(folder / "models") == ["a.onnx"]


def test_tracked_names(folder: Path) -> None:
    """File names may contain spaces, quotes, non-ASCII letters and newlines."""
    name = 'models/ä "b"\n.onnx'
    (folder / name).touch()
    git(folder, "init", "-q")
    git(folder, "add", name)

    assert models(folder) == [name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('models = ["models/**/*.onnx"]', ["models/a.onnx", "models/deep/b.onnx"]),
        ('models = ["models/*.onnx"]', ["models/a.onnx"]),
        ('models = ["models"]', ["models/a.onnx", "models/deep/b.onnx"]),
        ('models = ["models/**"]', ["models/a.onnx", "models/deep/b.onnx"]),
        ('models = ["models/*.data"]', ["models/a.onnx.data"]),
        ('models = ["./models/a.onnx", ".hidden/*.onnx"]', [".hidden/d.onnx", "models/a.onnx"]),
        ('exclude = ["tests/data/**"]', ["models/a.onnx", "models/deep/b.onnx"]),
        ('exclude = ["tests", "models/deep"]', ["models/a.onnx"]),
    ],
)
def test_globs(folder: Path, text: str, expected: list[str]) -> None:
    """`models` and `exclude` accept files, folders and globs."""

    assert expected == models(folder, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('models = ["models/x.onnx"]', "line 1: `models[0]`: `models/x.onnx` does not exist"),
        ('[[model]]\npath = "models/x.onnx"', "line 2: `model[0].path`: `models/x.onnx` does not exist"),
        (
            '[[model]]\npath = "tests/dat/c.onnx"',
            "line 2: `model[0].path`: `tests/dat/c.onnx` does not exist; did you mean `tests/data/c.onnx`?",
        ),
        (
            '[[model]]\npath = "models"',
            "line 2: `model[0].path`: `models` is a folder; expected a model or a glob",
        ),
        (
            'exclude = ["tests"]\n[[model]]\npath = "tests/data/c.onnx"',
            "line 3: `model[0].path`: `tests/data/c.onnx` is excluded by `exclude`",
        ),
        (
            'models = ["models"]\n[[model]]\npath = "tests/data/c.onnx"',
            "line 3: `model[0].path`: `tests/data/c.onnx` is not matched by `models`",
        ),
        (
            'models = ["models"]\n[[model]]\npath = "modl/*.onnx"',
            "line 3: `model[0].path`: `modl/*.onnx` matches no model; did you mean `models/*.onnx`?",
        ),
        (
            'models = ["models"]\n[[model]]\npath = "tests/**"',
            "line 3: `model[0].path`: `tests/**` matches no model",
        ),
        (
            'models = ["models/*.onnx", "model/*.onnx"]',
            "line 1: `models[1]`: `model/*.onnx` matches no file",  # and not: did you mean `models/*.onnx`?
        ),
        (
            'models = ["models/*.onnx", "test/data/*.onnx"]',
            "line 1: `models[1]`: `test/data/*.onnx` matches no file",
        ),
    ],
)
def test_named_and_not_there(folder: Path, text: str, expected: str) -> None:
    """A model that the config names but the project does not have is an error with its line."""
    with pytest.raises(ConfigError) as caught:
        models(folder, text)

    assert caught.value.problems == (expected,)


def test_not_tracked(folder: Path) -> None:
    """The error for a named model that is not tracked by git contains the command to add it."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx")

    with pytest.raises(ConfigError) as caught:
        models(folder, '[[model]]\npath = "models/deep/b.onnx"')

    assert "is not tracked by git; run `git add" in caught.value.problems[0]


UPDATE = 'run `git submodule update --init "a sub"`'


@pytest.fixture
def uninitialized(folder: Path) -> Path:
    """Add a git submodule `a sub` that is not initialized: an empty folder."""
    git(folder, "init", "-q")
    (folder / "a sub").mkdir()
    git(folder, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},a sub")
    return folder


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('models = ["models/*.onnx", "a sub/*.onnx"]', "`models[1]`: `a sub/*.onnx` matches no file"),
        ('models = ["models/*.onnx", "./a sub/deep/**"]', "`models[1]`: `./a sub/deep/**` matches no file"),
        ('models = ["models", "a sub"]', "`models[1]`: `a sub` contains no model"),
        ('models = ["models", "a sub/m.onnx"]', "`models[1]`: `a sub/m.onnx` does not exist"),
        ('models = ["models"]\n[[model]]\npath = "a sub/*"', "`model[0].path`: `a sub/*` matches no model"),
    ],
)
def test_models_of_a_submodule_that_is_not_initialized(uninitialized: Path, text: str, problem: str) -> None:
    """The problem is not the pattern: following a suggestion of another one would drop models from the check."""
    with pytest.raises(ConfigError) as caught:
        models(uninitialized, text)

    (actual,) = caught.value.problems
    assert actual.endswith(f"{problem}: the git submodule is not initialized; {UPDATE}")


def test_only_models_of_a_submodule_that_is_not_initialized(uninitialized: Path) -> None:
    """The hint also initializes the submodule if it contains all models, and if a model is given by its path."""
    with pytest.raises(ConfigError, match="selects no models") as caught:
        models(uninitialized, 'models = ["a sub/*.onnx"]')
    with pytest.raises(UsageError, match="does not exist") as named:
        models(uninitialized, 'models = ["models"]', "a sub/m.onnx")

    assert [UPDATE, UPDATE] == [caught.value.hint, named.value.hint]


def test_no_models(folder: Path) -> None:
    """A config that selects no models is an error."""
    with pytest.raises(ConfigError, match="selects no models"):
        models(folder, 'models = ["nowhere/*.onnx"]')


def test_not_exported_yet(folder: Path) -> None:
    """A missing model with a `source` is selected for export; other commands use the other models and name it."""
    project = project_of(folder, '[[model]]\npath = "models/new.onnx"\nsource = "export.py:build"')

    assert "models/new.onnx" in [model.path for model in project.models(absent=True)]
    assert "models/new.onnx" not in [model.path for model in project.models()]
    assert [model.path for model in project.unexported()] == ["models/new.onnx"]
    with pytest.raises(UsageError) as caught:
        project.models(["models/new.onnx"], base=folder)
    assert caught.value.hint == "run `onnxgate export models/new.onnx`"


def test_nothing_but_models_to_export(folder: Path) -> None:
    """A project whose only model was not exported has no models to check."""
    entry = '[[model]]\npath = "fresh/new.onnx"\nsource = "export.py:build"'
    project = project_of(folder, f'models = ["fresh/*.onnx"]\n{entry}')

    with pytest.raises(ConfigError, match="not in the project"):
        project.models()


def test_not_exported_yet_by_name(folder: Path) -> None:
    """A model that is not exported yet can be selected by path, and a glob that matches only this model is valid."""
    entry = '[[model]]\npath = "fresh/new.onnx"\nsource = "export.py:build"'
    project = project_of(folder, f'models = ["models/*.onnx", "fresh/*.onnx"]\n{entry}')

    assert ["fresh/new.onnx"] == [model.path for model in project.models(["fresh/new.onnx"], base=folder, absent=True)]
    assert project.models()
    with pytest.raises(UsageError, match="does not exist"):
        project.models(["fresh/other.onnx"], base=folder, absent=True)


def test_broken_link(folder: Path) -> None:
    """A broken symbolic link is selected, so that the file stage reports it."""
    (folder / "models/link.onnx").symlink_to("nowhere")

    assert "models/link.onnx" in models(folder, 'models = ["models/*.onnx"]')


CONFIG = """
models = ["models/**/*.onnx"]
exclude = ["tests"]
[[model]]
path = "models/a.onnx"
source = "export.py:build"
[[model]]
path = "models/deep/*.onnx"
command = ["make", "-f", "rules.mk", "{output}"]
"""


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ((), ["models/a.onnx", "models/deep/b.onnx"]),
        (("models/a.onnx",), ["models/a.onnx"]),
        (("./models/../models/a.onnx",), ["models/a.onnx"]),
        (("models",), ["models/a.onnx", "models/deep/b.onnx"]),
        (("models/deep/",), ["models/deep/b.onnx"]),
        ((".",), ["models/a.onnx", "models/deep/b.onnx"]),
        (("export.py",), ["models/a.onnx"]),
        (("rules.mk",), ["models/deep/b.onnx"]),
        (("onnxgate.toml",), ["models/a.onnx", "models/deep/b.onnx"]),
        (("onnxgate.lock",), ["models/a.onnx", "models/deep/b.onnx"]),
        (("models/weights.bin",), ["models/a.onnx"]),
        (("models/deep/data/part",), ["models/a.onnx"]),
        (("models/other.bin",), []),
        (("tests/data/c.onnx",), []),
        (("tests/data/c.onnx", "models/a.onnx"), ["models/a.onnx"]),
        (("linked",), ["models/deep/b.onnx"]),
    ],
)
def test_paths(folder: Path, paths: tuple[str, ...], expected: list[str]) -> None:
    """A path selects a model, the models that use a data file or source, or those in a folder; excluded files select no
    model without an error.
    """
    for name in ("rules.mk", "onnxgate.lock", "models/weights.bin", "models/other.bin", "models/deep/data/part"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "models/deep/b.onnx").write_bytes(b"\x0a\x0bweights.bin")
    (folder / "models/a.onnx").write_bytes(b"\x0a\x0bweights.bin\x0adeep/data/part")
    (folder / "linked").symlink_to("models/deep")

    assert expected == models(folder, CONFIG, *paths)


@pytest.mark.parametrize(
    ("text", "path", "expected"),
    [
        (
            'models = ["models"]',
            "tests/data/c.onnx",
            "`tests/data/c.onnx` is not matched by `models` in `onnxgate.toml`",
        ),
        ("", ".hidden/d.onnx", "`.hidden/d.onnx` is in a hidden folder"),
    ],
)
def test_strangers(folder: Path, text: str, path: str, expected: str) -> None:
    """A requested model that is not part of the project is always an error, even if other paths are valid."""
    with pytest.raises(UsageError) as caught:
        models(folder, text, "models/a.onnx", path)

    assert expected == caught.value.message


def test_stranger_to_git(folder: Path) -> None:
    """A requested model that is not tracked by git is an error; after `git add` it is part of the project."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx")

    with pytest.raises(UsageError) as caught:
        models(folder, "", "models/deep/b.onnx")

    assert caught.value.message == "`models/deep/b.onnx` is not tracked by git"
    git(folder, "add", "models/deep/b.onnx")
    assert models(folder, "", "models/deep/b.onnx") == ["models/deep/b.onnx"]


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests", "`tests` contains no model of the project; `tests/data/c.onnx` is excluded by `exclude`"),
        (".", None),
        ("empty", "`empty` contains no model of the project"),
        (
            ".hidden",
            "`.hidden` contains no model of the project; `.hidden/d.onnx` is not matched by `models` in "
            "`onnxgate.toml`",
        ),
    ],
)
def test_folders_without_models(folder: Path, path: str, expected: str | None) -> None:
    """A folder without models of the project is an error that names a model in it and the reason."""
    (folder / "empty").mkdir()
    project = project_of(folder, 'models = ["models", "tests"]\nexclude = ["tests"]')
    if expected is None:
        assert len(project.models([path])) == 2
        return
    with pytest.raises(UsageError) as caught:
        project.models(["models/a.onnx", path])

    assert caught.value.message == expected
    assert caught.value.hint


def test_files_without_models(folder: Path) -> None:
    """Hooks pass all changed files: those that select no model are not an error."""
    (folder / "README.md").touch()

    assert models(folder, "", "README.md") == []


def test_many_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks pass all changed files: each model is resolved and read once, and not once per path."""
    names = [f"m{index:02}.onnx" for index in range(50)]
    for name in names:
        (folder / name).write_bytes(f"{name}.data".encode())
        (folder / f"{name}.data").touch()
    project = project_of(folder, 'models = ["*.onnx"]')
    calls: list[object] = []
    realpath, open_file = os.path.realpath, Path.open
    monkeypatch.setattr(os.path, "realpath", lambda *arguments: calls.append(arguments) or realpath(*arguments))
    monkeypatch.setattr(Path, "open", lambda *arguments: calls.append(arguments) or open_file(*arguments))
    selected = [model.path for model in project.models(names)]
    from_data = [model.path for model in project.models([f"{name}.data" for name in names[:10]])]

    assert (sorted(names), sorted(names[:10])) == (selected, from_data)
    assert len(calls) < 5 * len(names)


def test_selections(folder: Path) -> None:
    """A command with several projects asks each of them for all paths, without an error for those of the others."""
    project = project_of(folder, 'models = ["models/*.onnx"]\nexclude = [".hidden"]')
    paths = ["models/a.onnx", "models", "onnxgate.toml", "export.py", ".hidden/d.onnx", "tests", "absent.onnx"]

    assert ["selected"] * 3 + ["ignored"] * 2 + ["refused"] * 2 == list(
        project.classify_paths(paths, base=folder).values()
    )


def test_stranger_from_outside(folder: Path) -> None:
    """A requested model outside of the config's folder is an error."""
    with pytest.raises(UsageError) as caught:
        project_of(folder / "models").models(["tests/data/c.onnx"])

    assert caught.value.message == ("`tests/data/c.onnx` is outside the folder of `onnxgate.toml`")


def test_paths_that_are_not_there(folder: Path) -> None:
    """A path that does not exist is an error, even if other paths are valid."""
    with pytest.raises(UsageError) as caught:
        models(folder, CONFIG, "models/a.onnx", "models/typo.onnx", "nowhere")

    assert caught.value.message == "`models/typo.onnx`, `nowhere` do not exist"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("models/a.onx", "did you mean `models/a.onnx`?"),
        ("model/a.onnx", "did you mean `models/a.onnx`?"),
        ("./model/dep/b.onnx", "did you mean `models/deep/b.onnx`?"),
        ("../{folder}/modles", "did you mean `../{folder}/models`?"),
        ("{absolute}/model/a.onnx", "did you mean `{absolute}/models/a.onnx`?"),
        ("model/other.onnx", None),
        ("elsewhere/a.onnx", None),
        ("models/*.onnx", "remove the quotes around `models/*.onnx`, so that the shell expands the glob"),
        ("{absolute}/**/*.onnx", "remove the quotes around `{absolute}/**/*.onnx`, so that the shell expands the glob"),
        ("elsewhere/*.onnx", None),
    ],
)
def test_suggested_paths(folder: Path, path: str, expected: str | None) -> None:
    """The hint for a path that does not exist is a path that does, whichever part is misspelled."""
    names = {"folder": folder.name, "absolute": folder.as_posix()}
    with pytest.raises(UsageError) as caught:
        models(folder, "", path.format(**names))

    assert caught.value.hint == (expected.format(**names) if expected else None)


def test_paths_from_elsewhere(folder: Path) -> None:
    """Paths are relative to the working directory; absolute paths are accepted."""
    project = project_of(folder, CONFIG)

    relative = project.models(["b.onnx"], base=folder / "models" / "deep")
    absolute = project.models([str(folder / "models" / "deep" / "b.onnx")])

    assert [model.path for model in relative] == ["models/deep/b.onnx"] == [model.path for model in absolute]


def test_settings(folder: Path) -> None:
    """All matching entries are merged in order; sizes and tolerances are merged key by key."""
    project = project_of(
        folder,
        """
models = ["models/**/*.onnx"]
opset = { "ai.onnx" = 17, "ai.onnx.ml" = 3 }
[targets.one]
runtime = "onnxruntime"
[targets.two]
runtime = "onnxruntime"
[[model]]
path = "**/*.onnx"
inputs = "all/*.npz"
sizes = { batch = [1], time = [16] }
tolerance = { rtol = 0.1, atol = 0.2 }
[[model]]
path = "models/a.onnx"
targets = ["two"]
sizes = { batch = [1, 3] }
tolerance = { y = { rtol = 0.3, atol = 0.4 } }
opset = 20
""",
    )

    first, second = project.models()

    assert project.required_opset(first) == {"ai.onnx": 20, "ai.onnx.ml": 3}
    assert project.required_opset(second) == {"ai.onnx": 17, "ai.onnx.ml": 3}
    assert (project.place_opset(first).line, project.place_opset(second).line) == (18, 3)

    assert (first.settings.targets, second.settings.targets) == (("two",), ("one", "two"))
    assert first.settings.inputs == "all/*.npz"
    assert first.settings.sizes == {"batch": (1, 3), "time": (16,)}
    assert second.settings.sizes == {"batch": (1,), "time": (16,)}
    assert first.settings.tolerance == {"rtol": 0.1, "atol": 0.2, "y": Tolerance(rtol=0.3, atol=0.4)}
    assert (first.place.path, first.place.line) == ("onnxgate.toml", 14)
    assert second.place.line == 9
    assert not first.settings.is_exported


def test_no_settings(folder: Path) -> None:
    """A model without an entry has all targets and default settings."""
    (model,) = project_of(folder, 'models = ["models/a.onnx"]').models()

    assert (model.place.path, model.place.line) == ("models/a.onnx", 0)
    assert model.absolute == folder / "models" / "a.onnx"
    assert model.settings.tolerance == {}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ('exclude = ["scratch"]', "`models/new one.onnx` is not tracked by git and is not checked; run `git add "),
        ('models = ["models"]', '`models/new one.onnx` is not tracked by git; run `git add "models/new one.onnx"`'),
        ('models = ["models/a.onnx"]', ""),
    ],
)
def test_untracked_models(tmp_path: Path, config: str, expected: str) -> None:
    """A new model that was not added to git is named, unless git ignores it or the project does not contain it."""
    for name in ("models/a.onnx", "build/c.onnx"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    (tmp_path / ".gitignore").write_text("build/\n", encoding="utf-8")
    commit(tmp_path)
    project = project_of(tmp_path, config)
    assert (project.models() and project.describe_untracked()) == ""
    (tmp_path / "scratch").mkdir()
    for name in ("models/new one.onnx", "scratch/d.onnx", "build/e.onnx"):
        (tmp_path / name).touch()
    project = project_of(tmp_path, config)

    assert project.models()
    assert project.describe_untracked().startswith(expected)
    assert bool(project.describe_untracked()) == bool(expected)


def test_many_untracked_models(tmp_path: Path) -> None:
    """A repository with many new models gets one line."""
    (tmp_path / "a.onnx").touch()
    commit(tmp_path)
    for index in range(9):
        (tmp_path / f"n{index}.onnx").touch()
    named = "`n0.onnx`, `n1.onnx`, `n2.onnx`, `n3.onnx`, `n4.onnx` and 4 more"

    assert project_of(tmp_path, "").describe_untracked() == (
        f"{named} are not tracked by git and are not checked; run `git add PATH`"
    )


def test_untracked_models_outside_of_git(tmp_path: Path) -> None:
    """Without a repository, no model is untracked."""
    (tmp_path / "a.onnx").touch()

    assert project_of(tmp_path, "").describe_untracked() == ""
