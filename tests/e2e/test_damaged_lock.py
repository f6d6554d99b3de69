"""All commands that read the lock refuse a damaged one in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.project.lock.types import REVISION
from tests.harness.locks import project_of
from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.commit_history import CONFIG, NET, small_lock
from tests.harness.repositories.user_repository import Repository

SCALE = "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul(x, w) }"
COMMANDS = [
    ("check", "--static"),
    ("check",),
    ("check", "--static", "--against", "none"),
    ("plan", "--shards", "2"),
    ("fix", "--dry-run"),
    ("runtimes", "list"),
    ("lock", "--check"),
    ("lock", NET),
    ("lock", "--upgrade", "--preview"),
]


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Create a repository with a committed model and its lock."""
    from onnxgate.project.lock.lock_file import write_lock

    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    project_of(folder, CONFIG)
    write(folder / NET, parse(SCALE))
    write_lock(small_lock(), folder / "onnxgate.lock")
    repository = command.at(folder)
    repository.run("lock", "--offline")
    commit(folder)
    return repository


def delete(repository: Repository, *parts: str) -> None:
    """Delete the lines of the lock that contain one of the parts."""
    lines = repository.read("onnxgate.lock").splitlines(keepends=True)
    repository.write("onnxgate.lock", "".join(line for line in lines if not any(part in line for part in parts)))


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_each_command(repository: Repository, arguments: tuple[str, ...]) -> None:
    """A deleted row is exit status 2, and the hint restores the committed lock or repairs this one."""
    delete(repository, 'release = "', "resolved = ")
    result = repository.run(*arguments, status=2)

    assert "error: `onnxgate.lock` is damaged" in result.err
    assert "`resolved` is missing" in result.err
    assert "restore it (`git checkout HEAD -- onnxgate.lock`), or run `onnxgate lock`" in " ".join(result.err.split())


def test_a_changed_config_is_stale(repository: Repository) -> None:
    """After an edit of the config, the lock is stale with exit status 1, and not damaged."""
    repository.edit("onnxgate.toml", ">=1.17", ">=1.18")

    assert "lock-stale" in repository.run("check", "--static", status=1).out


def test_lock_repairs(repository: Repository) -> None:
    """`onnxgate lock` reads the model again, keeps all pins and prints the damage."""
    whole = repository.read("onnxgate.lock")
    delete(repository, "Mul = ", "resolved = ")
    result = repository.run("lock", "--offline")

    assert "note: `onnxgate.lock` was damaged and is repaired: target `server`: `resolved` is missing\n" in result.out
    assert f"note: `onnxgate.lock` was damaged and is repaired: model `{NET}` does not match `digest`" in result.out
    assert "updated target `server`: its runtimes are unchanged\n" in result.out
    assert repository.read("onnxgate.lock") == whole


def test_a_lock_that_cannot_be_repaired(repository: Repository) -> None:
    """If a compulsory key is missing, `onnxgate lock` changes nothing, and the hint says what to do."""
    delete(repository, "policy = ")
    result = repository.run("lock", "--offline", status=2)

    assert "missing required field `policy`" in result.err
    assert "or delete it and run `onnxgate lock`" in " ".join(result.err.split())


def test_a_newer_revision(repository: Repository) -> None:
    """A lock of a newer revision is checked with a note, and never rewritten."""
    repository.edit("onnxgate.lock", f"revision = {REVISION}\n", "revision = 9\nnews = 1\n")
    before = repository.read("onnxgate.lock")

    assert "the lock has format revision 9" in repository.run("check", "--static").out
    for arguments in (("lock",), ("lock", NET)):
        assert "upgrade onnxgate" in repository.run(*arguments, status=2).err
    assert repository.read("onnxgate.lock") == before
