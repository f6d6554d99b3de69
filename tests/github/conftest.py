"""What the tests of the surface share: a clone of this checkout, and the engines that use it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.github.checkout import ROOT, clone_of_this
from tests.github.engine import Engine


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with this checkout's files as its one commit."""
    return clone_of_this(tmp_path_factory.mktemp("onnxgate"))


@pytest.fixture
def engine(tmp_path: Path, installed: Path) -> Engine:
    """The small engine on an empty workspace, with the wheel installed already."""
    python = str(installed.with_name("python"))
    for name in ("workspace", "runner"):
        (tmp_path / name).mkdir()
    return Engine(
        action=ROOT,
        workspace=tmp_path / "workspace",
        scratch=tmp_path / "runner",
        environment={"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        stubs={"install": lambda _: {"python": python}},
    )
