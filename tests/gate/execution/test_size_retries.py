"""Retries with other input sizes, executed on simulated runtimes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core.errors import UnavailableError
from onnxgate.core.findings import Place, Stage
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Export,
    ExportResult,
    Failure,
    InputCase,
    Job,
    Observation,
    Probe,
    ProbeResult,
    Run,
    RunResult,
)
from onnxgate.core.text import join_quoted
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.gate.execution import executor, size_search
from onnxgate.gate.execution.branch_retries import MAX_OTHER_VALUES
from onnxgate.gate.execution.size_search import MAX_CORRECTIONS, MAX_CRASHES
from onnxgate.gate.execution.size_variations import MAX_RUNS
from onnxgate.gate.request import ExecutionResult, ExecutionSettings, RunnableModel
from onnxgate.inputs.axis_sizes import list_alternative_settings
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.inputs.cases import NO_INPUTS, UNTESTED_BRANCH
from onnxgate.model.reading.fact_extraction import read_facts, read_model
from onnxgate.project.config.loader import load_config
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.plan import PlannedModel, PlannedRuntime
from onnxgate.runtimes.worker_spec import JobLimits, JobMeter, WorkerSpec
from onnxgate.stages import export_jobs as jobs
from onnxgate.stages.runtime import ObservedRun

OLD, NEW = "onnxruntime 1.9.0", "onnxruntime 1.10.0"
WAVE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, samples] x) => (float[batch, samples] y) { y = Relu(x) }"""
TABLE = """<ir_version: 8, opset_import: ["" : 17]> g (int64[2] x) => (int64[2] y) { y = Identity(x) }"""
SEQUENCE = """<ir_version: 8, opset_import: ["" : 17]> g (seq(float[2]) x) => (seq(float[2]) y) { y = Identity(x) }"""

RATE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, samples] x, int64 sr) => (float[batch, samples] y) <int64 k = {16000}> {
    c = Equal(sr, k)
    y = If(c) <then_branch = a () => (float[batch, samples] z) { z = Relu(x) },
               else_branch = b () => (float[batch, samples] w) { w = Neg(x) }> }"""
ABOVE = RATE.replace("Equal", "Greater").replace("16000", "10000")

SIDE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, samples] x, int32 side) => (float[batch, samples] y) { s = Cast<to = 1>(side) y = Mul(x, s) }"""

Takes = Callable[[str, Mapping[str, int]], bool]


class Runtimes:
    """A host whose runtimes accept sizes according to `takes`, and whose source accepts them according to `source`."""

    def __init__(
        self,
        takes: Takes,
        source: Takes | None,
        text: str,
        chosen: Callable[[InputCase], bool] | None = None,
        crashes: Takes = lambda _, __: False,
    ) -> None:
        self.jobs: list[tuple[str, tuple[str, ...]]] = []
        self.meter = JobMeter()
        self._takes, self._source, self._text, self._chosen = takes, source, text, chosen
        self._crashes = crashes

    def show(self, *folders: Path, models: Iterable[Path] = ()) -> None:
        """Grant access to folders; this host reads no files."""

    def submit(self, worker_spec: WorkerSpec, job: Job, *, limits: JobLimits | None = None) -> Future[Observation]:
        """Answer immediately."""
        future: Future[Observation] = Future()
        cases = job.cases if isinstance(job, Run) else ()
        crashing = [case.name for case in cases if self._crashes(worker_spec.name, case.sizes)]
        answer = self._answer(worker_spec.name, job)
        crash = Crashed(signal="SIGFPE", during=f"case {crashing[0]}", log="") if crashing else None
        future.set_result(crash or Completed(result=answer))
        return future

    def _answer(self, name: str, job: Job) -> RunResult | ExportResult | ProbeResult:
        match job:
            case Probe():
                return ProbeResult(python="3.11", packages={})
            case Run():
                self.jobs.append((name, tuple(case.name for case in job.cases)))
                results = tuple(self._run(name, case, self._takes) for case in job.cases)
                return RunResult(providers=(), outputs=("y",), cases=results)
            case Export():
                assert self._source is not None
                self.jobs.append(("source", tuple(case.name for case in job.cases)))
                return ExportResult(model=None, eager=tuple(self._run(name, case, self._source) for case in job.cases))
            case other:
                raise TypeError(type(other).__name__)

    def _run(self, name: str, case: InputCase, takes: Takes) -> CaseResult:
        accepts = takes(name, case.sizes) if self._chosen is None else self._chosen(case)
        if not accepts:
            return CaseResult(failure=Failure(type="Fail", text=self._text))
        return CaseResult(outputs=(case.inputs["x"],))


def _execute(
    folder: Path,
    takes: Takes,
    *,
    model: str = WAVE,
    settings: str = "",
    source: Takes | None = None,
    text: str = "does not fit",
    stages: frozenset[Stage] = frozenset({Stage.RUNTIME}),
    chosen: Callable[[InputCase], bool] | None = None,
    crashes: Takes = lambda _, __: False,
    cases: tuple[str, ...] = (),
) -> tuple[ExecutionResult, Runtimes]:
    onnx.save(onnx.parser.parse_model(model), folder / "m.onnx")
    config = f'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n[[model]]\npath = "m.onnx"\n{settings}\n'
    (folder / "onnxgate.toml").write_text(config)
    (folder / "export.py").write_text("def build(): ...\n")
    project = load_config(folder / "onnxgate.toml")
    (selected,) = project.models()
    runtimes = tuple(_planned(name) for name in (OLD, NEW))
    facts = read_facts(selected.absolute, "m.onnx")
    runnable = RunnableModel(PlannedModel(selected, runtimes), facts, Place("onnxgate.lock", 7))
    host = Runtimes(takes, source, text, chosen, crashes)
    execution = ExecutionSettings(project, Lock(targets={}, models={}), stages, CaseSelection(cases=cases))
    with executor.execute([runnable], execution, cast("Any", host)) as done:
        return done, host


def _planned(name: str) -> PlannedRuntime:
    engine, release = name.split()
    runtime = LockedRuntime(engine=engine, release=release, python="3.11", packages=())
    return PlannedRuntime(runtime, ("t",), ("all", "disabled"), ("CPUExecutionProvider",), required=True)


def _judged(done: ExecutionResult) -> dict[str, set[str]]:
    """Return the names of the evaluated cases by runtime."""
    runs = [subject for subject in done.step.subjects if isinstance(subject, ModelRuns)]
    return {run.runtime: {attempt.case.name for attempt in run.attempts} for run in runs}


def test_working_sizes_are_run_once(tmp_path: Path) -> None:
    """If all cases run, there is one job per runtime and level."""
    done, host = _execute(tmp_path, lambda _, __: True)

    assert len(host.jobs) == 4
    assert [len(cases) for _, cases in host.jobs] == [3] * 4
    assert done.step.undone == ()


def test_sizes_that_fit_replace_the_guesses(tmp_path: Path) -> None:
    """Working sizes are searched on the newest runtime only, and used on all."""
    done, host = _execute(tmp_path, lambda _, sizes: sizes["samples"] in (32, 64))
    fitting = {"sizes batch=1 samples=32", "sizes batch=3 samples=32", "sizes batch=1 samples=64"}

    assert [(name, len(cases)) for name, cases in host.jobs[4:8]] == [(NEW, 1)] * 4
    assert _judged(done) == {OLD: fitting, NEW: fitting}
    assert (done.step.undone, done.faulty) == ((), ())


def test_no_size_fits(tmp_path: Path) -> None:
    """If no size works, each selected stage is undecided with the reason."""
    done, _ = _execute(tmp_path, lambda _, __: False, stages=frozenset({Stage.RUNTIME, Stage.PARITY}))

    assert [(entry.stage, entry.runtime) for entry in done.step.undone] == [(Stage.PARITY, ""), (Stage.RUNTIME, "")]
    assert {entry.reason for entry in done.step.undone} == {
        "the model does not run on generated inputs of any tested size"
    }


def test_configured_sizes_must_work(tmp_path: Path) -> None:
    """Sizes in the config must work, so no others are tried, and the failure is a finding."""
    done, host = _execute(tmp_path, lambda _, __: False, settings="sizes = { batch = [1], samples = [9] }")

    assert len(host.jobs) == 4
    assert done.step.undone == ()


def test_another_runtime_proves_the_sizes(tmp_path: Path) -> None:
    """If one runtime accepts a size and another does not, the failure is a fault of the latter."""
    _, host = _execute(tmp_path, lambda name, _: name == OLD)

    assert len(host.jobs) == 4


def test_indices_out_of_bounds_everywhere(tmp_path: Path) -> None:
    """Without dynamic axes there are no other sizes to try; the hint suggests real inputs."""
    done, host = _execute(tmp_path, lambda _, __: False, model=TABLE, text="indices element out of data bounds")
    (undone,) = done.step.undone

    assert len(host.jobs) == 4
    assert (undone.stage, undone.reason) == (Stage.RUNTIME, "the model does not run on the generated inputs")
    assert undone.hint == 'add real inputs: `inputs = "samples/*.npz"`'


@pytest.mark.parametrize(("source_fits", "searched"), [(True, False), (False, True)])
def test_the_source_proves_the_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source_fits: bool, searched: bool
) -> None:
    """The source is run only after a case failed, and also if only the runtime stage is selected."""
    monkeypatch.setattr(jobs, "find_toolchain", lambda *_: Path("python"))
    settings = 'source = "export.py:build"'
    _, calm = _execute(tmp_path, lambda _, __: True, settings=settings, source=lambda _, __: source_fits)
    _, host = _execute(
        tmp_path,
        lambda _, sizes: sizes["samples"] == 8,
        settings=settings,
        source=lambda _, sizes: source_fits or sizes["samples"] == 8,
    )
    names = [name for name, _ in host.jobs]

    assert "source" not in [name for name, _ in calm.jobs]
    assert names[4] == "source"
    assert (len(names) > 5) == searched


def test_retries_without_a_toolchain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime stage does not require a toolchain, so it continues without one."""

    def absent(*_: object) -> Path:
        raise UnavailableError("no torch")

    monkeypatch.setattr(jobs, "find_toolchain", absent)
    done, _ = _execute(tmp_path, lambda _, sizes: sizes["samples"] == 8, settings='source = "export.py:build"')

    assert _judged(done)[NEW] == {"sizes batch=1 samples=8", "sizes batch=3 samples=8", "sizes batch=1 samples=16"}


def test_unsupported_inputs_are_reported(tmp_path: Path) -> None:
    """The model is loaded and its unsupported inputs are reported, even if the user provides inputs."""
    np.savez(tmp_path / "a.npz", x=np.zeros(2, np.float32))
    done, host = _execute(tmp_path, lambda _, __: True, model=SEQUENCE, settings='inputs = "a.npz"')
    (undone,) = done.step.undone

    assert {cases for _, cases in host.jobs} == {()}
    assert ("of type `seq(tensor(float))`" in undone.reason, undone.hint, undone.cause) == (True, "", NO_INPUTS)


def test_size_in_the_error_text_is_tried_first(tmp_path: Path) -> None:
    """The size that a runtime's message requires is tried before the usual alternatives."""
    done, host = _execute(
        tmp_path,
        lambda _, sizes: sizes["samples"] in (1234, 617),
        text="Got invalid dimensions for input: x for the following indices\n index: 1 Got: 1600 Expected: 1234",
    )

    assert [cases for _, cases in host.jobs[4:5]] == [("sizes batch=1 samples=1234",)]
    assert len(host.jobs) == 4 + 6 + 4
    assert _judged(done)[NEW] == {
        "sizes batch=1 samples=1234",
        "sizes batch=3 samples=1234",
        "sizes batch=1 samples=617",
    }


@pytest.mark.parametrize("settings", ["", "sizes = { samples = [1234] }"])
def test_single_size_of_a_named_axis_is_a_case(tmp_path: Path, settings: str) -> None:
    """A size that the model rejects is run on all runtimes, unless the config sets the sizes of the axis."""
    done, _ = _execute(
        tmp_path,
        lambda _, sizes: sizes["samples"] == 1234,
        text="Got invalid dimensions for input: x for the following indices\n index: 1 Got: 1600 Expected: 1234",
        settings=settings,
    )
    runs = [subject for subject in done.step.subjects if isinstance(subject, ModelRuns)]
    rejected = {(run.runtime, it.case.name, it.case.refused) for run in runs for it in run.attempts if it.case.refused}

    name = "sizes batch=1 samples=617"
    assert rejected == (set() if settings else {(OLD, name, ("samples",)), (NEW, name, ("samples",))})


def test_size_of_a_weight_is_tried(tmp_path: Path) -> None:
    """The error text of `MatMul` names no sizes, so those of its weights are tried."""
    done, _ = _execute(
        tmp_path,
        lambda _, sizes: sizes["features"] in (7, 14),
        model="""<ir_version: 8, opset_import: ["" : 17]>
        g (float[batch, features] x) => (float[batch, 1] y) <float[7, 1] w = {1, 2, 3, 4, 5, 6, 7}> {
            y = MatMul(x, w) }""",
        text="Compute MatMul dimension mismatch",
    )

    assert _judged(done)[NEW] >= {"sizes batch=1 features=7", "sizes batch=3 features=7"}


def test_attempts_are_bounded(tmp_path: Path) -> None:
    """Each attempt suggests other sizes, but their number is limited."""
    text = "mismatched dimensions of 1600 and 7; 8 by 9; 16 vs 17; 9 vs 10; 17 vs 18; 7 vs 8; 10 vs 11; 18 vs 19"
    done, host = _execute(tmp_path, lambda _, __: False, text=text)
    alternatives = [*list_alternative_settings(read_facts(tmp_path / "m.onnx", "m.onnx").inputs, {})]

    assert len(host.jobs) - 4 <= len(alternatives) + MAX_CORRECTIONS
    assert len(done.step.undone) == 1


def test_axes_that_cannot_vary_together_vary_alone(tmp_path: Path) -> None:
    """If two axes cannot change together, each changes alone. An unnamed axis that supports no other size is fixed."""
    done, _ = _execute(
        tmp_path,
        lambda _, sizes: sizes["x[2]"] == 64,
        model="""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 3, ?, width] x) => (float[n, 3, ?, width] y) { y = Relu(x) }""",
    )

    assert _judged(done)[NEW] == {
        "sizes n=1 x[2]=64 width=96",
        "sizes n=3 x[2]=64 width=96",
        "sizes n=1 x[2]=64 width=64",
    }


def test_axes_that_were_not_varied_are_reported(tmp_path: Path) -> None:
    """The search is limited, and error texts that do not name sizes cannot shorten it."""
    names = [f"{kind}{name}" for name in "abcx" for kind in "tf"]
    inputs = ", ".join(f"float[batch, t{name}, f{name}] {name}" for name in "abcx")
    done, _ = _execute(
        tmp_path,
        lambda _, it: {it[name] for name in names} == {8},
        model=f"""<ir_version: 8, opset_import: ["" : 17]>
        g ({inputs}) => (float[batch, tx, fx] y) {{ y = Relu(x) }}""",
    )
    (skipped,) = done.step.skipped

    assert skipped.reason == (
        f"{join_quoted(names)} were run with one size only, "
        f"because the search for other sizes ended after {MAX_RUNS} runs"
    )
    assert done.step.undone == ()


def test_named_axis_that_does_not_vary_is_still_reported(tmp_path: Path) -> None:
    """A named axis is declared as dynamic, so the case that fails is kept."""
    done, _ = _execute(
        tmp_path,
        lambda _, sizes: sizes["height"] == 64,
        model="""<ir_version: 8, opset_import: ["" : 17]>
        g (float[n, 3, height, width] x) => (float[n, 3, height, width] y) { y = Relu(x) }""",
    )

    assert "sizes n=1 height=128 width=96" in _judged(done)[NEW]
    assert "sizes n=1 height=64 width=64" in _judged(done)[NEW]


def test_sizes_that_all_branches_accept_are_preferred(tmp_path: Path) -> None:
    """The search goes on until each value that chooses a branch has run."""
    accepts = {16000: (128, 256), 8000: (64, 256)}
    done, _ = _execute(
        tmp_path,
        lambda _, __: True,
        model=RATE,
        chosen=lambda case: case.sizes["samples"] in accepts[int(case.chosen["sr"])],
    )

    assert _judged(done)[NEW] == {
        "sizes batch=1 samples=256 with sr=16000",
        "sizes batch=1 samples=256 with sr=8000",
        "sizes batch=3 samples=256 with sr=16000",
    }


def test_branch_that_no_value_runs_is_undecided(tmp_path: Path) -> None:
    """Its cause lies in the model and its inputs, so that an ignore can accept it. The number of values is limited."""
    done, host = _execute(
        tmp_path, lambda _, __: True, model=ABOVE, chosen=lambda case: case.chosen.get("sr", 0) <= 10000
    )
    (undone,) = done.step.undone
    tried = [cases for _, cases in host.jobs if len(cases) == 1]

    assert undone.reason == "a branch was not tested, because the model does not run with `sr` = 16000"
    assert (undone.cause, bool(undone.fingerprint)) == (UNTESTED_BRANCH, True)
    assert (
        len([cases for cases in tried if "samples=1600" in cases[0] and "sr=16000" not in cases[0]]) == MAX_OTHER_VALUES
    )


def test_another_value_runs_the_branch(tmp_path: Path) -> None:
    """The first value that the model accepts replaces the rejected one."""

    def accepts(case: InputCase) -> bool:
        return case.chosen.get("sr", 0) in (0, 22050)

    done, _ = _execute(tmp_path, lambda _, __: True, model=ABOVE, chosen=accepts)

    assert done.step.undone == ()
    assert {name for name in _judged(done)[NEW] if "sr" in name} == {"sizes batch=1 samples=1600 with sr=22050"}


@pytest.mark.parametrize(
    ("accepted", "expected"),
    [
        ((64, 1600), {"sizes batch=1 samples=1600 with side=64", "sizes batch=3 samples=1600 with side=64"}),
        ((512, 64), {"sizes batch=64 samples=64 with side=512", "sizes batch=128 samples=128 with side=512"}),
        ((7, 8), {"sizes batch=1 samples=1600", "sizes batch=3 samples=1600", "sizes batch=1 samples=2400"}),
    ],
)
def test_larger_integer_is_tried(tmp_path: Path, accepted: tuple[int, int], expected: set[str]) -> None:
    """A shape may be computed from an integer, for which small values are invalid at all sizes."""

    def accepts(case: InputCase) -> bool:
        return case.chosen.get("side") == accepted[0] and case.sizes["samples"] in (accepted[1], 2 * accepted[1])

    done, _ = _execute(tmp_path, lambda _, __: True, model=SIDE, chosen=accepts)

    assert _judged(done)[NEW] == expected
    assert bool(done.step.undone) == (accepted == (7, 8))


def test_integer_is_not_changed_if_a_case_ran(tmp_path: Path) -> None:
    """The failure of another case is caused by its sizes."""
    done, host = _execute(tmp_path, lambda _, sizes: sizes["batch"] == 1, model=SIDE)

    assert {name for cases in host.jobs for name in cases[1] if "side" in name} == set()
    assert "sizes batch=3 samples=1600" in _judged(done)[NEW]


def test_a_branch_has_its_own_sizes(tmp_path: Path) -> None:
    """If no value helps, other sizes are tried for the branch, also with another batch size."""

    def accepts(case: InputCase) -> bool:
        return ("sr" in case.chosen) == (case.sizes["samples"] == 256)

    done, _ = _execute(tmp_path, lambda _, __: True, model=ABOVE, chosen=accepts)

    assert done.step.undone == ()
    assert {name for name in _judged(done)[NEW] if "sr" in name} == {
        f"sizes batch={batch} samples=256 with sr=16000" for batch in (1, 3)
    }


IMAGE = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 3, height, ?] x) => (float[n, 3, height, ?] y) { y = Relu(x) }"""


def _crashed(done: ExecutionResult) -> dict[str, set[tuple[str, tuple[str, ...]]]]:
    """Return the cases that crashed by runtime, with the axes of which other sizes were found."""
    runs = [subject for subject in done.step.subjects if isinstance(subject, ModelRuns)]
    crashed = {
        run.runtime: {(it.case.name, it.case.refused) for it in run.attempts if it.outcome == "crashed"} for run in runs
    }
    return {runtime: cases for runtime, cases in crashed.items() if cases}


def test_sizes_that_crash_a_runtime_are_replaced(tmp_path: Path) -> None:
    """All runtimes run the model with sizes that none of them crashes at, and the crash stays visible."""
    done, _ = _execute(
        tmp_path, lambda _, __: True, model=IMAGE, crashes=lambda name, it: name == OLD and it["height"] == 64
    )
    crashed = "sizes n=1 height=64 x[3]=96"
    completed = {"sizes n=1 height=96 x[3]=64", "sizes n=3 height=96 x[3]=64", "sizes n=1 height=192 x[3]=64"}

    assert _judged(done) == {OLD: {crashed, *completed}, NEW: completed}
    assert _crashed(done) == {OLD: {(crashed, ("height", "x[3]"))}}
    assert {case.name for case in next(iter(done.collected.values())).cases} == {crashed, *completed}


def test_sizes_found_on_one_runtime_may_crash_another(tmp_path: Path) -> None:
    """If the guessed sizes are invalid and the first valid ones crash an older runtime, others are searched."""
    done, _ = _execute(
        tmp_path,
        lambda _, it: it["height"] in (8, 16, 32),
        model=IMAGE,
        crashes=lambda name, it: name == OLD and it["height"] == 8,
    )

    assert _crashed(done).keys() == {OLD}
    assert {name.split()[2] for name, _ in _crashed(done)[OLD]} == {"height=8"}
    assert {name.split()[2] for name in _judged(done)[NEW]} == {"height=16", "height=32"}


@pytest.mark.parametrize(
    ("crashes", "cases"),
    [
        (lambda _: True, {"sizes n=1 height=64 x[3]=96"}),
        (lambda it: it["n"] == 3, {"sizes n=3 height=64 x[3]=96"}),
    ],
)
def test_crash_at_all_sizes_is_an_error(
    tmp_path: Path, crashes: Callable[[Mapping[str, int]], bool], cases: set[str]
) -> None:
    """Also one at another batch size, as a model should support any."""
    done, host = _execute(
        tmp_path, lambda _, __: True, model=IMAGE, crashes=lambda name, it: name == OLD and crashes(it)
    )

    assert {name for name, refused in _crashed(done)[OLD] if not refused} == cases
    assert len(host.jobs) <= 4 + 3 * (MAX_CRASHES + 1)


def test_crash_at_sizes_that_the_source_supports_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes are valid, so they are not replaced."""
    monkeypatch.setattr(jobs, "find_toolchain", lambda *_: Path("python"))
    done, _ = _execute(
        tmp_path,
        lambda _, __: True,
        model=IMAGE,
        settings='source = "export.py:build"',
        source=lambda _, __: True,
        crashes=lambda name, it: name == OLD and it["height"] == 64,
    )

    assert _crashed(done) == {OLD: {("sizes n=1 height=64 x[3]=96", ())}}


def test_crash_of_a_selected_case_is_reproduced(tmp_path: Path) -> None:
    """The command of the report selects the case that crashes and one that runs."""
    names = ("sizes n=1 height=8 x[3]=8", "sizes n=1 height=64 x[3]=96")
    done, _ = _execute(
        tmp_path,
        lambda _, __: True,
        model=IMAGE,
        crashes=lambda name, it: name == OLD and it["height"] == 64,
        cases=names,
    )

    assert _crashed(done) == {OLD: {(names[1], ("height", "x[3]"))}}
    assert _judged(done) == {OLD: {*names}, NEW: {names[0]}}


def test_crash_during_the_search_is_visible(tmp_path: Path) -> None:
    """A crash at a size that is only tried is reported, too."""
    done, _ = _execute(
        tmp_path,
        lambda _, it: it["height"] in (16, 32),
        model=IMAGE,
        crashes=lambda _, it: it["height"] == 8,
    )

    assert _crashed(done) == {NEW: {("sizes n=1 height=8 x[3]=8", ("height", "x[3]"))}}
    assert "sizes n=1 height=16 x[3]=16" in _judged(done)[OLD]


def test_proven_sizes_are_tried_first_and_failed_ones_never(tmp_path: Path) -> None:
    """Sizes of the source's example are tried first, and sizes that already failed are not tried again."""
    onnx.save(onnx.parser.parse_model(WAVE), tmp_path / "m.onnx")
    (tmp_path / "onnxgate.toml").write_text('models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n')
    (model,) = load_config(tmp_path / "onnxgate.toml").models()
    guess, example = {"batch": 1, "samples": 2}, {"batch": 1, "samples": 400}
    cases = (
        InputCase(name="guess", origin="generated", inputs={}, sizes=guess, guessed=("batch", "samples")),
        InputCase(name="example", origin="source", inputs={}, sizes=example),
    )
    refused = CaseResult(failure=Failure(type="Fail", text="does not fit"))
    result = RunResult(providers=(), outputs=("y",), cases=(refused, CaseResult()))
    ran = [ObservedRun(NEW, Run(model="m.onnx", cases=cases, output=""), Completed(result=result))]
    attempts: list[Mapping[str, int]] = []

    def attempt(_: str, sizes: Mapping[str, int]) -> list[ObservedRun]:
        attempts.append(sizes)
        case = InputCase(name="again", origin="generated", inputs={}, sizes=dict(sizes))
        again = RunResult(providers=(), outputs=("y",), cases=(refused,))
        return [ObservedRun(NEW, Run(model="m.onnx", cases=(case,), output=""), Completed(result=again))]

    actual = size_search.find_sizes(read_model(model.absolute, "m.onnx"), model, ran, None, attempt)

    assert () == actual.settings
    assert example == attempts[0]
    assert guess not in attempts
    assert len(attempts) > 1
