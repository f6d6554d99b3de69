"""Which models a project has, what is asked of each, and which of them paths mean."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.project.config.loader import load_config
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Tolerance

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
    """A folder of models, no repository of git's."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"\x08\x08" + name.encode())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def project_of(folder: Path, text: str = "") -> Project:
    """The project of one config, which promises something where the text does not."""
    promise = "" if "[targets." in text else '\n[targets.cpu]\nruntime = "onnxruntime"\n'
    (folder / "onnxgate.toml").write_text(text + promise)
    return load_config(folder / "onnxgate.toml")


def models(folder: Path, text: str = "", *paths: str) -> list[str]:
    """Paths of the models, of all or of those that `paths` mean."""
    return [model.path for model in project_of(folder, text).models(paths)]


def git(folder: Path, *arguments: str) -> None:
    """Ask git, without the user's settings."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, env=environment)


def test_without_git(folder: Path) -> None:
    """Where there is no git, every model counts that is in no hidden folder."""

    assert models(folder) == ["models/a.onnx", "models/deep/b.onnx", "tests/data/c.onnx"]


def test_tracked(folder: Path) -> None:
    """What git tracks counts, hidden or not, below the config's folder; what is deleted does not."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx", "tests/data/c.onnx", ".hidden/d.onnx")
    (folder / "tests/data/c.onnx").unlink()
    (folder / "models/onnxgate.toml").touch()

    assert models(folder) == [".hidden/d.onnx", "models/a.onnx"]
    assert models(folder / "models") == ["a.onnx"]


def test_tracked_names(folder: Path) -> None:
    """A name may have blanks, quotes, umlauts and line ends."""
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
    """`models` and `exclude` name files, folders and globs."""

    assert expected == models(folder, text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('models = ["models/x.onnx"]', "line 1: `models[0]`: `models/x.onnx` does not exist"),
        ('[[model]]\npath = "models/x.onnx"', "line 2: `model[0].path`: `models/x.onnx` does not exist"),
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
            'models = ["models/*.onnx", "test/data/*.onnx"]',
            "line 1: `models[1]`: `test/data/*.onnx` matches no file",
        ),
    ],
)
def test_named_and_not_there(folder: Path, text: str, expected: str) -> None:
    """A model that the config names and that the project does not have is an error, with its line."""
    with pytest.raises(ConfigError) as caught:
        models(folder, text)

    assert caught.value.problems == (expected,)


def test_not_tracked(folder: Path) -> None:
    """A model that is named and that git does not have yet: what to do is said."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx")

    with pytest.raises(ConfigError) as caught:
        models(folder, '[[model]]\npath = "models/deep/b.onnx"')

    assert "is not tracked by git; run `git add" in caught.value.problems[0]


def test_no_models(folder: Path) -> None:
    """A gate without models is no gate."""
    with pytest.raises(ConfigError, match="selects no models"):
        models(folder, 'models = ["nowhere/*.onnx"]')


def test_not_exported_yet(folder: Path) -> None:
    """A model that has a source and is not there yet is one for who exports, and an error for all others."""
    project = project_of(folder, '[[model]]\npath = "models/new.onnx"\nsource = "export.py:build"')

    assert "models/new.onnx" in [model.path for model in project.models(absent=True)]
    with pytest.raises(ConfigError):
        project.models()


def test_not_exported_yet_by_name(folder: Path) -> None:
    """It can be named by its path, and a glob that stands for it alone is no dead one."""
    entry = '[[model]]\npath = "fresh/new.onnx"\nsource = "export.py:build"'
    project = project_of(folder, f'models = ["models/*.onnx", "fresh/*.onnx"]\n{entry}')

    assert ["fresh/new.onnx"] == [each.path for each in project.models(["fresh/new.onnx"], base=folder, absent=True)]
    with pytest.raises(UsageError, match="does not exist"):
        project.models(["fresh/other.onnx"], base=folder, absent=True)


def test_broken_link(folder: Path) -> None:
    """A link that leads nowhere is a model: one that is broken, which is for the file stage to say."""
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
    """A path means a model, its data, a folder, a source; what is excluded means none, and is no error."""
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
    """A model that is asked for and that the project does not have is never passed by, whatever else is named."""
    with pytest.raises(UsageError) as caught:
        models(folder, text, "models/a.onnx", path)

    assert expected == caught.value.message


def test_stranger_to_git(folder: Path) -> None:
    """A model that git does not have yet is not passed by; once it is staged, it is one of the project's."""
    git(folder, "init", "-q")
    git(folder, "add", "models/a.onnx")

    with pytest.raises(UsageError) as caught:
        models(folder, "", "models/deep/b.onnx")

    assert caught.value.message == "`models/deep/b.onnx` is not tracked by git"
    git(folder, "add", "models/deep/b.onnx")
    assert models(folder, "", "models/deep/b.onnx") == ["models/deep/b.onnx"]


def test_stranger_from_outside(folder: Path) -> None:
    """A model of another folder belongs to another project."""
    with pytest.raises(UsageError) as caught:
        project_of(folder / "models").models(["tests/data/c.onnx"])

    assert caught.value.message == ("`tests/data/c.onnx` is outside of the folder of `onnxgate.toml`")


def test_paths_that_are_not_there(folder: Path) -> None:
    """A path that is not there is a mistake, whatever else is named."""
    with pytest.raises(UsageError) as caught:
        models(folder, CONFIG, "models/a.onnx", "models/typo.onnx", "nowhere")

    assert caught.value.message == "`models/typo.onnx`, `nowhere` do not exist"


def test_paths_from_elsewhere(folder: Path) -> None:
    """Paths are relative to where the command works; absolute ones are taken as they are."""
    project = project_of(folder, CONFIG)

    relative = project.models(["b.onnx"], base=folder / "models" / "deep")
    absolute = project.models([str(folder / "models" / "deep" / "b.onnx")])

    assert [model.path for model in relative] == ["models/deep/b.onnx"] == [model.path for model in absolute]


def test_settings(folder: Path) -> None:
    """Entries that match are merged in their order, sizes and tolerances key by key."""
    project = project_of(
        folder,
        """
models = ["models/**/*.onnx"]
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
""",
    )

    first, second = project.models()

    assert (first.settings.targets, second.settings.targets) == (("two",), ("one", "two"))
    assert first.settings.inputs == "all/*.npz"
    assert first.settings.sizes == {"batch": (1, 3), "time": (16,)}
    assert second.settings.sizes == {"batch": (1,), "time": (16,)}
    assert first.settings.tolerance == {"rtol": 0.1, "atol": 0.2, "y": Tolerance(rtol=0.3, atol=0.4)}
    assert (first.place.path, first.place.line) == ("onnxgate.toml", 13)
    assert second.place.line == 8
    assert not first.settings.is_exported


def test_no_settings(folder: Path) -> None:
    """A model without an entry stands for itself: all targets, and nothing else."""
    (model,) = project_of(folder, 'models = ["models/a.onnx"]').models()

    assert (model.place.path, model.place.line) == ("models/a.onnx", 0)
    assert model.absolute == folder / "models" / "a.onnx"
    assert model.settings.tolerance == {}
