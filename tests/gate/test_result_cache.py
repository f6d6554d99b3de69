"""Results cached by content: which are reused, and which never are."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from onnxgate.core.cache_entries import add_checksum, verify_checksum
from onnxgate.core.jobs import CaseResult, Completed, Failure, InputCase, Load, Observation, Refused, Run, RunResult
from onnxgate.gate.result_cache import ResultCache
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.worker_spec import WorkerSpec

RUNTIME = LockedRuntime(engine="onnxruntime", release="1.23.2", python="3.11", packages=("onnxruntime==1.23.2",))


def locked_runtime(sha256: str = "ab", **changes: Any) -> WorkerSpec:
    """Return a locked runtime whose wheel has that hash."""
    wheel = Wheel(file="onnxruntime-1.23.2-cp311-none-any.whl", sha256=sha256 * 32)
    package = LockedPackage(name="onnxruntime", version="1.23.2", python="3.11", wheels=(wheel,))
    return WorkerSpec.of_runtime(msgspec.structs.replace(RUNTIME, **changes), [package])


class Machine:
    """A folder with a model, an input, a cache, and simulated output of a runtime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept = folder / "kept"
        self.fed = folder / "x.npy"
        np.save(self.fed, np.ones(3, np.float32))
        self.content = "1" * 64
        self.count = 0

    def store(self) -> ResultCache:
        """Open the cache as a later check would."""
        return ResultCache(self.kept, {"/m.onnx": self.content})

    def job(self, **changes: Any) -> Run:
        """Return a run of one case with its own output folder."""
        self.count += 1
        output = self.folder / f"out{self.count}"
        output.mkdir()
        plain = Run(
            model="/m.onnx",
            cases=(InputCase(name="a", origin="generated", inputs={"x": str(self.fed)}),),
            output=str(output),
        )
        return msgspec.structs.replace(plain, **changes)

    def gave(self, job: Run, **changes: Any) -> Observation:
        """Write the result of a run: one output, and one that numpy cannot represent."""
        path = Path(job.output, "0", "0.npy")
        path.parent.mkdir()
        np.save(path, np.arange(4, dtype=np.float64))
        case = msgspec.structs.replace(CaseResult(outputs=(str(path), None)), **changes)
        return Completed(result=RunResult(providers=("CPU",), outputs=("y", "z"), cases=(case,)))

    def store_result(self) -> None:
        """Store the result of one run."""
        job = self.job()
        self.store().keep(locked_runtime(), job, self.gave(job))

    def entry(self) -> Path:
        """Return the folder of the only entry."""
        (folder,) = self.kept.iterdir()
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """Return a machine without cached results."""
    return Machine(tmp_path)


def test_equal_run_is_reused(machine: Machine) -> None:
    """Reused outputs are written to the output folder of the new job."""
    machine.store_result()
    job = machine.job()
    actual = machine.store().find(locked_runtime(), job)

    assert isinstance(actual, Completed)
    assert isinstance(actual.result, RunResult)
    first, second = actual.result.cases[0].outputs
    assert second is None
    assert str(Path(job.output, "0", "0.npy")) == first
    assert [0.0, 1.0, 2.0, 3.0] == np.load(str(first)).tolist()


def test_result_written_during_the_check_is_not_reused(machine: Machine) -> None:
    """A source that runs during the check could write a result for the model that it exports."""
    store = machine.store()
    time.sleep(0.02)  # file systems measure time in steps of up to 10 ms
    machine.store_result()

    assert store.find(locked_runtime(), machine.job()) is None
    assert list(machine.kept.iterdir()) == []


def test_result_changed_during_the_check_is_not_reused(machine: Machine) -> None:
    """The modification time of a file can be set to any time, so it does not prove that the file is unchanged."""
    machine.store_result()
    store = machine.store()
    time.sleep(0.02)
    changed = machine.entry() / "entry.json"
    before = changed.stat().st_mtime
    changed.write_bytes(changed.read_bytes())
    os.utime(changed, (before, before))

    assert store.find(locked_runtime(), machine.job()) is None


def test_different_run_is_not_reused(machine: Machine) -> None:
    """A different model, input, level, provider, wheel, release or Python version is a different run."""
    machine.store_result()
    store = machine.store()
    others = [
        (locked_runtime("cd"), machine.job()),
        (locked_runtime(release="1.23.1"), machine.job()),
        (locked_runtime(python="3.12"), machine.job()),
        (locked_runtime(), machine.job(optimization="disabled")),
        (locked_runtime(), machine.job(providers=("Other",))),
        (locked_runtime(), machine.job(again=False)),
        (locked_runtime(), machine.job(extensions=("more",))),
        (locked_runtime(), machine.job(model="/other.onnx")),
        (locked_runtime(environment=".venv"), machine.job()),
    ]

    assert [None] * len(others) == [store.find(where, job) for where, job in others]

    np.save(machine.fed, np.zeros(3, np.float32))
    assert machine.store().find(locked_runtime(), machine.job()) is None
    np.save(machine.fed, np.ones(3, np.float32))
    machine.content = "2" * 64
    assert machine.store().find(locked_runtime(), machine.job()) is None


@pytest.mark.parametrize(
    "changes",
    [{"failure": Failure(type="Fail", text="no")}, {"unstable": ("y",)}, {"aliased": ("y",)}],
    ids=["failed", "unstable", "aliased"],
)
def test_failed_run_is_not_cached(machine: Machine, changes: dict[str, Any]) -> None:
    """Failed runs are not cached, so that the failure occurs again."""
    job = machine.job()
    machine.store().keep(locked_runtime(), job, machine.gave(job, **changes))

    assert not machine.kept.exists()


def test_refusal_is_not_cached(machine: Machine) -> None:
    """Rejected models and jobs other than runs are not cached."""
    machine.store().keep(locked_runtime(), machine.job(), Refused(failure=Failure(type="Fail", text="no")))
    machine.store().keep(locked_runtime(), Load(model="/m.onnx"), Refused(failure=Failure(type="Fail", text="no")))

    assert not machine.kept.exists()


def read_record(entry: Path) -> bytes:
    """Return the record of an entry, without its checksum."""
    record = verify_checksum(entry.name, (entry / "entry.json").read_bytes())
    assert record is not None
    return record


def write_record(entry: Path, record: bytes) -> None:
    """Write a changed record with a checksum that fits."""
    (entry / "entry.json").write_bytes(add_checksum(entry.name, record))


def spoil_output(entry: Path) -> None:
    """Change the values."""
    np.save(entry / "0" / "0.npy", np.zeros(4))


def spoil_shape(entry: Path) -> None:
    """Declare a shape that is larger than the data, and update the hash."""
    content = (entry / "0" / "0.npy").read_bytes().replace(b"(4,)", b"(9,)")
    (entry / "0" / "0.npy").write_bytes(content)
    set_hash(entry, "0/0.npy", content)


def spoil_pickle(entry: Path) -> None:
    """Store an array of objects, and update the hash."""
    np.save(entry / "0" / "0.npy", np.array([{}], dtype=object), allow_pickle=True)
    set_hash(entry, "0/0.npy", (entry / "0" / "0.npy").read_bytes())


def spoil_path(entry: Path) -> None:
    """Use a path that leaves the folder."""
    write_record(entry, read_record(entry).replace(b"0/0.npy", b"../0/0.npy"))


def spoil_link(entry: Path) -> None:
    """Replace the file by a link to the same content."""
    (entry / "0" / "0.npy").rename(entry / "elsewhere.npy")
    (entry / "0" / "0.npy").symlink_to(entry / "elsewhere.npy")


def spoil_entry(entry: Path) -> None:
    """Truncate the record."""
    content = (entry / "entry.json").read_bytes()
    (entry / "entry.json").write_bytes(content[: len(content) // 2])


def spoil_cases(entry: Path) -> None:
    """Remove the case from the record."""
    record = json.loads(read_record(entry))
    record["result"]["cases"], record["files"] = [], {}
    write_record(entry, json.dumps(record).encode())


def set_hash(entry: Path, name: str, content: bytes) -> None:
    """Set the hash of a file in the record."""
    record = json.loads(read_record(entry))
    record["files"][name] = hashlib.sha256(content).hexdigest()
    write_record(entry, json.dumps(record).encode())


@pytest.mark.parametrize(
    "spoil", [spoil_output, spoil_shape, spoil_pickle, spoil_path, spoil_link, spoil_entry, spoil_cases]
)
def test_damaged_entry_is_replaced(machine: Machine, spoil: Any) -> None:
    """A damaged entry is removed, so that the new result can be stored."""
    machine.store_result()
    spoil(machine.entry())

    assert machine.store().find(locked_runtime(), machine.job()) is None
    assert [] == list(machine.kept.iterdir())


def test_full_disk(machine: Machine) -> None:
    """If a result cannot be stored, no error is raised."""
    machine.kept.write_text("a file where the folder should be", encoding="utf-8")
    job = machine.job()
    machine.store().keep(locked_runtime(), job, machine.gave(job))

    assert machine.store().find(locked_runtime(), machine.job()) is None
