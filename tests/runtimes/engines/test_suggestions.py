"""Suggested fixes on real releases: refusals happen as predicted, and each fixed model loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from onnx import ModelProto

from onnxgate.core.jobs import Completed, Load, Refused
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from tests.support.suggestions.test_search import CASES, Case, changed, predictions, refusals

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]
RELEASES = {"1.16.3", "1.18.1", "1.31.1"}

pytestmark = pytest.mark.index


@pytest.fixture
def loads(host: WorkerPool, locked: Callable[[str], Locked], tmp_path: Path) -> Callable[[ModelProto, str], bool]:
    """Return a function that reports whether a model loads on a release."""

    def loads(model: ModelProto, release: str) -> bool:
        path = tmp_path / "m.onnx"
        path.write_bytes(model.SerializeToString())
        ended = host.submit(WorkerSpec.of_runtime(*locked(release)), Load(model=str(path))).result()
        assert isinstance(ended, Completed | Refused), ended
        return isinstance(ended, Completed)

    return loads


@pytest.mark.parametrize("case", [case for case in CASES if set(case.names) <= RELEASES], ids=lambda case: case.name)
def test_every_way_really_leads_out(case: Case, loads: Callable[[ModelProto, str], bool]) -> None:
    """Loads and refusals match the predictions before and after each fix."""
    predicted = {name: said.verdict == "loads" for name, said in predictions(case.model, case.names).items()}
    (refused,) = refusals(case.model, case.names)

    assert {name: loads(case.model, name) for name in case.names} == predicted
    for way in refused.ways:
        fixed = changed(case.model, refused, way, case.names)
        assert {name: loads(fixed, name) for name in case.names} == dict.fromkeys(case.names, True), way
