"""Fixes of `runtime-crashed` that fit the sizes of the inputs."""

from __future__ import annotations

from typing import Literal

import pytest

from onnxgate.core.findings import Place
from onnxgate.evidence.runtime import Attempt, AttemptCase, Interruption, ModelRuns
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
