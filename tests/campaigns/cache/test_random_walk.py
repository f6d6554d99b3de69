"""A short random walk; `python -m campaigns.cache` runs longer ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from campaigns.cache.cold_comparison import differences
from campaigns.cache.random_walk import started
from tests.conftest import ROOT
from tests.harness.repositories.checkout import NOBODY
from tests.harness.repositories.user_repository import Repository, usual_environment

STEPS = 6


@pytest.mark.parametrize("seed", [11, 12])
def test_warm_and_cold(installed: Path, tmp_path: Path, seed: int) -> None:
    """Cached results do not change reports."""
    command = Repository(installed, Path(), {**usual_environment(), **NOBODY})
    counts: Counter[str] = Counter()

    assert list(differences(started(command, ROOT, tmp_path, seed), STEPS, tmp_path, counts)) == []
    assert counts["exit 1"] > STEPS // 2
    assert counts["damaged"] > 0
