"""Failures of a callable that returns inputs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from onnxgate.core.errors import ConfigError, OnnxgateError, StorageError
from onnxgate.core.jobs import Completed, Failure, InputsResult
from onnxgate.gate.execution.input_callables import call_inputs
from onnxgate.stages.export_jobs import ProjectToolchain


def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Failure) -> OnnxgateError:
    """Return the error that is raised if the callable fails."""
    result = Completed(result=InputsResult(cases=(), failure=failure))
    project = cast("Any", SimpleNamespace(folder=tmp_path))
    host = cast("Any", SimpleNamespace(submit=lambda *_: SimpleNamespace(result=lambda: result)))
    monkeypatch.setattr(ProjectToolchain, "of_project", lambda _: SimpleNamespace(spec=None))
    with pytest.raises(OnnxgateError) as caught:
        call_inputs(project, host, "inp.py:cases", tmp_path / "inputs")
    return caught.value


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is a fault of the machine; the error shows the line that wrote to it."""
    failure = Failure(type="OSError", text="[Errno 28] No space left on device", source="inp.py:3")
    error = call(tmp_path, monkeypatch, failure)

    assert isinstance(error, StorageError)
    assert error.message == '`inputs = "inp.py:cases"` failed: a disk is full (`inp.py:3`)'
    assert error.hint == "free up disk space on each disk that the code writes to"


def test_the_same_words_in_an_error_of_the_callable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own error about space is not a full disk."""
    failure = Failure(type="RuntimeError", text="No space left on device in token vocabulary", source="inp.py:3")

    assert isinstance(call(tmp_path, monkeypatch, failure), ConfigError)
