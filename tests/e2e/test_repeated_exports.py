"""A second export is skipped if an earlier check has exported the same bytes with the other seed."""

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
"""What gives other weights with one of the two seeds."""


@pytest.fixture
def exported(command: Repository, toolchain: Path, tmp_path: Path, cold: Variables) -> Repository:
    """The quickstart project with a cache of its own, checked twice."""
    repository = command.at(copy_tree(ROOT / PROJECTS / "quickstart", tmp_path / "project"))
    commit(repository.folder)
    return repository.given(**cold, VIRTUAL_ENV=toolchain.parent.parent)


def check(repository: Repository, status: int = 0) -> str:
    """Return what is printed of one model."""
    return repository.run("check", "--stage", "file,export", "models/classifier.onnx", status=status).out


def test_an_unchanged_export_is_repeated_once(exported: Repository) -> None:
    """The first check exports twice; so does one after a change of code that only another seed shows."""
    printed = [check(exported), check(exported)]
    helper = exported.folder / "export" / "weights.py"
    helper.write_text(helper.read_text(encoding="utf-8") + UNSTABLE, encoding="utf-8")
    changed = check(exported, status=1)

    assert [REUSED in each for each in printed] == [False, True]
    assert "export-unstable" in changed
    assert REUSED not in changed
