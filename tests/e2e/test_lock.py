"""`onnxgate lock` writes the same bytes on every machine, and updates only the requested entries."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.e2e.conftest import Variables
from tests.harness.models import RELU, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG = """models = ["**/*.onnx"]

[targets.range]
runtime = "onnxruntime>=1.19,<1.22"

[targets.ends]
runtime = "onnxruntime>=1.18,<1.20"
select = "bounds"
"""
PLATFORMS = (
    *("manylinux.*_x86_64.whl", "manylinux.*_aarch64.whl"),
    *("macosx.*_(x86_64|universal2).whl", "macosx.*_(arm64|universal2).whl", "win_amd64.whl"),
)
NAMES = ("models/a.onnx", "models/Größe 模型.onnx", "models/İi.onnx", "models/below/Z.onnx", "models/below/a.onnx")


def read_lock(repository: Repository) -> dict[str, Any]:
    """Return the parsed lock."""
    return tomllib.loads(repository.read("onnxgate.lock"))


def make(repository: Repository, names: Iterable[str], seconds: int) -> None:
    """Write and commit models in the given order, with one modification time."""
    for name in names:
        write(repository.folder / name)
    repository.write("onnxgate.toml", CONFIG)
    for path in repository.folder.rglob("*"):
        os.utime(path, (seconds, seconds))
    commit(repository.folder)


@pytest.mark.index
def test_same_bytes_everywhere(command: Repository, tmp_path: Path) -> None:
    """The lock does not depend on the folder, user, time zone, language, dates, hash seed, file order or uv cache."""
    uv_cache = subprocess.run([find_uv_bin(), "cache", "dir"], capture_output=True, text=True, check=True).stdout
    one = command.at(tmp_path / "one").with_environment(
        TZ="Pacific/Kiritimati", LC_ALL="C", LANG="C", PYTHONHASHSEED="1", SOURCE_DATE_EPOCH="0"
    )
    other = command.at(tmp_path / "elsewhere" / "the other").with_environment(
        HOME=tmp_path / "home",
        USER="somebody",
        LOGNAME="somebody",
        UV_CACHE_DIR=uv_cache.strip(),
        TZ="America/St_Johns",
        LC_ALL="tr_TR.UTF-8",
        LANGUAGE="tr",
        PYTHONHASHSEED="2",
        SOURCE_DATE_EPOCH="2000000000",
    )
    make(one, NAMES, 1_000_000_000)
    make(other, reversed(NAMES), 1_700_000_000)
    for each in (one, other):
        each.run("lock")
    written = one.read("onnxgate.lock")

    assert written == other.read("onnxgate.lock")
    assert set(read_lock(one)["models"]) == set(NAMES)
    assert not [word for word in (str(tmp_path), "somebody", "http") if word in written]
    assert "`onnxgate.lock` is up to date: 5 models, " in other.run("lock").out
    assert other.read("onnxgate.lock") == written


@pytest.mark.index
def test_wheels_for_every_platform(command: Repository, tmp_path: Path) -> None:
    """Each package has wheels for five platforms, regardless of the platform that writes the lock."""
    repository = command.at(tmp_path / "one")
    make(repository, NAMES[:1], 1_000_000_000)
    repository.run("lock")
    wheels = {
        package["name"]: [wheel["file"] for wheel in package["wheels"]] for package in read_lock(repository)["packages"]
    }

    assert set(wheels) == {"numpy", "onnxruntime"}
    assert [(name, platform) for name in wheels for platform in PLATFORMS if not _has(wheels[name], platform)] == []


def _has(wheels: Iterable[str], platform: str) -> bool:
    return any(re.search(platform, wheel) for wheel in wheels)


@pytest.mark.parametrize("arguments", [("--offline",), ()], ids=["asked to be offline", "no index"])
def test_offline(small: Repository, cold: Variables, arguments: tuple[str, ...]) -> None:
    """Added and removed models are locked offline if all pins still match; the pins are unchanged."""
    before = read_lock(small)
    write(small.folder / "models" / "new.onnx", RELU.replace("Relu", "Tanh"))
    (small.folder / "models" / "small.onnx").unlink()
    output = small.with_environment(**cold).run("lock", *arguments).out
    after = read_lock(small)

    assert output.splitlines() == [
        "added `models/new.onnx`",
        "removed `models/small.onnx`",
        "wrote `onnxgate.lock`: 1 model, 2 runtimes (2 unchanged)",
    ]
    assert {**after, "models": {}} == {**before, "models": {}}
    assert list(after["models"]) == ["models/new.onnx"]


@pytest.mark.parametrize("path", ["models/b.onnx", "models/deep", "./models/../models/b.onnx"])
def test_paths(small: Repository, cold: Variables, path: str) -> None:
    """If three models changed, only the entries of the named paths are updated."""
    names = ("models/b.onnx", "models/deep/c.onnx", "models/small.onnx")
    small.edit("onnxgate.toml", '"models/*.onnx"', '"models/**/*.onnx"')
    for name in names:
        write(small.folder / name)
    small.run("lock", "--offline")
    before = read_lock(small)
    for name in names:
        write(small.folder / name, RELU.replace("Relu", "Tanh"))
    small.with_environment(**cold).run("lock", path)
    after = read_lock(small)
    named = "models/deep/c.onnx" if path == "models/deep" else "models/b.onnx"

    assert {**after, "models": {}} == {**before, "models": {}}
    assert [name for name in names if after["models"][name] != before["models"][name]] == [named]
    assert after["models"][named]["operators"] == {"Tanh": 1}


def widen(repository: Repository) -> None:
    """Add another minor release to the target."""
    repository.edit("onnxgate.toml", "<1.20", "<1.21")


def change(repository: Repository) -> None:
    """Write a different model to the same path."""
    write(repository.folder / "models" / "small.onnx", RELU.replace("Relu", "Tanh"))


def add(repository: Repository) -> None:
    """Add a model."""
    write(repository.folder / "models" / "new.onnx")


def move(repository: Repository) -> None:
    """Rename the model."""
    (repository.folder / "models" / "small.onnx").rename(repository.folder / "models" / "moved.onnx")


@pytest.mark.parametrize(
    ("done", "message"),
    [
        (widen, "`runtime` of target `server` changed since the lock was written"),
        (change, "`models/small.onnx` has changed since it was locked"),
        (add, "`models/new.onnx` is not locked"),
        (move, "`models/small.onnx` is locked but no longer in the project"),
    ],
)
def test_check(small: Repository, cold: Variables, done: Callable[[Repository], None], message: str) -> None:
    """Differences are reported with status 1, without writing the lock or querying the index."""
    done(small)
    before = small.read("onnxgate.lock")
    result = small.with_environment(**cold).run("lock", "--check", status=1)

    assert result.out.startswith(message)
    assert small.read("onnxgate.lock") == before


def test_failed_export_concerns_its_own_model(small: Repository, cold: Variables) -> None:
    """A model whose export failed does not exist: it is named, and the other models are locked and checked."""
    repository = small.with_environment(**cold)
    repository.write("export.py", "def build():\n    raise ValueError\n")
    text = repository.read("onnxgate.toml")
    repository.write("onnxgate.toml", f'{text}\n[[model]]\npath = "models/new.onnx"\nsource = "export.py:build"\n')
    write(repository.folder / "models" / "small.onnx", RELU.replace("Relu", "Tanh"))
    locked = repository.run("lock", status=3)
    checked = repository.run("check", "--static", status=3)

    assert list(read_lock(repository)["models"]) == ["models/small.onnx"]
    assert read_lock(repository)["models"]["models/small.onnx"]["operators"] == {"Tanh": 1}
    assert "error: `onnxgate.lock` is not complete: `models/new.onnx` has not been exported" in locked.err
    assert re.search(r"models/small\.onnx +likely", checked.out)
    assert "  file: models/new.onnx\n    the file does not exist\n" in checked.out
    assert "hint: run `onnxgate export models/new.onnx`" in checked.out
