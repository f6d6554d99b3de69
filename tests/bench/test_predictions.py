"""The script that measures predictions runs without errors; type checkers do not cover it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.full
def test_models_are_predicted_on_all_releases() -> None:
    """Each model has one prediction for each release."""
    command = [sys.executable, "bench/predictions.py", "3"]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout

    assert "3 models on 16 releases" in printed
    assert "(48 (" in printed
