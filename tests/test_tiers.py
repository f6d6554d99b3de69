"""The two tiers of tests: each test is in one of them, and CI runs both."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
QUICK, FULL = "not full", "full"


def collected(expression: str) -> tuple[set[str], int]:
    """The tests that marks select, and the number of all tests."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", expression]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    [number] = re.findall(r"^\d+/(\d+) tests collected", listed, re.MULTILINE)
    return set(re.findall(r"^\S+?::.+$", listed, re.MULTILINE)), int(number)


@pytest.mark.full
def test_each_test_is_in_one_tier() -> None:
    """No test is left out and none runs twice; of the tests of the whole gate, one is quick."""
    quick, total = collected(QUICK)
    full, _ = collected(FULL)

    assert quick & full == set()
    assert len(quick) + len(full) == total
    assert {test for test in quick if test.startswith("tests/e2e/")} == {"tests/e2e/test_gate.py::test_gate"}


def test_sessions_run_the_tiers() -> None:
    """`nox -s tests` is the quick tier and `nox -s full` the other one."""
    sessions = re.findall(
        r'^def (\w+)\(session(?:(?!^def ).)*?\*PYTEST, "-m", "([\w ]+)"',
        (ROOT / "noxfile.py").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )

    assert sessions == [("tests", QUICK), ("full", FULL)]


def test_ci_runs_both_tiers() -> None:
    """The quick one with the command that README.md shows."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert 'tests="$(readme_command tests)"' in script
    assert 'bash -euo pipefail -c "$tests"' in script
    assert re.search(r"/nox\" .*--sessions full$", script, re.MULTILINE)
