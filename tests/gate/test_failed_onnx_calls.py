"""A model on which a function of onnx crashes is read without it, and runs decide what it did not check."""

from __future__ import annotations

import sys
from pathlib import Path

import onnx
import onnx.parser
import pytest
from msgspec.structs import replace

from onnxgate.core.findings import STATIC_STAGES, IncompleteCheck, Stage
from onnxgate.gate import pipeline
from onnxgate.gate.request import ExecutionResult, GateRequest, StaticSettings, SupportStageResult
from tests.harness.sharded_outcomes import make_project, request_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="crashes are described as on Linux")

OPAQUE = """<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (float[4, 4] x) => (float[4, 4] y) { h = com.microsoft.Gelu (x) y = EyeLike <dtype = 1> (h) }"""
REASON = "onnx's shape inference crashed (SIGSEGV)"


@pytest.fixture
def request_(tmp_path: Path) -> GateRequest:
    """Return a static check of five models, one of which crashes onnx, with a cache folder."""
    request = request_of(make_project(tmp_path / "project"), frozenset(STATIC_STAGES))
    onnx.save(onnx.parser.parse_model(OPAQUE), request.models[2].absolute)
    return replace(request, static=StaticSettings(folder=lambda: tmp_path / "kept"))


@pytest.mark.parametrize("jobs", [0, 2])
def test_only_the_failed_check_is_undecided(request_: GateRequest, jobs: int) -> None:
    """The model has facts and may be run; nothing about it is cached."""
    victim = request_.models[2].path
    reused: list[int] = []
    settings = replace(request_.static, jobs=jobs, report_reuse=lambda count, _: reused.append(count))

    outcomes = [pipeline.run(replace(request_, static=settings)) for _ in range(2)]

    for outcome in outcomes:
        undone = {(it.model, it.stage, it.reason) for it in outcome.gathered.undone}
        assert undone == {(victim, Stage.FILE, REASON), (victim, Stage.SUPPORT, REASON)}
        assert victim in outcome.gathered.facts
        assert victim not in {*outcome.gathered.file.missing, *outcome.blocked}
    assert reused == [0, len(request_.models) - 1]


@pytest.mark.parametrize("failing", ["", "the model", "a runtime"])
def test_runs_on_all_runtimes_decide(request_: GateRequest, failing: str) -> None:
    """One runtime that was not seen running the model leaves the check undecided."""
    crashed, other = (
        IncompleteCheck(Stage.SUPPORT, request_.models[2].path, "", reason, decided_by_runs=reason == REASON)
        for reason in (REASON, "a rule failed")
    )
    outcome = pipeline.run(request_)
    (planned,) = (model for model in outcome.planned if model.path == crashed.model)
    seen = {(planned.path, runtime.name) for runtime in planned.runtimes[failing == "a runtime" :]}
    execution = ExecutionResult(completed=frozenset(seen if failing != "the model" else ()))
    support = SupportStageResult(undone=(crashed, other))

    results = replace(outcome.gathered, support=support, execution=execution)
    support = pipeline._skip_decided_checks(results, outcome.planned).support

    assert (support.undone, support.skipped) == (((crashed, other), ()) if failing else ((other,), (crashed,)))
