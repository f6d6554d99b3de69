"""Fixes of `inputs-unusable` that fit the origin of the inputs."""

from __future__ import annotations

from typing import Literal

import pytest

from onnxgate.core.findings import Place
from onnxgate.core.jobs import Failure
from onnxgate.evidence.runtime import Attempt, AttemptCase, ModelRuns, OutputFaults, Refusal
from onnxgate.rules.runtime.inputs_unusable import INPUTS_FIX, inputs_unusable


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("generated", INPUTS_FIX),
        ("user", "correct the values in `samples/a.npz`, or remove it from the model's `inputs`"),
        ("source", "correct the example inputs of the source"),
    ],
)
def test_inputs_that_are_already_set_are_not_suggested(
    origin: Literal["generated", "user", "source"], expected: str
) -> None:
    """Real inputs are suggested only in place of generated ones."""
    case = AttemptCase(name="samples/a.npz", origin=origin)
    failure = Refusal(failure=Failure(type="Fail", text="indices element out of data bounds"))
    refused = Attempt(optimization="all", outcome="run-refused", case=case, source="failed", refusal=failure)
    blank = Attempt(optimization="all", outcome="completed", case=case, outputs=OutputFaults(blank=("y",)))

    for attempt in (refused, blank):
        runs = ModelRuns(model="m.onnx", place=Place("m.onnx"), runtime="onnxruntime 1.31.1", attempts=(attempt,))
        assert [hit.fix for hit in inputs_unusable.judge(runs)] == [expected]
