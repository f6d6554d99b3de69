"""Reasons for missing outputs of a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.findings import Stage
from onnxgate.core.jobs import Completed, Crashed, ExportResult, Failure, Observation, TimedOut
from onnxgate.gate.execution.toolchain import explain_missing_reference

FAILURE = Failure(type="SourceError", text="there is no module `net`")


@pytest.mark.parametrize(
    "observation",
    [
        Completed(result=ExportResult(model=None, failure=FAILURE)),
        Crashed(signal="SIGSEGV", during="export", log=""),
        TimedOut(limit_s=60.0, during="export", log=""),
    ],
)
def test_a_failed_export_is_explained_once(observation: Observation) -> None:
    """The export stage reports the cause; parity repeats it only if that stage was not selected."""
    alone = explain_missing_reference("m.onnx", observation, {Stage.PARITY}, Path()).reason
    both = explain_missing_reference("m.onnx", observation, {Stage.PARITY, Stage.EXPORT}, Path()).reason

    assert alone.startswith("the source could not be run: ")
    assert both == "the source has no outputs because its export failed"


def test_other_reasons_are_always_stated() -> None:
    """An export that succeeds reports nothing, so parity states why outputs are missing."""
    observation = Completed(result=ExportResult(model="m.onnx", eager_reason="the source has 2 inputs"))
    incomplete = explain_missing_reference("m.onnx", observation, {Stage.PARITY, Stage.EXPORT}, Path())

    assert incomplete.reason == "the source could not be run: the source has 2 inputs"
