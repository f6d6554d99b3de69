"""A few damaged caches; `python -m campaigns.cache --damages 1200 --against 300 --full 500` damages more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from campaigns.cache.damaged_caches import damage
from onnxgate.core.cache_entries import verify_checksum
from onnxgate.gate.execution.stable_exports import StableExport
from onnxgate.gate.outcome_cache import read_entry, write_entry
from tests.conftest import ROOT


def campaign(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the campaign in a process without threads, which it forks."""
    command = [sys.executable, "-m", "campaigns.cache", *arguments]
    variables = {**os.environ, "TMPDIR": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


def test_static_checks(tmp_path: Path) -> None:
    """A damaged cache does not change the report or the exit status of a static check."""
    ended = campaign(tmp_path, "--damages", "20", "--against", "10", "--seed", "31")

    assert ended.stdout.startswith("30 damaged caches, 0 differences; "), ended
    assert ended.returncode == 0


@pytest.mark.index
def test_checks_with_runtimes(tmp_path: Path) -> None:
    """A damaged cache does not change the report or the exit status of a full check."""
    ended = campaign(tmp_path, "--full", "10", "--seed", "32")

    assert ended.stdout.startswith("10 damaged caches, 0 differences; "), ended
    assert ended.returncode == 0


def test_entries_are_damaged(tmp_path: Path) -> None:
    """The damages of entries reach the decoder: some have a valid checksum, and none is used."""
    random, key = Random(5), "1" * 64
    seen: Counter[str] = Counter()
    for _ in range(200):
        write_entry(tmp_path / key, StableExport(key, 0, {"m.onnx": "2" * 64}))
        file = tmp_path / key / "outcome.msgpack"
        before = file.read_bytes()
        done = damage([file], random).split()[0]
        if file.is_file() and not file.is_symlink() and 0 < file.stat().st_size < 2**20 and os.access(file, os.R_OK):
            content = file.read_bytes()
            seen[done] += content != before and verify_checksum(key, content) is not None
            assert (read_entry(tmp_path / key, StableExport) is not None) == (content == before)
        shutil.rmtree(tmp_path / key, ignore_errors=True)

    assert {name for name, count in seen.items() if count} == {"drop_field", "add_field", "change_type"}
