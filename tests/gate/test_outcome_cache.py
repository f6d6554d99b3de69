"""Outcomes of unchanged models: what is reused, what makes a model run again, and what is never cached."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
import os
import shutil
import zipfile
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from onnxgate.core.findings import ALL_STAGES, IncompleteCheck, Place, Stage
from onnxgate.core.jobs import (
    CaseResult,
    Completed,
    Crashed,
    Failure,
    InputCase,
    LoadResult,
    Observation,
    Refused,
    RunResult,
    TimedOut,
    Unavailable,
)
from onnxgate.core.report import Measured, Replay
from onnxgate.evidence.parity import Comparison, Difference
from onnxgate.evidence.runtime import Attempt, AttemptCase, ModelRuns
from onnxgate.gate import outcome_cache
from onnxgate.gate.outcome_cache import OutcomeCache, is_lasting_answer, is_lasting_step
from onnxgate.gate.request import (
    Checkout,
    CollectedModel,
    ExecutionResult,
    FileResult,
    GateRequest,
    IgnorePolicy,
    LockResult,
    RunCaches,
    Selection,
    StageResults,
    StepResult,
)
from onnxgate.gate.static_cache import HarvestedBuilds
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.model.reading.fact_extraction import read_facts
from onnxgate.project.lock.types import Lock, LockedTarget, MeasuredTolerance
from onnxgate.project.plan import PlannedModel, plan_models
from onnxgate.support import limits
from onnxgate.support.harvest import BuildSupport
from tests.harness.locks import MODEL, package, project_of, runtime
from tests.harness.models import RELU, write

CONFIG = """models = ["*.onnx"]
[targets.server]
runtime = "onnxruntime==1.23.2"
[[model]]
path = "m.onnx"
inputs = "samples/*.npz"
quantized-from = "float.onnx"
"""
NAME = "onnxruntime 1.23.2"
STORED = f"m-{hashlib.sha256().hexdigest()[:12]}.npz"
"""The name of stored inputs without arrays."""
REPLAY = Replay(model="m.onnx", rules=("a",), cases=("a",), seed=0, command="x", inputs=(STORED,))


@dataclass
class Project:
    """A project with one model; every part can be changed before its next check."""

    folder: Path
    config: str = CONFIG
    lock: Lock = field(
        default_factory=lambda: Lock(
            targets={"server": LockedTarget(policy="p", runtimes=(runtime("1.23.2"),))},
            packages=(package("onnxruntime", "1.23.2"), package("numpy", "2.4.6")),
            models={"m.onnx": MODEL},
        )
    )
    stages: frozenset[Stage] = frozenset(ALL_STAGES)
    seed: int = 0
    fresh: bool = False
    line: int = 7
    builds: HarvestedBuilds = field(default_factory=HarvestedBuilds)

    def create(self) -> Project:
        """Write the files."""
        write(self.folder / "m.onnx")
        write(self.folder / "float.onnx", RELU.replace("Relu", "Abs"))
        (self.folder / "samples").mkdir()
        np.savez(self.folder / "samples" / "a.npz", x=np.ones(3))
        (self.folder / "inputs").mkdir()
        zipfile.ZipFile(self.folder / "inputs" / STORED, "w").close()
        return self

    def check(self) -> tuple[OutcomeCache, PlannedModel]:
        """Start a check; return its cache and the planned model."""
        project = project_of(self.folder, self.config)
        models = tuple(project.selected(name) for name in ("float.onnx", "m.onnx"))
        planned = plan_models(project, self.lock, models)
        facts = {it.path: read_facts(it.absolute, it.path) for it in models}
        places = {it.path: Place("onnxgate.lock", self.line) for it in models}
        request = GateRequest(
            Checkout(project, self.lock, "", "onnxgate.lock", models),
            Selection(self.stages, CaseSelection(self.seed)),
            IgnorePolicy(datetime.date(2026, 1, 1)),
            lambda: pytest.fail("nothing is run"),
            caches=RunCaches(self.folder / "results", fresh=self.fresh, inputs=lambda: self.folder / "inputs"),
        )
        results = StageResults(file=FileResult(), lock=LockResult(facts, places))
        return OutcomeCache(request, self.folder / "results", results, planned, self.builds), planned[-1]

    def keep(self, collected: CollectedModel, replay: Replay | None = REPLAY) -> None:
        """Check the model, and cache the outcome."""
        cache, planned = self.check()
        cache.keep(planned, collected, replay, ["ab" * 32])

    def recall(self) -> ExecutionResult | None:
        """Return the outcome that the next check reuses, or None if it runs the model."""
        cache, planned = self.check()
        return next(cache.restore(planned), None)

    def entry(self) -> Path:
        """Return the only entry."""
        (file,) = (self.folder / "results").glob("*/outcome.msgpack")
        return file


def make_outcome(line: int = 7) -> CollectedModel:
    """Return an outcome with an example of every kind of content."""
    place = Place("onnxgate.lock", line)
    case = InputCase(name="a", origin="generated", inputs={"x": "/gone.npy"}, sizes={"N": 3})
    attempt = Attempt(optimization="all", outcome="completed", case=AttemptCase(name="a", sizes={"N": 3}))
    runs = ModelRuns(model="m.onnx", place=place, runtime=NAME, attempts=(attempt,))
    difference = Difference(
        output="y",
        case="a",
        optimization="all",
        agrees=False,
        metric="worst_abs",
        value=math.inf,
        bound=0.1,
        bound_from="type",
    )
    comparison = Comparison(
        model="m.onnx", place=place, pair="runtime", runtime=NAME, reference="other", differences=(difference,)
    )
    figure = Measured(
        model="m.onnx", output="y", pair="p", case="a", metric="m", value=None, bound=1.5, bound_from="type"
    )
    step = StepResult(
        (runs, comparison),
        (IncompleteCheck(Stage.RUNTIME, "m.onnx", "", "its inputs cannot be run", "give real ones"),),
        (IncompleteCheck(Stage.PARITY, "m.onnx", NAME, "it is random", by_design=True),),
        (figure,),
    )
    return CollectedModel((case,), (runs,), step, (NAME, NAME), is_lasting=True)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Create a project with a cached outcome."""
    made = Project(tmp_path).create()
    made.keep(make_outcome())
    return made


def test_unchanged_model_has_the_same_outcome(project: Project) -> None:
    """Every value equals that of the run, and so does everything that the gate derives from it."""
    collected, result = make_outcome(), project.recall()

    assert result is not None
    assert repr(collected.step) == repr(result.step)
    assert (frozenset({("m.onnx", NAME)}), (REPLAY,)) == (result.ran, result.replays)
    assert ((str(project.folder / "m.onnx"), NAME),) * 2 == result.reused


def _copy(project: Project, to: Path) -> Project:
    shutil.copytree(project.folder, to)
    return dataclasses.replace(project, folder=to)


def test_another_checkout_has_the_same_outcome(project: Project, tmp_path: Path) -> None:
    """The outcome is reused in another checkout, unless a text in it contains the path of the original folder."""
    copy = _copy(project, tmp_path / "copy")
    collected = make_outcome()
    named = IncompleteCheck(Stage.RUNTIME, "m.onnx", "", f"{copy.folder}/m.onnx cannot be run")
    step = msgspec.structs.replace(collected.step, undone=(named,))
    reused = copy.recall()
    copy.fresh = True
    copy.keep(msgspec.structs.replace(collected, step=step))
    copy.fresh = False
    own, other = copy.recall(), _copy(copy, tmp_path / "other").recall()

    assert reused is not None
    assert own is not None
    assert (named,) == own.step.undone
    assert other is None


def test_entry_of_another_model_moves_places(project: Project) -> None:
    """A changed lock line only changes the location of findings, so the outcome is reused."""
    project.line = 99
    result = project.recall()

    assert result is not None
    assert repr(make_outcome(99).step) == repr(result.step)


def test_without_the_runtime_stage_its_evidence_is_not_judged(tmp_path: Path) -> None:
    """The runs are still recorded, so that the gate knows which models were compared."""
    project = Project(tmp_path, stages=frozenset({Stage.PARITY})).create()
    collected = make_outcome()
    subjects = tuple(it for it in collected.step.subjects if isinstance(it, Comparison))
    project.keep(msgspec.structs.replace(collected, step=msgspec.structs.replace(collected.step, subjects=subjects)))
    result = project.recall()

    assert result is not None
    assert (subjects, frozenset({("m.onnx", NAME)})) == (result.step.subjects, result.ran)


def _pin(project: Project, **changes: Any) -> None:
    (locked,) = project.lock.targets["server"].runtimes
    target = LockedTarget(policy="p", runtimes=(msgspec.structs.replace(locked, **changes),))
    project.lock = msgspec.structs.replace(project.lock, targets={"server": target})


def _reseal(project: Project) -> None:
    wheels = tuple(
        msgspec.structs.replace(
            it, wheels=tuple(msgspec.structs.replace(wheel, sha256="dd" * 32) for wheel in it.wheels)
        )
        for it in project.lock.packages
    )
    project.lock = msgspec.structs.replace(project.lock, packages=wheels)


def _relock(project: Project) -> None:
    locked = msgspec.structs.replace(MODEL, tolerance={"y": MeasuredTolerance(noise=1.0, bound=2.0)})
    project.lock = msgspec.structs.replace(project.lock, models={"m.onnx": locked})


def _add_config(text: str) -> Callable[[Project], None]:
    def add(project: Project) -> None:
        project.config += text

    return add


def _harvest(project: Project) -> None:
    support = BuildSupport(limits.load_limit_table().releases["1.23.2"], None, "ee" * 32)
    project.builds = HarvestedBuilds(supports={NAME: support})


CHANGES: dict[str, Callable[[Project], object]] = {
    "model": lambda it: write(it.folder / "m.onnx", RELU.replace("Relu", "Neg")),
    "float model": lambda it: write(it.folder / "float.onnx", RELU.replace("Relu", "Neg")),
    "input file": lambda it: np.savez(it.folder / "samples" / "a.npz", x=np.zeros(3)),
    "more input files": lambda it: np.savez(it.folder / "samples" / "b.npz", x=np.ones(3)),
    "renamed input file": lambda it: (it.folder / "samples" / "a.npz").rename(it.folder / "samples" / "c.npz"),
    "stored inputs": lambda it: (it.folder / "inputs" / STORED).unlink(),
    "tolerance": _add_config("tolerance = { y = { rtol = 1.0, atol = 1.0 } }\n"),
    "sizes": _add_config("sizes = { N = [5] }\n"),
    "level": _add_config('[rules]\nrun-failed = "warning"\n'),
    "time limit": _add_config("[limits]\ntime-s = 1\n"),
    "memory limit": _add_config("[limits]\nmemory-mib = 1000\n"),
    "optimization": lambda it: setattr(
        it, "config", it.config.replace('1.23.2"', '1.23.2"\noptimization = ["disabled"]')
    ),
    "not required": lambda it: setattr(it, "config", it.config.replace('1.23.2"', '1.23.2"\nrequired = false')),
    "seed": lambda it: setattr(it, "seed", 1),
    "stages": lambda it: setattr(it, "stages", frozenset({Stage.RUNTIME})),
    "no cache": lambda it: setattr(it, "fresh", True),
    "release": lambda it: _pin(it, release="1.22.0"),
    "python": lambda it: _pin(it, python="3.12"),
    "packages": lambda it: _pin(it, packages=("onnxruntime==1.23.2",)),
    "wheels": _reseal,
    "locked tolerance": _relock,
    "harvested support": _harvest,
}


@pytest.mark.parametrize("name", CHANGES)
def test_any_change_runs_the_model(project: Project, name: str) -> None:
    """Every input of an outcome is in its key: it is reused before the change, and not after it."""
    before = project.recall()
    CHANGES[name](project)

    assert before is not None
    assert project.recall() is None


@pytest.mark.parametrize("part", ["digest_program", "identify_machine", "list_relevant_variables"])
def test_another_program_or_machine_runs_the_model(
    project: Project, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code, processor, math library, and environment variables of libraries are part of the key."""
    monkeypatch.setattr(outcome_cache, part, lambda: "other")

    assert project.recall() is None


def test_every_file_of_the_program_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is not reused after a change of any module, whichever the stage."""
    package = Path(outcome_cache.__file__).parents[1]
    copy = shutil.copytree(package, tmp_path / "onnxgate", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(outcome_cache, "__file__", str(copy / "gate" / "outcome_cache.py"))
    before = outcome_cache.digest_program.__wrapped__()
    digests = set()
    for name in ("numerics/agreement.py", "runtimes/worker/adapters/onnxruntime.py", "inputs/cases.py"):
        with (copy / name).open("a") as file:
            file.write("#\n")
        digests.add(outcome_cache.digest_program.__wrapped__())

    assert len(digests - {before}) == 3


@pytest.mark.parametrize("position", [0, 31, 32, 40, 200, -1])
def test_damaged_entry_is_removed(project: Project, position: int) -> None:
    """A changed byte at any position invalidates the entry."""
    file = project.entry()
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)

    assert project.recall() is None
    assert not file.exists()


def test_entry_under_another_key_is_not_read(project: Project) -> None:
    """An intact entry for another state of the project is not used."""
    entry = project.entry().parent
    project.seed = 1
    project.keep(make_outcome(), None)
    (other,) = {*entry.parent.iterdir()} - {entry}
    shutil.rmtree(other)
    shutil.copytree(entry, other)

    assert project.recall() is None


def test_endless_entries_are_not_read(project: Project) -> None:
    """Only a regular file of limited size is read."""
    file = project.entry()
    file.unlink()
    file.symlink_to("/dev/zero")

    assert project.recall() is None

    project.keep(make_outcome())
    os.truncate(project.entry(), outcome_cache.MAX_OUTCOME_BYTES + 1)

    assert project.recall() is None


def test_file_that_changes_during_the_run_is_not_cached(tmp_path: Path) -> None:
    """If a file changes during the run, the outcome may be of either content."""
    project = Project(tmp_path).create()
    cache, planned = project.check()
    write(tmp_path / "m.onnx", RELU.replace("Relu", "Neg"))
    cache.keep(planned, make_outcome(), None, [])

    assert not (tmp_path / "results").exists()


NEVER: dict[str, str] = {
    "source": 'source = "export.py:build"\n',
    "command": 'command = ["{python}", "export.py", "{output}"]\n',
    "callable": 'inputs = "samples.py:batches"\n',
    "ratio": "budget = { slower-than-baseline = 1.2 }\n",
}


@pytest.mark.parametrize("name", NEVER)
def test_results_of_project_code_are_not_cached(tmp_path: Path, name: str) -> None:
    """Project code may read any file, and measured times vary, so these outcomes are not cached."""
    (tmp_path / "export.py").write_text("def build(): ...\n")
    (tmp_path / "samples.py").write_text("def batches(): ...\n")
    config = CONFIG.replace('inputs = "samples/*.npz"\n', "") if name == "callable" else CONFIG
    project = Project(tmp_path, config + NEVER[name]).create()
    project.keep(make_outcome())

    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "target", ['python = "mine"', 'python = "mine"\nproviders = ["CUDAExecutionProvider", "CPUExecutionProvider"]']
)
def test_user_builds_and_devices_are_not_cached(tmp_path: Path, target: str) -> None:
    """Neither an environment nor a driver has a digest, so these outcomes are not cached."""
    project = Project(tmp_path, CONFIG.replace('1.23.2"', f'1.23.2"\n{target}')).create()
    _pin(project, environment="mine")
    project.keep(make_outcome())

    assert not (tmp_path / "results").exists()


def test_transient_outcomes_are_not_cached(tmp_path: Path) -> None:
    """Outcomes with transient reasons or without the stored inputs of a replay are not cached."""
    project = Project(tmp_path).create()
    project.keep(msgspec.structs.replace(make_outcome(), is_lasting=False))
    project.keep(make_outcome(), msgspec.structs.replace(REPLAY, inputs=()))

    assert not (tmp_path / "results").exists()


def test_transient_reason_is_not_cached() -> None:
    """Reasons such as timeouts and disk errors may not recur, so they are not cached."""
    reason = IncompleteCheck(Stage.PARITY, "m.onnx", "", "OSError: no space left", by_design=True, transient=True)

    assert is_lasting_step(StepResult(skipped=(replace(reason, transient=False),)))
    assert not is_lasting_step(StepResult(skipped=(reason,)))
    assert not is_lasting_step(StepResult(undone=(reason,)))


NO_KERNEL = Failure(
    type="NotImplemented",
    text="[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Det(11)",
)
THREADS = Failure(type="RuntimeException", text="pthread_create failed: Resource temporarily unavailable")
MEMORY = Failure(type="Fail", text=NO_KERNEL.text, memory=True)


def _completed(case: CaseResult) -> Observation:
    return Completed(result=RunResult(providers=(), outputs=("y",), cases=(case,)))


@pytest.mark.parametrize(
    ("lasts", "answer"),
    [
        (True, _completed(CaseResult(outputs=("y.npy",)))),
        (True, _completed(CaseResult(outputs=("y.npy",), aliased=("y",)))),
        (True, _completed(CaseResult(failure=NO_KERNEL))),
        (True, Completed(result=LoadResult(providers=()))),
        (True, Refused(failure=NO_KERNEL)),
        (False, _completed(CaseResult(outputs=("y.npy",), unstable=("y",)))),
        (False, _completed(CaseResult(failure=THREADS))),
        (False, _completed(CaseResult(failure=MEMORY))),
        (False, Refused(failure=THREADS)),
        (False, Refused(failure=MEMORY)),
        (False, Refused(failure=Failure(type="RuntimeError", text="Failed to construct locale with name:de_DE"))),
        (False, Crashed(signal="SIGSEGV", during="load", log="")),
        (False, TimedOut(limit_s=1.0, during="load", log="")),
        (False, Unavailable(reason="no index")),
    ],
)
def test_machine_dependent_failure_is_not_cached(lasts: bool, answer: Observation) -> None:
    """A rejection for a known reason is due to the model; a crash, lack of memory or an unknown error may not be."""
    future: Future[Observation] = Future()
    future.set_result(answer)

    assert lasts == is_lasting_answer(future)


def test_unfinished_answers_do_not_last() -> None:
    """Jobs that were cancelled or failed internally have no lasting result."""
    cancelled: Future[Observation] = Future()
    cancelled.cancel()
    failed: Future[Observation] = Future()
    failed.set_exception(OSError())

    assert not any(map(is_lasting_answer, (Future(), cancelled, failed)))
