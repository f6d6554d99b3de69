"""An error about one model in the static stages leaves all other models judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from onnxgate.core.findings import STATIC_STAGES
from onnxgate.evidence.file import ModelFile
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateRequest, StaticSettings
from onnxgate.gate.results import resolution
from onnxgate.stages import file as file_stage
from onnxgate.stages import lock as lock_stage
from tests.harness.sharded_outcomes import make_project, request_of


@pytest.fixture(name="request_")
def _request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GateRequest:
    """Return a static check of five models."""
    monkeypatch.setattr("onnxgate.core.bug_reports.cache_dir", lambda: tmp_path / "cache")
    project = make_project(tmp_path / "project")
    settings = StaticSettings(folder=lambda: tmp_path / "kept")
    return replace(request_of(project, frozenset(STATIC_STAGES)), static=settings)


@pytest.mark.parametrize("step", ["rules", "the lock", "the state"])
def test_error_about_one_model(
    request_: GateRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, step: str
) -> None:
    """Only this model is undecided, with a bug report; findings about other models stay the same."""
    bad = request_.models[0].path
    expected = pipeline.run(request_)
    module: Any = {"rules": resolution, "the lock": lock_stage, "the state": file_stage}[step]
    name = {"rules": "apply_rules", "the lock": "_compare_model", "the state": "add_known_state"}[step]
    original: Callable[..., Any] = getattr(module, name)

    def fail(*arguments: Any) -> Any:
        if step == "rules":
            is_bad = any(isinstance(it, ModelFile) and it.path == bad for it in arguments[0])
        else:
            is_bad = any(getattr(it, "path", "") == bad for it in arguments)
        if is_bad:
            raise ValueError("a wrong rule")
        return original(*arguments)

    monkeypatch.setattr(module, name, fail)
    outcome = pipeline.run(request_)

    undecided = [it for it in outcome.undecided if it not in expected.undecided]
    assert {bad} == {it.model for it in undecided}
    assert all("this is a bug in onnxgate: ValueError: a wrong rule" in it.reason for it in undecided)
    assert list((tmp_path / "cache" / "bugs").iterdir())
    before, after = (
        [it for it in found.findings if it.model not in ("", bad) and it.stage != "gate"]
        for found in (expected, outcome)
    )
    assert before == after
