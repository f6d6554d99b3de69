"""Checks that share a cache: two that start at the same time, and one after another was killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest

from tests.harness.marked_processes import MARK, marked, until
from tests.harness.repositories.user_repository import Repository, wait

pytestmark = pytest.mark.index
PACKAGES = "lib/python*/site-packages"


@pytest.fixture
def cold_cache(tmp_path: Path) -> Path:
    """Return an empty cache."""
    return tmp_path / "cold cache"


def ready(cache: Path) -> list[str]:
    """Return the successful build attempt of each complete environment."""
    return sorted(json.loads(path.read_bytes())["attempt"] for path in cache.glob("environments/*/ready.json"))


def attempts(cache: Path) -> list[str]:
    """Return all build attempts that left files."""
    return sorted(path.name for path in cache.glob("environments/*/attempts/*"))


def test_two_at_once(small: Repository, cold_cache: Path) -> None:
    """Both checks pass, and each environment is built only once."""
    gate = small.with_environment(ONNXGATE_CACHE_DIR=cold_cache)
    both = [gate.start("check", "--output", "json") for _ in range(2)]
    ended = [wait(process) for process in both]

    assert [each.status for each in ended] == [0, 0], ended
    assert [json.loads(each.out)["counts"]["ran"] for each in ended] == [2, 2]
    assert len(ready(cold_cache)) == 2
    assert attempts(cold_cache) == ready(cold_cache)


@pytest.mark.parametrize(
    ("sign", "with_children"),
    [
        ("bin/python", True),
        (f"{PACKAGES}/numpy", False),
        (f"{PACKAGES}/numpy", True),
        (f"{PACKAGES}/onnxruntime-*.dist-info/RECORD", False),
    ],
    ids=["made", "installing", "installing, with its children", "installed"],
)
def test_killed_while_building(small: Repository, cold_cache: Path, mark: str, sign: str, with_children: bool) -> None:
    """An environment left half-built by a killed check, or completed later by its children, is rebuilt."""
    gate = small.with_environment(ONNXGATE_CACHE_DIR=cold_cache)
    process = gate.with_environment(**{MARK: mark}).start("check")
    until(lambda: any(cold_cache.glob(f"environments/*/attempts/*/{sign}")), running=process)
    if with_children:
        for pid in marked(mark):
            with contextlib.suppress(ProcessLookupError):  # the process has already ended
                os.kill(pid, signal.SIGKILL)
    process.kill()
    killed = wait(process)
    left = attempts(cold_cache)
    trusted = ready(cold_cache)

    report = gate.report("--no-cache")
    until(lambda: marked(mark) == [])

    assert (killed.status, killed.out) == (-signal.SIGKILL, "")
    assert left
    assert trusted == []
    assert (report["verdict"], report["counts"]["ran"]) == ("pass", 2)
    assert set(left).isdisjoint(ready(cold_cache))
    assert gate.report("--no-cache") == report


def test_half_an_environment_is_not_trusted(small: Repository, cold_cache: Path) -> None:
    """An environment without its interpreter is rebuilt."""
    gate = small.with_environment(ONNXGATE_CACHE_DIR=cold_cache)
    first = gate.report("--no-cache")
    for interpreter in cold_cache.glob("environments/*/attempts/*/bin/python"):
        interpreter.unlink()

    assert gate.report("--no-cache") == first
