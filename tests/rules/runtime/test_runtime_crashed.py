"""Fixes of `runtime-crashed` that fit the sizes of the inputs, and crashes that were predicted."""

from __future__ import annotations

from typing import Literal

import pytest

from onnxgate import rules
from onnxgate.core.findings import HitReference, Place
from onnxgate.evidence.runtime import Attempt, AttemptCase, Interruption, ModelRuns
from onnxgate.evidence.support import NodeGroup, RefusedOperation
from onnxgate.gate.results import resolution
from onnxgate.rules.runtime.runtime_crashed import FIX, GUESSED_FIX, runtime_crashed


@pytest.mark.parametrize(
    ("guessed", "source", "expected"),
    [(("x[2]",), "none", GUESSED_FIX), (("x[2]",), "finite", FIX), ((), "none", FIX)],
)
def test_sizes_are_suggested_only_if_they_were_guessed(
    guessed: tuple[str, ...], source: Literal["none", "finite"], expected: str
) -> None:
    """A crash at a size that the model never receives needs no other target."""
    case = AttemptCase(name="sizes x[2]=16", origin="generated", sizes={"x[2]": 16}, guessed=guessed)
    end = Interruption(signal="SIGFPE", during="case sizes x[2]=16")
    attempt = Attempt(optimization="all", outcome="crashed", case=case, source=source, end=end)
    runs = ModelRuns(model="m.onnx", place=Place("m.onnx"), runtime="onnxruntime 1.18.1", attempts=(attempt,))

    assert [hit.fix for hit in runtime_crashed.judge(runs)] == [expected]


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        (("divides by 0",), [("attribute-unsupported", True)]),
        ((), [("attribute-unsupported", False), ("runtime-crashed", False)]),
    ],
)
def test_a_predicted_crash_is_one_finding(predicted: tuple[str, ...], expected: list[tuple[str, bool]]) -> None:
    """The prediction names the node; other predictions do not explain the crash."""
    place, runtime = Place("m.onnx"), "onnxruntime 1.18.1"
    crashed = Attempt(optimization="all", outcome="crashed", end=Interruption(signal="SIGFPE", during="load"))
    crashes = tuple(HitReference("attribute-unsupported", topic) for topic in predicted)
    runs = ModelRuns(model="m.onnx", place=place, runtime=runtime, attempts=(crashed,), predicted_crashes=crashes)
    nodes = NodeGroup("", "the node that makes `y`")
    refused = RefusedOperation("attribute-unsupported", "m.onnx", place, (runtime,), "divides by 0", "", "Div", nodes)
    hits = resolution.resolve_hits(list(resolution.apply_rules([refused, runs], rules.ALL, {})))

    assert [(it.rule, it.confirmed) for it in resolution.merge_runtimes(hits, [runtime])] == expected
