"""A short random walk; `python -m campaigns.cache` runs longer ones."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from campaigns.cache.cold_comparison import differences
from campaigns.cache.random_walk import started
from tests.conftest import ROOT
from tests.harness.repositories.checkout import NOBODY
from tests.harness.repositories.user_repository import Repository, usual_environment

SEED, STEPS = 11, 5


def test_warm_and_cold(installed: Path, tmp_path: Path) -> None:
    """Cached results do not change reports."""
    command = Repository(installed, Path(), {**usual_environment(), **NOBODY})
    counts: Counter[str] = Counter()

    assert list(differences(started(command, ROOT, tmp_path, SEED), STEPS, tmp_path, counts)) == []
    assert counts["exit 1"] > STEPS // 2
    assert counts["damaged"] > 0
