"""Git LFS pointers in a pull request: facts that only its own lock states are not used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from onnxgate.project.lock.lock_file import load_lock, write_lock
from onnxgate.project.lock.types import LockedModel
from tests.harness.locks import project_of
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.commit_history import CONFIG, NET, OTHER, small_lock
from tests.harness.repositories.user_repository import Repository, brief

DATA = "models/net.bin"
PULL = 'run `git lfs pull --include "{}"`; in GitHub Actions, set `lfs: true` for `actions/checkout`'
SCALE = "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul(x, w) }"
FORGED = "e" * 64


def pointer(sha256: str, size: int = 9) -> str:
    """Return a Git LFS pointer."""
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {size}\n"


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Create a repository with two locked models that are pointers, and a branch `base` at its only commit."""
    folder = tmp_path / "repository"
    (folder / "models").mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    project_of(folder, CONFIG)
    for path in (NET, OTHER):
        write(folder / path, parse(SCALE))
    write_lock(small_lock(), folder / "onnxgate.lock")
    repository = command.at(folder)
    repository.run("lock", NET, OTHER)
    for path in (NET, OTHER):
        entry = entry_of(repository, path)
        repository.write(path, pointer(entry.sha256, entry.size_bytes))
    commit(folder)
    git(folder, "branch", "base")
    return repository


def entry_of(repository: Repository, path: str) -> LockedModel:
    """Return the lock's entry of a model."""
    return load_lock(repository.folder / "onnxgate.lock").models[path]


def forge(repository: Repository, path: str, **changes: Any) -> None:
    """Change a model's entry in the lock, with digests that fit."""
    lock = load_lock(repository.folder / "onnxgate.lock")
    models = {**lock.models, path: msgspec.structs.replace(lock.models[path], **changes)}
    write_lock(msgspec.structs.replace(lock, models=models), repository.folder / "onnxgate.lock")


def undecided(report: dict[str, Any]) -> set[tuple[str, str]]:
    """Return stage and model of each undecided check."""
    return {(entry["stage"], entry["model"]) for entry in report["undecided"]}


def test_unchanged_pointers_use_the_lock(repository: Repository) -> None:
    """Entries that the baseline has, too, are used; a note says that the facts come from the lock."""
    for arguments in (("--against", "base"), ("--against", "none")):
        report = repository.report("--static", *arguments)

        assert [brief(finding) for finding in report["findings"]] == [
            ("note", "lfs-pointer", NET),
            ("note", "lfs-pointer", OTHER),
        ]
        assert all("its facts come from the lock" in finding["message"] for finding in report["findings"])


def test_new_content_is_undecided(repository: Repository) -> None:
    """Facts next to a new pointer can be invented, so each static stage of the model is undecided."""
    forge(repository, NET, sha256=FORGED, size_bytes=9)
    repository.write(NET, pointer(FORGED))
    commit(repository.folder)

    report = repository.report("--static", "--against", "base", status=3)

    assert undecided(report) == {(stage, NET) for stage in ("file", "lock", "support")}
    assert {entry["reason"] for entry in report["undecided"]} == {
        "the file is a Git LFS pointer (content not fetched), and the lock at `base` does not contain it"
    }
    assert {entry["hint"] for entry in report["undecided"]} == {PULL.format(NET)}
    assert [brief(finding) for finding in report["findings"]] == [("note", "lfs-pointer", OTHER)]
    assert "are the same" not in repository.run("check", "--static", "--against", "base", status=3).out


def test_forged_facts_of_old_content_are_undecided(repository: Repository) -> None:
    """Also without a new pointer, facts that differ from those of the baseline are not used."""
    forge(repository, NET, opsets={"ai.onnx": 7})
    commit(repository.folder)

    assert undecided(repository.report("--static", "--against", "base", status=3)) == {
        (stage, NET) for stage in ("file", "lock", "support")
    }
    assert undecided(repository.report("--static", "--against", "none")) == set()


def test_moved_model_keeps_its_facts(repository: Repository) -> None:
    """The baseline's lock describes the content of a model that was only renamed."""
    moved = "models/moved.onnx"
    git(repository.folder, "mv", NET, moved)
    lock = load_lock(repository.folder / "onnxgate.lock")
    models = {moved if path == NET else path: entry for path, entry in lock.models.items()}
    write_lock(msgspec.structs.replace(lock, models=models), repository.folder / "onnxgate.lock")
    commit(repository.folder)

    assert undecided(repository.report("--static", "--against", "base")) == set()


def test_moved_project_keeps_its_facts(repository: Repository) -> None:
    """The baseline's lock is found in the folder where the project was."""
    (repository.folder / "project").mkdir()
    git(repository.folder, "mv", "onnxgate.toml", "onnxgate.lock", "models", "project")
    commit(repository.folder)
    report = repository.at(repository.folder / "project").report("--static", "--against", "base")

    assert undecided(report) == set()


def test_unlocked_pointer_is_undecided(repository: Repository, tmp_path: Path) -> None:
    """Content that was not fetched is not a defect of the model, with and without a config."""
    repository.write(NET, pointer(FORGED))
    report = repository.report("--static", "--against", "none", status=3)
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "net.onnx").write_text(pointer(FORGED))
    alone = repository.at(tmp_path / "alone").report("net.onnx", status=3)

    assert undecided(report) == {(stage, NET) for stage in ("file", "lock", "support")}
    assert {entry["reason"] for entry in report["undecided"]} == {"the file is a Git LFS pointer (content not fetched)"}
    assert {entry["reason"] for entry in alone["undecided"]} == {"the file is a Git LFS pointer (content not fetched)"}
    assert (report["counts"]["errors"], alone["counts"]["errors"]) == (0, 0)


def test_unfetched_data(repository: Repository) -> None:
    """Data that was not fetched is undecided, unless the lock, and that of the baseline, contain its digest."""
    model = parse(SCALE)
    (repository.folder / DATA).write_bytes(make_external(model, "net.bin"))
    write(repository.folder / NET, model)
    repository.run("lock", NET)
    (data,) = entry_of(repository, NET).external
    repository.write(DATA, pointer(data.sha256, data.size_bytes))
    commit(repository.folder)

    new = repository.report("--static", "--against", "base", status=1)  # it also adds a data file
    known = [repository.report("--static", "--against", revision) for revision in ("none", "HEAD")]
    repository.write(DATA, pointer(FORGED, data.size_bytes))
    other = repository.report("--static", "--against", "none", status=3)

    assert undecided(new) == undecided(other) == {("file", NET)}
    assert {entry["hint"] for entry in (*new["undecided"], *other["undecided"])} == {PULL.format(DATA)}
    for report in known:
        assert ("note", "lfs-pointer", NET) in [brief(finding) for finding in report["findings"]]
