"""An error about one model in the static stages leaves all other models judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onnxgate import rules
from onnxgate.core.findings import STATIC_STAGES, Hit, Stage
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateRequest, StaticSettings
from onnxgate.stages import file as file_stage
from onnxgate.stages import lock as lock_stage
from tests.harness.models import write
from tests.harness.sharded_outcomes import make_project, request_of

INVALID = "g (float[N] x) => (float[N] y, float[N] z) { y = Relu(missing)  z = NoSuchOperator(x) }"


@pytest.fixture(name="request_")
def _request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateRequest:
    """Return a static check of five models."""
    monkeypatch.setattr("onnxgate.core.bug_reports.cache_dir", lambda: tmp_path / "cache")
    project = make_project(tmp_path / "project")
    settings = StaticSettings(folder=lambda: tmp_path / "kept")
    return replace(request_of(project, frozenset(STATIC_STAGES)), static=settings)


@pytest.mark.parametrize("step", ["the lock", "the state"])
def test_error_about_one_model(
    request_: GateRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    """Only this model is undecided, with a bug report; findings about other models stay the same."""
    bad = request_.models[0].path
    expected = pipeline.run(request_)
    module: Any = {"the lock": lock_stage, "the state": file_stage}[step]
    name = {"the lock": "_compare_model", "the state": "add_known_state"}[step]
    original: Callable[..., Any] = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if any(getattr(it, "path", "") == bad for it in arguments):
            raise ValueError("a wrong step")
        return original(*arguments)

    monkeypatch.setattr(module, name, fail)
    outcome = pipeline.run(request_)

    undecided = [it for it in outcome.undecided if it not in expected.undecided]
    assert {bad} == {it.model for it in undecided}
    assert all("this is a bug in onnxgate: ValueError: a wrong step" in it.reason for it in undecided)
    assert list((tmp_path / "cache" / "bugs").iterdir())
    before, after = (
        [it for it in found.findings if it.model not in ("", bad) and it.stage != "gate"]
        for found in (expected, outcome)
    )
    assert before == after


@pytest.mark.parametrize(("rule", "stage"), [("path-leaked", Stage.FILE), ("opset-too-new", Stage.SUPPORT)])
def test_error_in_one_rule(request_: GateRequest, monkeypatch: pytest.MonkeyPatch, rule: str, stage: Stage) -> None:
    """The findings of all other rules stay the same, also about the same model."""
    bad = request_.models[0]
    write(bad.absolute, INVALID)
    request_ = replace(request_, static=StaticSettings())
    expected = pipeline.run(request_)
    assert {"invalid-model", "unknown-operator"} <= {it.rule for it in expected.findings if it.model == bad.path}

    def judge(subject: Any) -> Iterator[Hit]:
        if bad.path in repr(subject):
            raise ValueError("a wrong rule")
        return iter(())

    judge.__module__ = rules.by_id[rule].judge.__module__
    broken = replace(rules.by_id[rule], judge=judge)
    monkeypatch.setattr(rules, "ALL", tuple(broken if it.id == rule else it for it in rules.ALL))
    outcome = pipeline.run(request_)

    before, after = ([it for it in found.findings if it.stage != "gate"] for found in (expected, outcome))
    assert before == after
    undecided = [it for it in outcome.undecided if it not in expected.undecided]
    assert {(bad.path, stage)} == {(it.model, it.stage) for it in undecided}
    assert all("this is a bug in onnxgate: ValueError: a wrong rule" in it.reason for it in undecided)
