"""Fixtures for the GitHub tests: a clone of this checkout, and the engines that use it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from tests.harness.github.actions_engine import Engine
from tests.harness.repositories.checkout import ROOT, commit, copy_tree


@pytest.fixture(scope="session")
def clone(shared_folder: Path) -> Path:
    """Return a repository with this checkout's files as its only commit; tests do not modify it.

    Files that only tests read are left out: `act` and the hook runners copy the whole repository many times.
    """
    with FileLock(shared_folder / "clone.lock"):
        if not (shared_folder / "clone" / ".git").exists():
            for_tests = ("bench", "campaigns", "tests", "fixtures/reports", "fixtures/rules", "fixtures/texts")
            commit(copy_tree(ROOT, shared_folder / "clone", without=for_tests))
    return shared_folder / "clone"


@pytest.fixture(scope="session")
def cache(shared_folder: Path) -> Path:
    """Return the cache of locked environments that all tests share, except those that need a cold cache."""
    return shared_folder / "a cache"


@pytest.fixture
def engine(tmp_path: Path, installed: Path) -> Engine:
    """Return the small engine with an empty workspace and the wheel already installed."""
    python = str(installed.with_name("python"))
    for name in ("workspace", "runner"):
        (tmp_path / name).mkdir()
    return Engine(
        action=ROOT,
        workspace=tmp_path / "workspace",
        scratch=tmp_path / "runner",
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        stubs={
            "setup": lambda _: {},
            "packages": lambda _: {"cache-hit": "true"},
            "install": lambda _: {"python": python},
            "restore": lambda _: {"cache-hit": ""},
        },
    )


@pytest.fixture(scope="session")
def quick(clone: Path, installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the action with the wheel already installed, and two projects; `act` copies all files for each step."""
    folder = tmp_path_factory.mktemp("quick") / "action"
    for name in ("comment", "pull-request", "fixtures/projects/broken", "fixtures/projects/quickstart"):
        shutil.copytree(clone / name, folder / name, symlinks=True)
    shutil.copy(clone / "action.yml", folder)
    for path in (folder / name / "action.yml" for name in ("", "comment", "pull-request")):
        python = installed.with_name("python")
        text, count = re.subn(
            r" {4}- name: Find Python .*?( {4}- name: Install onnxgate\n.*?run: \|\n).*?\n(?=\n {4}- name)",
            rf'\1        echo "python={python}" >> "$GITHUB_OUTPUT"\n',
            path.read_text(encoding="utf-8"),
            flags=re.DOTALL,
        )
        assert count == 1
        save = r" {4}- name: Save the packages of onnxgate\n.*?\n(?=\n {4}- name)"
        text = re.sub(save, "", text, flags=re.DOTALL)
        path.write_text(text, encoding="utf-8")
    commit(folder)
    return folder
