"""Conformance of engines other than ONNX Runtime: what fails the campaign, and how their loads are recorded."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from campaigns.conformance import __main__ as campaign
from campaigns.conformance import engine_loads
from campaigns.conformance.comparison import Comparison, Disagreement, Kind
from onnxgate.core.jobs import Completed, Crashed, Failure, LoadResult, Observation, Refused, TimedOut, Unavailable
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.runtimes.worker_spec import WorkerSpec

SPEC = WorkerSpec.of_runtime(LockedRuntime(engine="onnxruntime-web", release="1.30.0"), ())


def comparison(right: int, *kinds: Kind) -> Comparison:
    """Return the comparison of a release with as many agreements and these disagreements."""
    different = [Disagreement("backend", "all", "1.30.0", str(it), kind, "", "") for it, kind in enumerate(kinds)]
    return Comparison("backend", "all", "1.30.0", "onnxruntime-web", Counter(loads=right), {}, different)


@pytest.mark.parametrize(
    ("compared", "status"),
    [
        (comparison(100), 0),
        (comparison(99, "loads but refused"), 0),
        (comparison(98, "loads but refused", "loads but refused"), 1),
        (comparison(999, "refused but loads"), 1),
        (comparison(90, *["unknown"] * 10), 0),
    ],
    ids=["right", "1 % missed", "2 % missed", "a false alarm", "unknown"],
)
def test_false_alarms_and_many_misses_fail(
    compared: Comparison, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A wrongly predicted refusal is never accepted; at most 1 % of the models may be missed."""
    monkeypatch.setenv("ONNXGATE_CONFORMANCE_CACHE", str(tmp_path))
    monkeypatch.setattr(campaign, "compared_on", lambda *arguments: [compared])
    monkeypatch.setattr(sys, "argv", ["conformance", "--engine", "onnxruntime-web", "--releases", "1.30.0"])

    assert campaign.main() == status


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (Completed(result=LoadResult(providers=())), ""),
        (Refused(failure=Failure(type="Error", text="no kernel")), "no kernel"),
        (Refused(failure=Failure(type="Error", text="")), "Error"),
        (Crashed(signal="SIGFPE", during="load", log=""), "crashed: SIGFPE during load"),
        (TimedOut(limit_s=60.0, during="load", log=""), "timed out after 60 s"),
    ],
)
def test_loads_are_recorded_as_texts(observation: Observation, text: str) -> None:
    """A model that loads has no text; a crash or a timeout does not count as a refusal."""
    assert text == engine_loads._describe(SPEC, observation)


def test_a_release_that_cannot_be_installed_ends_the_campaign() -> None:
    """A missing release must not look like one that refuses every model."""
    with pytest.raises(SystemExit, match=r"onnxruntime-web 1\.30\.0: .*no network"):
        engine_loads._describe(SPEC, Unavailable(reason="no network"))
