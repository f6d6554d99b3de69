"""A model with external data, both in Git LFS, with either of the two files fetched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.models import make_external, parse, write
from tests.harness.repositories.checkout import git
from tests.harness.repositories.lfs import clone_of_pointers
from tests.harness.repositories.user_repository import Repository, brief

pytestmark = pytest.mark.index
SCALE = "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Mul(x, w) }"
MODEL, DATA = "models/small.onnx", "models/small.bin"


@pytest.fixture
def pointers(small: Repository, tmp_path: Path) -> Repository:
    """Return a clone in which both files are pointers."""
    model = parse(SCALE)
    (small.folder / DATA).write_bytes(make_external(model, "small.bin"))
    write(small.folder / MODEL, model)
    small.run("lock", "--offline")
    assert small.report()["verdict"] == "pass"
    return clone_of_pointers(small, tmp_path, "*.onnx", "*.bin")


def test_both_are_pointers(pointers: Repository) -> None:
    """Static stages pass; the other stages need both files."""

    assert [brief(finding) for finding in pointers.report("--static")["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert pointers.report(status=3)["counts"]["undecided"] == 2


def test_only_the_model_is_fetched(pointers: Repository) -> None:
    """If only the data are not fetched, the model has a note and is undecided, with a hint that fetches the data."""
    git(pointers.folder, "lfs", "pull", "--include", MODEL)
    report = pointers.report(status=3)

    assert [brief(finding) for finding in report["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert {entry["hint"] for entry in report["undecided"]} == {f'run `git lfs pull --include "{DATA}"`'}
    assert report["counts"]["ran"] == 0


def test_only_the_data_is_fetched(pointers: Repository) -> None:
    """If only the model is not fetched, the model has a note and is undecided, with a hint that fetches it."""
    git(pointers.folder, "lfs", "pull", "--include", DATA)
    report = pointers.report(status=3)

    assert [brief(finding) for finding in report["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert {entry["hint"] for entry in report["undecided"]} == {f'run `git lfs pull --include "{MODEL}"`'}


@pytest.mark.parametrize("fetched", [True, False])
def test_data_of_another_model(pointers: Repository, fetched: bool) -> None:
    """A pointer to data that do not match the lock is undecided; next to a pointer to the model, it is a change."""
    if fetched:
        git(pointers.folder, "lfs", "pull", "--include", MODEL)
    oid = next(line for line in pointers.read(DATA).splitlines() if line.startswith("oid "))
    pointers.edit(DATA, oid, f"oid sha256:{'0' * 64}")
    report = pointers.report(status=3 if fetched else 1)
    errors = [brief(finding)[1:] for finding in report["findings"] if finding["level"] == "error"]

    assert errors == ([] if fetched else [("model-changed", MODEL)])
    assert ("file" in {entry["stage"] for entry in report["undecided"]}) == fetched


def test_both_are_fetched(pointers: Repository) -> None:
    """The check passes if both files are fetched."""
    git(pointers.folder, "lfs", "pull")
    report = pointers.report()

    assert (report["verdict"], report["findings"], report["counts"]["ran"]) == ("pass", [], 2)
