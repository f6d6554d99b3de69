"""Cache key of a run: everything that its outputs depend on, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.jobs import CaseResult, Completed, InputCase, Observation, Run, RunResult
from onnxgate.gate import result_cache
from onnxgate.gate.result_cache import ResultCache
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec
from tests.gate.test_result_cache import read_record, write_record

RUNTIME = LockedRuntime(engine="onnxruntime", release="1.23.2", python="3.11", packages=("onnxruntime==1.23.2",))
WHEEL = Wheel(file="onnxruntime-1.23.2-cp311-none-any.whl", sha256="ab" * 32)
PACKAGE = LockedPackage(name="onnxruntime", version="1.23.2", python="3.11", wheels=(WHEEL,))
SEAT = WorkerSpec.of_runtime(RUNTIME, [PACKAGE])


class Bench:
    """A model, a library, an input and a cache as files that can be changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "m.onnx"
        self.library = folder / "ops.so"
        self.fed = folder / "x.npy"
        self.limits = JobLimits()
        self.content = "1" * 64
        self.model.write_bytes(b"a model")
        self.library.write_bytes(b"operators")
        np.save(self.fed, np.ones(3, np.float32))
        self._count = 0

    def store(self, *, fresh: bool = False) -> ResultCache:
        """Open the cache as a later check would."""
        files = {str(self.model): {self.model: result_cache.sha256_of(self.model)}}
        return ResultCache(self.folder / "kept", {str(self.model): self.content}, files, self.limits, fresh=fresh)

    def job(self) -> Run:
        """Return the run with its own output folder."""
        self._count += 1
        output = self.folder / f"out{self._count}"
        output.mkdir()
        case = InputCase(name="a", origin="generated", inputs={"x": str(self.fed)})
        return Run(model=str(self.model), cases=(case,), output=str(output), extensions=(str(self.library),))

    def gave(self, job: Run, value: float = 1.0) -> Observation:
        """Write the result of the run."""
        path = Path(job.output, "0", "0.npy")
        path.parent.mkdir()
        np.save(path, np.full(4, value))
        case = CaseResult(outputs=(str(path),))
        return Completed(result=RunResult(providers=("CPU",), outputs=("y",), cases=(case,)))

    def find_reused(self) -> float | None:
        """Return the value that a later check reuses, or None if it runs the model."""
        got = self.store().find(SEAT, self.job())
        if not isinstance(got, Completed) or not isinstance(got.result, RunResult):
            return None
        return float(np.load(str(got.result.cases[0].outputs[0]))[0])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Create a bench on which the model was run once."""
    made = Bench(tmp_path)
    job = made.job()
    made.store().keep(SEAT, job, made.gave(job))
    return made


def other_worker(_: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the code of onnxgate's worker."""
    monkeypatch.setattr(result_cache, "_digest_worker", lambda: "other")


def other_processor(_: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the machine."""
    monkeypatch.setattr(result_cache, "identify_machine", lambda: "other")


def other_variable(_: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change a variable that math libraries read."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")


def other_time(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change the time limit, which the run may exceed."""
    bench.limits = JobLimits(time_s=1.0)


def other_memory(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change the memory limit, which the run may exceed."""
    bench.limits = JobLimits(memory_mib=64)


def other_library(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change one byte of a custom operator library."""
    bench.library.write_bytes(b"operatorr")


def other_input(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change one bit of the input."""
    np.save(bench.fed, np.array([1, 1, np.nextafter(np.float32(1), np.float32(2))], np.float32))


def other_model(bench: Bench, _: pytest.MonkeyPatch) -> None:
    """Change the digest of the model's content."""
    bench.content = "1" * 63 + "2"


@pytest.mark.parametrize(
    "change",
    [
        *(other_worker, other_processor, other_variable, other_time),
        *(other_memory, other_library, other_input, other_model),
    ],
)
def test_key_depends_on_every_part(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, change: Callable[[Bench, pytest.MonkeyPatch], None]
) -> None:
    """The result is reused before the change and not after it, which shows that the change is the reason."""
    assert bench.find_reused() == 1.0

    change(bench, monkeypatch)
    assert bench.find_reused() is None


def test_entry_of_another_run_is_not_used(bench: Bench) -> None:
    """An entry contains the full key of its run, so one stored under another run's name is not used."""
    (entry,) = (bench.folder / "kept").iterdir()
    record = read_record(entry)
    key = json.loads(record)["run"].encode()
    write_record(entry, record.replace(key, key[:-1] + (b"0" if key[-1:] != b"0" else b"1")))

    assert bench.find_reused() is None


def test_irrelevant_variables_do_not_change_the_key(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables such as `TERM` and `PATH` do not affect the outputs."""
    monkeypatch.setenv("TERM", "another")
    monkeypatch.setenv("PATH", "/elsewhere")

    assert bench.find_reused() == 1.0


def test_changed_file_is_run(bench: Bench) -> None:
    """The key has the digest of the static stages, so a file that changed since is run."""
    store = bench.store()
    bench.model.write_bytes(b"another")

    assert store.find(SEAT, bench.job()) is None


def test_model_changed_during_its_run_is_not_cached(tmp_path: Path) -> None:
    """If a model changes during its run, its outputs would be stored under the key of another content."""
    bench = Bench(tmp_path)
    store, job = bench.store(), bench.job()
    assert store.find(SEAT, job) is None

    bench.model.write_bytes(b"another")
    store.keep(SEAT, job, bench.gave(job))
    bench.model.write_bytes(b"a model")

    assert bench.find_reused() is None


def test_fresh_check_stores_but_does_not_reuse(bench: Bench) -> None:
    """A fresh check does not reuse results, but stores its own for later checks."""
    store, job = bench.store(fresh=True), bench.job()

    assert store.find(SEAT, job) is None
    assert not store.expects(SEAT, [job])

    store.keep(SEAT, job, bench.gave(job, 2.0))
    assert bench.find_reused() == 2.0


def test_cached_model_needs_no_runtime(bench: Bench) -> None:
    """A runtime need not be started if results for the model exist; whether the inputs match is checked later."""
    job = bench.job()
    np.save(bench.fed, np.zeros(3, np.float32))

    assert bench.store().expects(SEAT, [job])
    bench.content = "2" * 64
    assert not bench.store().expects(SEAT, [job])


def test_another_node_of_the_same_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Node.js is not locked, so an in-place update of the same size must be detected."""
    program = tmp_path / "node"
    program.write_bytes(b"22.1")
    monkeypatch.setattr(shutil, "which", lambda _: str(program))
    before = result_cache.identify_node.__wrapped__()
    program.write_bytes(b"22.2")
    os.utime(program, ns=(0, 0))

    assert before != result_cache.identify_node.__wrapped__()


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system has no such limit")
def test_usable_processors_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of usable processors affects the number of threads and thus the order of summation."""
    before = result_cache.identify_machine.__wrapped__()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 4, 5, 6})

    assert before != result_cache.identify_machine.__wrapped__()
