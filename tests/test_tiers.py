"""The two test tiers: each test belongs to one of them, and CI runs both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
QUICK, FULL = "not full", "full"


def test_quick_tier_has_one_end_to_end_test() -> None:
    """Only one test of the whole gate is in the quick tier.

    Each test is in exactly one tier, because the tiers are a mark and its negation.
    """
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", QUICK]
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    listed = subprocess.run(
        [*command, "tests/e2e"], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout

    assert re.findall(r"^\S+?::.+$", listed, re.MULTILINE) == ["tests/e2e/test_gate.py::test_gate"]
    assert f"not {FULL}" == QUICK


def test_sessions_run_the_tiers() -> None:
    """`nox -s tests` runs the quick tier and `nox -s full` the full tier."""
    sessions = re.findall(
        r'^def (\w+)\(session(?:(?!^def ).)*?run_tests\(session, "([\w ]+)"\)',
        (ROOT / "noxfile.py").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )

    assert sessions == [("tests", QUICK), ("full", FULL)]


def test_ci_runs_both_tiers() -> None:
    """CI runs the quick tier with the command that README.md shows."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert 'tests="$(readme_command tests)"' in script
    assert 'bash -euo pipefail -c "$tests"' in script
    assert re.search(r"/nox\" .*--sessions full$", script, re.MULTILINE)
