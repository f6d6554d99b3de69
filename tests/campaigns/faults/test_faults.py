"""Each fault is injected while the installed command runs: no wrong pass, no damage, no leftovers, one message.

These tests cover a few moments and sizes of the cheap faults; `python -m campaigns.faults --all` covers all.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from campaigns.faults.all_faults import FAULTS
from campaigns.faults.docs_table import TAIL
from campaigns.faults.invariants import find_violations
from campaigns.faults.project_under_test import Ground
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "contributing" / "faults.md"
TRUTHS: dict[str, dict[str, Any]] = {}  # results of the same project without faults, computed once
QUICK = [
    pytest.param(name, marks=[pytest.mark.index] if each.runs else [], id=name)
    for name, each in FAULTS.items()
    if each.quick
]


@pytest.fixture(scope="module")
def template(installed: Path, shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create the project that all tests copy."""
    return Ground(installed, shared_folder / "a cache", tmp_path_factory.mktemp("template")).laid().project


@pytest.fixture
def ground(template: Path, installed: Path, shared_folder: Path, tmp_path: Path) -> Ground:
    """Return a separate project with the environments that all tests share."""
    if not Path("/proc/self").is_dir():
        pytest.skip("needs /proc")
    return Ground(installed, shared_folder / "a cache", tmp_path, truths=TRUTHS, template=template)


@pytest.mark.parametrize("name", QUICK)
def test_fault_is_borne(ground: Ground, name: str) -> None:
    """No run with the fault violates an invariant."""
    seen = list(FAULTS[name].make(ground.laid()))

    assert seen
    assert [wrong for each in seen for wrong in find_violations(each)] == []


def test_the_page_names_every_fault() -> None:
    """The page has a row for each fault and no other rows; the measured values in the rows may vary."""
    named = re.findall(r"<!-- ([a-z-]+) -->", PAGE.read_text(encoding="utf-8"))

    assert PAGE.read_text(encoding="utf-8").endswith(f"\n{TAIL}")
    assert list(FAULTS) == named, "run `python -m campaigns.faults --write docs/contributing/faults.md`"
