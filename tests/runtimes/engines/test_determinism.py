"""Repeated runs of one case, on releases of ONNX Runtime that return input buffers as outputs and on others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.jobs import CaseResult, Optimization
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker import engine_results
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.runtimes.engines.test_onnxruntime import Bench, results, value

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]
Feed = dict[str, object]

NUMPY = {"1.16.3": "1.26.4", "1.19.2": "1.26.4", "1.23.2": "2.3.1", "1.31.1": "2.3.1"}
WRONG = ("1.19.2", "1.23.2")
"""Source: measured on every release from 1.16.0 to 1.31.1; the bug affects 1.19.0 to 1.25.1."""

HEAD = '<ir_version: 8, opset_import: ["" : 17]>\n'
THROUGH = HEAD + "g (float[N, 4] x, bool[N] m) => (float[N, 4] x, bool[N] m, float[N, 4] y) { y = Neg(x) }"
WORDS = HEAD + "g (string[N] x) => (string[N] x, string[N] y) { y = Identity(x) }"
NO_ELEMENTS = HEAD + "g (float[N, 0] x) => (float[N, 0] x) { y = Neg(x) }"
REUSED = HEAD + (
    "g (float[N, 4] x) => (float[N, 4] y, float[M] z, float[N, 4] c) <int64[1] s = {-1}>"
    " { y = Identity(x)  z = Reshape(x, s)  c = Cast<to: int = 1>(x) }"
)
DROPOUT = HEAD + (
    "g (float[N, 64] x) => (float[N, 64] y, float[N, 64] z) <float r = {0.5}, bool t = {1}>"
    " { y = Dropout(x, r, t)  z = Abs(x) }"
)
NOISE = HEAD + "g (float[N, 64] x) => (float[N, 64] y) { n = RandomNormalLike(x)  y = Add(x, n) }"
NOT_NUMBERS = HEAD + "g (float[N, 4] x) => (float[N, 4] y) { l = Log(x)  y = Mul(l, l) }"
GATHER = HEAD + "g (float[4] x, int64[1] i) => (float[1] y, float[4] x) { y = Gather(x, i) }"

pytestmark = pytest.mark.index


@pytest.fixture(params=sorted(NUMPY))
def bench(
    request: pytest.FixtureRequest, cache: Path, locked: Callable[..., Locked], tmp_path: Path
) -> Iterator[Bench]:
    """Yield a setup for one of the releases."""
    with WorkerPool(Environments(cache, offline=False), 2, JobLimits(time_s=60)) as host:
        yield Bench(host, WorkerSpec.of_runtime(*locked(request.param, numpy=NUMPY[request.param])), tmp_path)


def _only(bench: Bench, text: str, feed: Feed, level: Optimization = "all") -> CaseResult:
    (case,) = results(bench.run_file(bench.model(text), feed, level=level))
    assert case.failure is None, case
    return case


def _is_wrong(bench: Bench) -> bool:
    return bench.seat.name.partition(" ")[2] in WRONG


@pytest.mark.parametrize("level", ["all", "disabled"])
def test_inputs_that_are_outputs(bench: Bench, level: Optimization) -> None:
    """Only releases from 1.19 to 1.25 return the input buffer as output; the recorded values are always correct."""
    feed = {"x": np.arange(8, dtype=np.float32).reshape(2, 4), "m": np.array([True, False])}
    case = _only(bench, THROUGH, feed, level)

    assert (("x", "m") if _is_wrong(bench) else (), ()) == (case.aliased, case.unstable)
    recorded = [value(path).tolist() for path in case.outputs]
    assert [feed["x"].tolist(), [True, False], (-feed["x"]).tolist()] == recorded


def test_input_in_the_order_of_columns(bench: Bench) -> None:
    """The worker passes arrays in C order, because a runtime copies other layouts and could return the freed copy."""
    feed = {"x": np.asfortranarray(np.arange(8, dtype=np.float32).reshape(2, 4)), "m": np.array([True, False])}
    case = _only(bench, THROUGH, feed)

    assert feed["x"].tolist() == value(case.outputs[0]).tolist()
    assert (("x", "m") if _is_wrong(bench) else ()) == case.aliased


@pytest.mark.parametrize(
    ("text", "feed"),
    [
        (WORDS, {"x": np.array(["a", "grüezi"])}),
        (NO_ELEMENTS, {"x": np.zeros((3, 0), np.float32)}),
        (REUSED, {"x": np.ones((2, 4), np.float32)}),
        (NOT_NUMBERS, {"x": np.array([[-1, 0, 1, np.nan]], np.float32)}),
    ],
    ids=["strings", "no elements", "what a runtime may reuse", "NaN is NaN"],
)
def test_stable_results(bench: Bench, text: str, feed: Feed) -> None:
    """The results are stable and do not alias inputs, on every release and at both optimization levels."""
    actual = [_only(bench, text, feed, level) for level in ("all", "disabled")]

    assert [((), ())] * 2 == [(case.unstable, case.aliased) for case in actual]


def test_dropout_that_trains(bench: Bench) -> None:
    """A Dropout node in training mode makes its output unstable at both levels; the other output is stable."""
    feed: Feed = {"x": np.ones((2, 64), np.float32)}
    actual = [_only(bench, DROPOUT, feed, level).unstable for level in ("all", "disabled")]

    assert [("y",), ("y",)] == actual


def test_noise(bench: Bench) -> None:
    """The output of a random operator is reported as unstable; the rule decides whether that matters."""
    assert ("y",) == _only(bench, NOISE, {"x": np.ones((2, 64), np.float32)}).unstable


def test_first_case_that_runs_is_the_one_that_is_repeated(bench: Bench) -> None:
    """A failing case is not repeated, and only the first successful case is."""
    bad, good = ({"x": np.ones(4, np.float32), "i": np.array([index])} for index in (9, 1))
    actual = results(bench.run_file(bench.model(GATHER), bad, good, good))
    aliased = ("x",) if _is_wrong(bench) else ()

    assert [(False, ()), (True, aliased), (True, ())] == [(case.failure is None, case.aliased) for case in actual]


def _unstable(folder: Path, first: object, again: object, exact: bool = True) -> list[str]:
    np.save(folder / "y.npy", np.asarray(first))
    return engine_results.find_unstable_outputs(["y"], [np.asarray(again)], [str(folder / "y.npy")], exact)


def test_every_bit_counts_on_the_processor(tmp_path: Path) -> None:
    """On CPU every bit counts, except in NaN; on other devices a difference of a thousandth is allowed."""
    one, near = np.float32([1, 2, np.nan]), np.float32([1, 2.0001, -np.nan])

    assert [] == _unstable(tmp_path, one, np.float32([1, 2, -np.nan]))
    assert ["y"] == _unstable(tmp_path, one, near)
    assert ["y"] == _unstable(tmp_path, np.float32([0.0]), np.float32([-0.0]))
    assert ["y"] == _unstable(tmp_path, np.array([1, 2]), np.array([1, 3]), exact=False)
    assert ["y"] == _unstable(tmp_path, one, one[:2], exact=False)
    assert [] == _unstable(tmp_path, one, near, exact=False)
    assert ["y"] == _unstable(tmp_path, one, np.float32([1, 2.1, np.nan]), exact=False)
    assert ["y"] == _unstable(tmp_path, np.array(["a"]), np.array(["b"], dtype=object))


def test_shared_memory_alone_is_not_aliasing() -> None:
    """An output is aliased only if it changes together with the input; the check leaves the input array unchanged."""
    block = np.arange(16, dtype=np.float32)
    fed, before = block[4:8], block.copy()
    around = block[::9]  # overlaps the range of the input without sharing elements with it
    outputs = {"copy": fed.copy(), "around": around, "none": None}

    assert ["part"] == engine_results.find_aliased_outputs(["part"], [fed[1:3]], {"x": fed})
    assert before.tobytes() == block.tobytes()
    assert [] == engine_results.find_aliased_outputs(list(outputs), list(outputs.values()), {"x": fed})
    assert before.tobytes() == block.tobytes()
