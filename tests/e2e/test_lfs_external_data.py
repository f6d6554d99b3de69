"""A model with its weights in a second file, both in Git LFS: each may be there without the other."""

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
    """A clone in which both are pointers."""
    model = parse(SCALE)
    (small.folder / DATA).write_bytes(make_external(model, "small.bin"))
    write(small.folder / MODEL, model)
    small.run("lock", "--offline")
    assert small.report()["verdict"] == "pass"
    return clone_of_pointers(small, tmp_path, "*.onnx", "*.bin")


def test_both_are_pointers(pointers: Repository) -> None:
    """The static stages pass; the others need both files."""

    assert [brief(each) for each in pointers.report("--static")["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert pointers.report(status=3)["counts"]["undecided"] == 2


def test_only_the_model_is_fetched(pointers: Repository) -> None:
    """Its data is known to be the locked one, and not here: a note, undecided, and the way to fetch it."""
    git(pointers.folder, "lfs", "pull", "--include", MODEL)
    report = pointers.report(status=3)

    assert [brief(each) for each in report["findings"]] == [("note", "external-data-corrupt", MODEL)]
    assert {each["hint"] for each in report["undecided"]} == {f'git lfs pull --include "{DATA}"'}
    assert report["counts"]["ran"] == 0


def test_only_the_data_is_fetched(pointers: Repository) -> None:
    """The same the other way round."""
    git(pointers.folder, "lfs", "pull", "--include", DATA)
    report = pointers.report(status=3)

    assert [brief(each) for each in report["findings"]] == [("note", "lfs-pointer", MODEL)]
    assert {each["hint"] for each in report["undecided"]} == {f'git lfs pull --include "{MODEL}"'}


@pytest.mark.parametrize("fetched", [True, False])
def test_data_of_another_model(pointers: Repository, fetched: bool) -> None:
    """A pointer to other data than the locked is an error, whether the model is here or not."""
    if fetched:
        git(pointers.folder, "lfs", "pull", "--include", MODEL)
    oid = next(line for line in pointers.read(DATA).splitlines() if line.startswith("oid "))
    pointers.edit(DATA, oid, f"oid sha256:{'0' * 64}")
    findings = pointers.report(status=1)["findings"]

    assert [brief(each)[1:] for each in findings if each["level"] == "error"] == [
        ("external-data-corrupt" if fetched else "model-changed", MODEL)
    ]


def test_both_are_fetched(pointers: Repository) -> None:
    """Then it passes, as it did where it came from."""
    git(pointers.folder, "lfs", "pull")
    report = pointers.report()

    assert (report["verdict"], report["findings"], report["counts"]["ran"]) == ("pass", [], 2)
