"""Models in Git LFS whose content is not fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.repositories.checkout import git
from tests.harness.repositories.export_script import MODEL
from tests.harness.repositories.lfs import clone_of_pointers
from tests.harness.repositories.user_repository import Repository, brief

pytestmark = [pytest.mark.index, pytest.mark.torch]


@pytest.fixture
def pointers(joined: Repository, tmp_path: Path) -> Repository:
    """Return a clone in which all models are Git LFS pointers."""
    return clone_of_pointers(joined, tmp_path, "*.onnx")


def test_a_pointer_to_the_locked_content(pointers: Repository) -> None:
    """A pointer to the locked content is a note; the facts in the lock are not enough for a prediction."""
    report = pointers.report("--static")

    assert pointers.read(MODEL).startswith("version https://git-lfs.github.com/spec/v1\n")
    assert [brief(finding) for finding in report["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert [cell["state"] for cell in report["cells"]] == ["not predicted"]
    assert pointers.run("lock", "--check").status == 0


def test_it_cannot_be_run(pointers: Repository) -> None:
    """The other stages are undecided, and the hint fetches the model."""
    report = pointers.report(status=3)

    out = pointers.run("check", status=3).out

    assert {entry["stage"] for entry in report["undecided"]} == {"runtime", "parity", "export"}
    assert out.count("git lfs pull") == 1
    assert f"undecided\n  export, parity, runtime: {MODEL}\n    see `lfs-pointer` above\n" in out
    assert {entry["hint"] for entry in report["undecided"]} == {f'run `git lfs pull --include "{MODEL}"`'}


def test_a_pointer_to_other_content(pointers: Repository) -> None:
    """A model that was pushed without its lock is undecided, because its content is not a defect of the model."""
    oid = next(line for line in pointers.read(MODEL).splitlines() if line.startswith("oid "))
    pointers.edit(MODEL, oid, f"oid sha256:{'0' * 64}")
    report = pointers.report(status=3)

    assert report["findings"] == []
    assert {entry["stage"] for entry in report["undecided"]} >= {"file", "lock", "support", "runtime"}


def test_after_fetching(pointers: Repository) -> None:
    """The check passes after the command in the hint."""
    git(pointers.folder, "lfs", "pull", "--include", MODEL)
    report = pointers.report()

    assert (report["verdict"], report["findings"], report["undecided"]) == ("pass", [], [])
