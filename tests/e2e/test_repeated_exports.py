"""A second export is not repeated while the first one, its code and the toolchain are what they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.e2e.conftest import PROJECTS, Variables
from tests.harness.repositories.checkout import commit, copy_tree
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.torch
REUSED = "1 result reused from cache"
UNSTABLE = "\nif torch.initial_seed() == 1:\n    _width = len\n"
"""What leaves the first export as it is, and gives the second one other weights."""


@pytest.fixture
def exported(command: Repository, toolchain: Path, tmp_path: Path, cold: Variables) -> Repository:
    """The quickstart project with a cache of its own, checked twice."""
    repository = command.at(copy_tree(ROOT / PROJECTS / "quickstart", tmp_path / "project"))
    commit(repository.folder)
    return repository.given(**cold, VIRTUAL_ENV=toolchain.parent.parent)


def check(repository: Repository, *options: str, status: int = 0) -> str:
    """Return what is printed of one model."""
    return repository.run("check", "--stage", "file,export", "models/classifier.onnx", *options, status=status).out


def test_an_unchanged_export_is_repeated_once(exported: Repository) -> None:
    """The first check exports twice; so does one after a change of code that only the second export shows."""
    printed = [check(exported), check(exported), check(exported, "--no-cache")]
    helper = exported.folder / "export" / "weights.py"
    helper.write_text(helper.read_text(encoding="utf-8") + UNSTABLE, encoding="utf-8")
    changed = check(exported, status=1)

    assert [REUSED in each for each in printed] == [False, True, False]
    assert "export-unstable" in changed
    assert REUSED not in changed
