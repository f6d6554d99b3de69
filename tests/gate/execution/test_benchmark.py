"""Relative budgets: the baseline of a benchmark, its ratios, and inconclusive measurements."""

from __future__ import annotations

import functools
import itertools
from concurrent.futures import Future
from pathlib import Path

import pytest

from onnxgate.core.findings import IncompleteCheck, Place
from onnxgate.core.jobs import (
    Benchmark,
    BenchmarkResult,
    Completed,
    Crashed,
    Failure,
    LoadResult,
    Observation,
    Refused,
    TimedOut,
    Unavailable,
)
from onnxgate.evidence.policy import Raced
from onnxgate.gate.execution.benchmark import (
    MIN_ROUNDS,
    Benchmarks,
    compute_memory_ratio,
    compute_time_ratio,
    report_ratio,
)
from onnxgate.gate.request import RunnableModel, StepResult
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.project.config.project import MergedSettings, SelectedModel
from onnxgate.project.config.schema import Budget
from onnxgate.project.git.revisions import resolve_revision
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from tests.harness.models import write
from tests.harness.repositories.checkout import commit

PLACE = Place("onnxgate.lock", 7)
TWICE = BenchmarkResult(
    case="c", model_s=(2.0,) * 9, baseline_s=(1.0,) * 9, model_mib=(90.0,) * 3, baseline_mib=(30.0,) * 3
)
BOTH = Budget(slower_than_baseline=1.2, memory_over_baseline=1.5)


def planned(release: str, engine: str = "onnxruntime") -> PlannedRuntime:
    """Return a runtime of a target."""
    runtime = LockedRuntime(engine=engine, release=release, python="3.11", packages=())
    return PlannedRuntime(runtime, ("server",), ("all",), ("CPUExecutionProvider",), required=True)


class Track:
    """A repository with one model, whose benchmarks all have the same result."""

    def __init__(self, root: Path, observation: Observation | None = None) -> None:
        self.root = root
        self.observation = observation or Completed(result=TWICE)
        self.asked: list[tuple[str, Benchmark]] = []
        self.runtimes = (planned("1.9.0"), planned("1.10.0"), planned("2026.4", "openvino"))
        write(root / "ml" / "m.onnx")
        commit(root)

    def hold(self, budget: Budget | None, *, against: str = "", float_model: str | None = None) -> StepResult:
        """Check a budget and return the result."""
        absolute = self.root / "ml" / "m.onnx"
        model = SelectedModel("m.onnx", absolute, MergedSettings(quantized_from=float_model, budget=budget), PLACE)
        revision = resolve_revision(self.root, against) if against else None
        folders = (self.root.parent / f"folder {index}" for index in itertools.count())
        races = Benchmarks(self.root / "ml", revision, self._submit, functools.partial(next, folders))
        return races.measure(
            RunnableModel(PlannedModel(model, self.runtimes), read_facts(absolute, "m.onnx"), PLACE), ()
        )

    def _submit(self, runtime: PlannedRuntime, job: Benchmark) -> Future[Observation]:
        self.asked.append((runtime.name, job))
        done: Future[Observation] = Future()
        done.set_result(self.observation)
        return done


@pytest.fixture
def track(tmp_path: Path) -> Track:
    """Create a repository in whose first commit the model does less work."""
    made = Track(tmp_path / "repository")
    write(made.root / "ml" / "m.onnx", "g (float[N, 4] x) => (float[N, 4] y) { z = Relu(x) y = Relu(z) }")
    return made


def test_against_a_revision(track: Track) -> None:
    """A benchmark runs on the newest release of ONNX Runtime; both ratios are reported with their spread."""
    done = track.hold(BOTH, against="HEAD")
    ((runtime, job),) = track.asked

    assert (runtime, job.model, job.baseline == job.model) == (
        "onnxruntime 1.10.0",
        str(track.root / "ml" / "m.onnx"),
        False,
    )
    assert [(subject.measure, subject.ratio, subject.verdict, subject.baseline) for subject in done.subjects] == [  # type: ignore[attr-defined]
        ("time", 2.0, "over", "`m.onnx` at `HEAD`"),
        ("memory", 3.0, "over", "`m.onnx` at `HEAD`"),
    ]
    assert [
        (measurement.metric, measurement.value, measurement.bound, measurement.bound_from)
        for measurement in done.measured
    ] == [
        (f"{measure} ratio{part}", value, bound, "config")
        for measure, value, bound in (("time", 2.0, 1.2), ("memory", 3.0, 1.5))
        for part in ("", ", low", ", high")
    ]
    assert (done.undone, done.skipped) == ((), ())


def test_against_the_float_model(track: Track) -> None:
    """The float model is the baseline even if a revision is given, because the budget was set relative to it."""
    write(track.root / "ml" / "float.onnx")
    (timed,) = track.hold(Budget(slower_than_baseline=0.8), against="HEAD", float_model="float.onnx").subjects
    job = track.asked[0][1]

    assert isinstance(timed, Raced)
    assert (timed.baseline, job.baseline) == ("`float.onnx`", str(track.root / "ml" / "float.onnx"))
    assert (job.rounds > 0, job.memory_runs) == (True, 0)


def test_only_what_has_a_budget_is_measured(track: Track) -> None:
    """A model is measured only if it has a relative budget; a size budget needs no measurement."""
    for budget in (None, Budget(size_mib=40)):
        assert track.hold(budget, against="HEAD") == StepResult()
    track.hold(Budget(memory_over_baseline=1.5), against="HEAD")
    ((_, job),) = track.asked

    assert (job.rounds, job.memory_runs > 0) == (0, True)


def test_without_baseline(track: Track) -> None:
    """Without a selected baseline the budget is skipped with a hint, and the check is not undecided."""
    done = track.hold(BOTH)
    (undone,) = done.skipped

    assert done.undone == ()
    assert undone.reason == "the relative budget was not checked: no baseline is selected"
    assert (
        undone.hint
        == "select a revision with `--against REF`, or set `quantized-from` to the float model of a quantized model"
    )
    assert track.asked == []


def test_same_content(tmp_path: Path) -> None:
    """An unchanged model has the same cost, so it is not run, and nothing is undecided."""
    track = Track(tmp_path / "repository")

    assert (track.hold(BOTH, against="HEAD"), track.asked) == (StepResult(), [])


def test_new_model(tmp_path: Path) -> None:
    """A new model has no baseline, so its relative budget is skipped."""
    track = Track(tmp_path / "repository")
    (track.root / "ml" / "m.onnx").rename(track.root / "ml" / "old.onnx")
    commit(track.root)
    write(track.root / "ml" / "m.onnx")
    done = track.hold(BOTH, against="HEAD")

    assert [entry.reason for entry in done.skipped] == [
        "the relative budget could not be checked: `ml/m.onnx` does not exist at `HEAD`"
    ]
    assert (done.undone, track.asked) == ((), [])


FAILED = Failure(type="Fail", text="no")


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (Completed(result=BenchmarkResult(reason="there is no case")), "there is no case"),
        (Unavailable(reason="no wheel"), "no wheel"),
        (Refused(failure=FAILED), "the model does not load: Fail"),
        (Crashed(signal="SIGSEGV", during="load", log=""), "the runtime crashed with SIGSEGV during load"),
        (TimedOut(limit_s=300, during="", log=""), "the measurement timed out after 300 s"),
        (
            Completed(result=BenchmarkResult(case="c", model_s=(1.0,) * 7, baseline_s=(1.0,) * 7)),
            "the model runs too slowly to be measured: only 7 rounds finished within 20 s",
        ),
        (
            Completed(result=BenchmarkResult(case="c", model_s=(1.0,) * 9, baseline_s=(1.0,) * 9)),
            "memory use could not be measured",
        ),
    ],
    ids=["no case", "unavailable", "refused", "crashed", "timed out", "slow", "not weighed"],
)
def test_failed_measurement_is_undecided(track: Track, observation: Observation, reason: str) -> None:
    """A failed measurement is undecided with a reason and gives no finding."""
    track.observation = observation
    done = track.hold(BOTH, against="HEAD")

    assert ([entry.reason for entry in done.undone], done.subjects) == (
        [f"the relative budget could not be checked: {reason}"],
        (),
    )


def test_no_release_of_onnxruntime(track: Track) -> None:
    """Benchmarks run only on ONNX Runtime."""
    track.runtimes = track.runtimes[2:]
    (undone,) = track.hold(BOTH, against="HEAD").undone

    assert (
        undone.reason == "the relative budget could not be checked: "
        "budgets are measured on `onnxruntime`, which no target of the model uses"
    )


def test_wrong_result_type_is_an_internal_error(track: Track) -> None:
    """A result of the wrong type is an internal error."""
    track.observation = Completed(result=LoadResult(providers=()))
    with pytest.raises(TypeError, match="unexpected benchmark result: Completed"):
        track.hold(BOTH, against="HEAD")


def timed(*ratios: float) -> BenchmarkResult:
    """Return a benchmark with these time ratios."""
    return BenchmarkResult(case="c", model_s=ratios, baseline_s=(1.0,) * len(ratios))


def test_quartiles() -> None:
    """The ratio is the median and its spread the quartiles, so that a single outlier has no effect."""
    time_ratio = compute_time_ratio(timed(1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 500.0))

    assert (time_ratio.low, time_ratio.ratio, time_ratio.high) == pytest.approx((1.2, 1.4, 1.6))
    assert len(timed(*[1.0] * MIN_ROUNDS).model_s) == MIN_ROUNDS
    assert compute_time_ratio(timed(*[1.0] * MIN_ROUNDS)).ratio == 1.0


def memory_ratio_of(
    model: tuple[float, ...], baseline: tuple[float, ...], allowed: float
) -> tuple[float, float, float, bool]:
    """Return the memory ratio with its spread, and whether the difference is negligible."""
    memory_ratio = compute_memory_ratio(BenchmarkResult(case="c", model_mib=model, baseline_mib=baseline), allowed)
    return memory_ratio.low, memory_ratio.ratio, memory_ratio.high, memory_ratio.negligible


def test_weights() -> None:
    """The spread covers the lowest and highest possible ratio; differences within the noise of a process are
    negligible.
    """
    assert memory_ratio_of((90, 99, 108), (30, 33, 36), 1.2) == pytest.approx((2.5, 3.0, 3.6, False))
    assert memory_ratio_of((0.0,), (0.0,), 1.2) == (1.0, 1.0, 1.0, True)
    assert memory_ratio_of((13.0,), (10.0,), 1.2) == (1.3, 1.3, 1.3, True)
    assert memory_ratio_of((17.0,), (10.0,), 1.2) == (1.7, 1.7, 1.7, False)


@pytest.mark.parametrize(
    ("ratio", "low", "verdict"),
    [
        (1.0, 0.9, "within"),
        (1.26, 1.25, "within"),
        (1.27, 1.25, "unclear"),
        (1.27, 1.265, "over"),
        (3.0, 0.7, "unclear"),
    ],
)
def test_verdicts(track: Track, ratio: float, low: float, verdict: str) -> None:
    """A budget is exceeded only if the whole spread is above it; if only the median is, the result is undecided."""
    rounds = [low] * 20 + [ratio] * 21 if low != ratio else [ratio] * 41
    track.observation = Completed(result=timed(*rounds))
    done = track.hold(Budget(slower_than_baseline=1.2), against="HEAD")
    (raced,) = done.subjects
    noisy = "measurements vary too much to check the limit of 1.2 times the run time of `m.onnx` at `HEAD`"

    assert isinstance(raced, Raced)
    assert raced.verdict == verdict
    assert [entry.reason for entry in done.undone] == ([noisy] if verdict == "unclear" else [])
    assert all(isinstance(entry, IncompleteCheck) and entry.runtime == "onnxruntime 1.10.0" for entry in done.undone)
    assert len(report_ratio(raced)) == 3
