"""Kernel queries to builds that return no kernel registry."""

from __future__ import annotations

import pytest

from onnxgate.gate.static_cache import HarvestError, harvest_build
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support.operators import TableSource

SOURCE = TableSource(release="1.0", wheel="", sha256="0" * 64)


def test_a_build_that_fails_is_not_harvested(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """The error message describes how the worker failed."""
    with pytest.raises(HarvestError, match=r"^the build crashed during the kernel query: an invalid response$"):
        harvest_build(fake_host, fake, SOURCE)


def test_missing_build_has_no_message(fake_host: WorkerPool) -> None:
    """The error message is empty, because the runtime stage reports the missing engine."""
    with pytest.raises(HarvestError, match=r"^$"):
        harvest_build(fake_host, WorkerSpec("nothing 1.0", engine="absent"), SOURCE)
