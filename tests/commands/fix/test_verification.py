"""Outputs of a repaired model compared with those of the original."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgate.commands.fix.verification import RunComparison
from onnxgate.core.findings import Place
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    Observation,
    Refused,
    Run,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.model.numeric_traits import NumericTraits
from onnxgate.stages.parity.output_comparison import ParityModel
from onnxgate.stages.runtime import ObservedRun

OLD, NEW = "onnxruntime 1.18.1", "onnxruntime 1.31.1"
REFUSED = Refused(failure=Failure(type="Fail", text="no\nmore"))
ONE = np.array([1.0, -2.0], np.float32)
Gives = Callable[..., ObservedRun]


@pytest.fixture
def gives(tmp_path: Path) -> Gives:
    """Return a function that creates a run with the given outputs or the given observation."""
    numbers = itertools.count()

    def ran(runtime: str, given: Mapping[str, Any] | Observation, level: str = "all") -> ObservedRun:
        job = Run(model="m", cases=(InputCase(name="a", origin="generated", inputs={}),), output="", optimization=level)  # type: ignore[arg-type]
        if not isinstance(given, Mapping):
            return ObservedRun(runtime, job, given)
        paths = []
        for array in given.values():
            path = tmp_path / f"{next(numbers)}.npy"
            np.save(path, array)
            paths.append(str(path))
        result = RunResult(providers=(), outputs=tuple(given), cases=(CaseResult(outputs=tuple(paths)),))
        return ObservedRun(runtime, job, Completed(result=result))

    return ran


def holding(old: list[ObservedRun], new: list[ObservedRun], *, random: str = "", **renamed: str) -> RunComparison:
    """Return the comparison of old and new runs."""
    comparability = NumericTraits(random=("RandomNormal",), random_outputs=frozenset({random} - {""}))
    model = ParityModel("m.onnx", Place("m.onnx"), comparability, None, None)
    return RunComparison(model, renamed, old, new)


def verify(held: RunComparison, runtime: str = NEW, levels: tuple[str, ...] = ("all",)) -> tuple[str, str]:
    """Return the state and the text of one runtime."""
    row = held.row(runtime, levels, required=True)
    return row.state, row.text


@pytest.mark.parametrize(
    ("before", "after", "state", "text"),
    [
        (ONE, ONE, "equal", "bit-identical"),
        (ONE, np.nextafter(ONE, np.float32(9)), "equal", "within tolerance (max difference 1.2e-07)"),
        (ONE, -ONE, "differs", "output `y` differs in case `a`: at [1]"),
        (ONE, ONE.astype(np.float64), "differs", "the element type of output `y` changed in case `a`"),
        (ONE, ONE[:1], "differs", "output `y` differs in case `a`: shape"),
        (np.array([np.nan], np.float32), np.array([0], np.float32), "differs", "output `y` differs in case `a`: "),
        (np.array(["a"]), np.array(["b"]), "differs", "output `y` differs in case `a`: "),
        (np.array([3]), np.array([4]), "differs", "output `y` differs in case `a`: "),
    ],
)
def test_values(before: Any, after: Any, state: str, text: str, gives: Gives) -> None:
    """Outputs are compared bit by bit, then within the tolerance; types and shapes must be equal."""
    actual = verify(holding([gives(NEW, {"y": before})], [gives(NEW, {"y": after})]))

    assert (actual[0], actual[1][: len(text)]) == (state, text)


def test_signs_of_zeros(gives: Gives) -> None:
    """Zeros of different signs are not bit-identical but within the tolerance."""
    zero = np.zeros(1, np.float32)
    held = holding([gives(NEW, {"y": np.append(zero, ONE)})], [gives(NEW, {"y": np.append(-zero, ONE)})])

    assert verify(held) == ("equal", "within tolerance (max difference 0)")


def test_renamed(gives: Gives) -> None:
    """A renamed output is compared with the output of its old name, including the layout of a container."""
    old = gives(NEW, {"s": ONE, "s (layout)": ONE, "y": ONE})
    new = gives(NEW, {"s_out": ONE, "s_out (layout)": ONE, "y": ONE})

    assert verify(holding([old], [new], s="s_out")) == ("equal", "bit-identical")
    assert verify(holding([old], [new])) == ("differs", "the outputs have different names")
    assert verify(holding([old], [gives(NEW, {"y": ONE, "s": ONE, "s (layout)": ONE})]))[0] == "differs"


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (REFUSED, "failed to load: no"),
        (Crashed(signal="SIGSEGV", during="load", log=""), "SIGSEGV during load"),
        (TimedOut(limit_s=3, during="case a", log=""), "timed out after 3 s during case a"),
    ],
)
def test_worse_than_before(end: Observation, text: str, gives: Gives) -> None:
    """A model that ran before must run; a model that never ran is unknown."""
    assert verify(holding([gives(NEW, {"y": ONE})], [gives(NEW, end)])) == (
        "differs",
        f"the original runs, but the repaired model does not: {text}",
    )
    assert verify(holding([gives(NEW, end)], [gives(NEW, end)])) == (
        "unknown",
        f"neither the original nor the repaired model runs: {text}",
    )


def test_unavailable(gives: Gives) -> None:
    """A runtime that is not available does not affect the verdict."""
    away = Unavailable(reason="no wheel")

    assert verify(holding([gives(NEW, {"y": ONE})], [gives(NEW, away)])) == ("unknown", "not available: no wheel")


def test_case_that_fails_now(gives: Gives) -> None:
    """A case that succeeded before must succeed."""
    new = gives(
        NEW,
        Completed(
            result=RunResult(providers=(), outputs=("y",), cases=(CaseResult(failure=Failure(type="F", text="bad")),))
        ),
    )

    assert verify(holding([gives(NEW, {"y": ONE})], [new])) == (
        "differs",
        "the original runs, but the repaired model does not: all cases failed: bad",
    )


def test_compared_with_another_runtime(gives: Gives) -> None:
    """If a runtime refused the original, the newest runtime that ran it is the reference, before the evaluator."""
    evaluator = gives("onnx 99.0.0", {"y": -ONE})
    old = [gives("onnxruntime 1.17.3", {"y": ONE}), gives(OLD, REFUSED), gives(NEW, {"y": ONE}), evaluator]
    right, wrong = (holding(old, [gives(OLD, {"y": array})]) for array in (ONE, -ONE))

    assert verify(right, OLD) == ("equal", f"now runs; result of comparison with the original on {NEW}: bit-identical")
    assert verify(wrong, OLD)[0] == "differs"
    assert verify(holding([gives(OLD, REFUSED)], [gives(OLD, {"y": ONE})]), OLD) == (
        "unknown",
        "now runs, but the original model produced no outputs for comparison",
    )


def test_random(gives: Gives) -> None:
    """Random outputs cannot be compared, so the result is unknown."""
    held = holding([gives(NEW, {"y": ONE})], [gives(NEW, {"y": -ONE})], random="y")

    assert verify(held) == ("unknown", "output `y` could not be compared in case `a`")


def test_worst_level_counts(gives: Gives) -> None:
    """A difference at one optimization level is a difference of the runtime."""
    old = [gives(NEW, {"y": ONE}), gives(NEW, {"y": ONE}, "disabled")]
    new = [gives(NEW, {"y": ONE}), gives(NEW, {"y": -ONE}, "disabled")]

    assert verify(holding(old, new), levels=("all", "disabled"))[0] == "differs"
