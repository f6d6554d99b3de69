"""Identification of exports by the files they were created from and the files they contain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from onnxgate.core.files import REMEMBERED_BYTES
from onnxgate.gate.execution import stable_exports
from onnxgate.gate.execution.stable_exports import StableExports, digest_state, digest_written
from tests.harness.locks import project_of


def write(path: Path, text: str = "text") -> Path:
    """Write a file, creating its parent folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.fixture
def python(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a virtual environment with one package and return its interpreter."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    environment = tmp_path_factory.mktemp("env")
    write(environment / "pyvenv.cfg", "include-system-site-packages = false\n")
    (environment / "lib" / "python3.11" / "site-packages" / "x-1.dist-info").mkdir(parents=True)
    return environment / "bin" / "python"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Create a model with data in its folder and in a subfolder."""
    write(tmp_path / "out" / "data" / "w.bin")
    write(tmp_path / "out" / "w.bin")
    return write(tmp_path / "out" / "m.onnx")


def test_all_files_of_an_export(model: Path) -> None:
    """Files in subfolders and behind links are included by path; unrelated folders are not."""
    digests = digest_written(model)
    (model.parent / "linked.bin").symlink_to(write(model.parents[1] / "elsewhere"))
    linked = digest_written(model)
    write(model.parent / "data" / "w.bin", "other")
    changed = digest_written(model)

    assert digests.keys() == {"m.onnx", "w.bin", "data/w.bin"}
    assert linked.keys() == {*digests, "linked.bin"}
    assert {name for name in changed if changed[name] != linked[name]} == {"data/w.bin"}
    assert digest_written(model, frozenset({"data"})).keys() == {"m.onnx", "w.bin", "linked.bin"}


@pytest.mark.parametrize("kind", ["linked folder", "pipe", "link to nothing"])
def test_files_that_cannot_be_digested(model: Path, kind: str) -> None:
    """If one of the files cannot be hashed, there are no digests, because it may differ between two exports."""
    path = model.parent / "data" / "other"
    if kind == "linked folder":
        path.symlink_to(model.parents[1], target_is_directory=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nothing")

    assert digest_written(model) == {}


def test_state_of_a_repository(tmp_path: Path, python: Path) -> None:
    """The state covers all files of the project and all installed packages, but no caches or environments."""
    root = tmp_path / "project"
    (package,) = python.parents[1].rglob("x-1.dist-info")
    code = write(root / "export" / "make.py")
    states = [digest_state(root, python)]
    write(root / ".git" / "index")
    write(root / "export" / "__pycache__" / "make.pyc")
    write(root / ".venv" / "pyvenv.cfg")
    write(root / ".venv" / "lib" / "x.py")
    write(root / ".cache" / "CACHEDIR.TAG")
    same = digest_state(root, python)
    write(code, "other")
    states.append(digest_state(root, python))
    write(root / "names.yaml")
    states.append(digest_state(root, python))
    (root / "linked").symlink_to(python.parent, target_is_directory=True)
    states.append(digest_state(root, python))
    os.utime(package, (1, 1))
    states.append(digest_state(root, python))

    assert same == states[0]
    assert "" not in states
    assert len(set(states)) == len(states)


@pytest.mark.parametrize("size_bytes", [100, REMEMBERED_BYTES + 1])
def test_files_that_are_not_read(
    tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, size_bytes: int
) -> None:
    """Files that are too large to be hashed are identified by size and modification time."""
    path = write(tmp_path / "weights.bin", "x" * size_bytes)
    read = digest_state(tmp_path, python)
    monkeypatch.setattr(stable_exports, "MAX_HASHED_BYTES", 99)
    states = [digest_state(tmp_path, python), digest_state(tmp_path, python)]
    os.utime(path, (1, 1))

    assert states[0] == states[1]
    assert (states[0] == read) == (size_bytes > REMEMBERED_BYTES)
    assert digest_state(tmp_path, python) not in ("", *states)


def test_a_repository_of_too_many_files(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports of a repository with too many files are not cached."""
    monkeypatch.setattr(stable_exports, "MAX_REPOSITORY_FILES", 2)
    for name in "ab":
        write(tmp_path / name)
    few = digest_state(tmp_path, python)
    write(tmp_path / "c")

    assert few != ""
    assert digest_state(tmp_path, python) == ""


@pytest.mark.parametrize("kind", ["of the system", "with its packages", "with a path"])
def test_packages_that_are_not_known(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """If the toolchain can import packages from unknown folders, they may change unnoticed, so there is no digest."""
    known = digest_state(tmp_path, python)
    settings = python.parents[1] / "pyvenv.cfg"
    if kind == "of the system":
        settings.unlink()
    elif kind == "with its packages":
        write(settings, "include-system-site-packages = true\n")
    else:
        monkeypatch.setenv("PYTHONPATH", "elsewhere")

    assert known != ""
    assert digest_state(tmp_path, python) == ""


def test_code_change_invalidates_export_comparison(tmp_path: Path, python: Path) -> None:
    """After a code change, the earlier comparison of exports with two seeds is no longer valid."""
    write(tmp_path / "project" / "m.onnx")
    project = project_of(tmp_path / "project", 'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n')
    (selected,) = project.models()

    def open_cache(*, fresh: bool = False) -> StableExports:
        return StableExports(tmp_path / "cache", project.root, fresh=fresh)

    open_cache(fresh=True).keep(selected, python, 1, {"m.onnx": "0"})
    actual = open_cache().find(selected, python)
    fresh = open_cache(fresh=True).find(selected, python)
    write(tmp_path / "project" / "make.py")

    assert actual is not None
    assert (actual.seed, actual.written) == (1, {"m.onnx": "0"})
    assert fresh is None
    assert open_cache().find(selected, python) is None


def test_the_state_is_that_before_the_first_export(tmp_path: Path, python: Path) -> None:
    """The state is recorded before the export, because the export may write files into the repository."""
    write(tmp_path / "project" / "m.onnx")
    project = project_of(tmp_path / "project", 'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n')
    (selected,) = project.models()
    before, after = (StableExports(tmp_path / "cache", project.root) for _ in range(2))

    assert before.find(selected, python) is None

    write(tmp_path / "project" / "log.txt")
    before.keep(selected, python, 0, {"m.onnx": "0"})

    assert after.find(selected, python) is None
