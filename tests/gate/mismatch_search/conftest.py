"""Locked releases of the real index for the mismatch search tests."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits
from tests.gate.mismatch_search.search_bench import Bench
from tests.runtimes.conftest import _lock

NUMPY = {"1.18.1": "1.26.4", "1.23.2": "2.3.1", "1.31.1": "2.3.1", "1.28.0": "2.3.1"}


lock = functools.cache(_lock)


@pytest.fixture(scope="module")
def bench(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Bench]]:
    """Return a function that creates a bench of these releases, whose started workers the module shares."""
    with WorkerPool(Environments(shared_folder / "a cache", offline=False), 2, JobLimits(time_s=120)) as host:

        def create(*releases: str) -> Bench:
            locked = [lock(release, numpy=NUMPY[release]) for release in releases]
            return Bench.of(host, tmp_path_factory.mktemp("bench"), locked)

        yield create
