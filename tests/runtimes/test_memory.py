"""Memory limits and estimates of jobs, and the available memory of the machine."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.core.jobs import Benchmark, Command, Export, InputCase, Inputs, Load, Probe, Run, Trace
from onnxgate.model.reading import omitted_data
from onnxgate.runtimes.memory import (
    EXPORT_FACTOR,
    FRAMEWORK_BYTES,
    LIST_FACTOR,
    UNKNOWN_MEMORY_BYTES,
    WEIGHT_FACTOR,
    WORKER_BYTES,
    ModelSize,
    default_memory_mib,
    estimate_job_bytes,
    measure_available_bytes,
    memory_limit_mib,
)
from onnxgate.runtimes.worker_slots import WorkerSlots
from onnxgate.runtimes.worker_spec import JobLimits
from tests.harness.models import write
from tests.model.reading.test_external_data import external_model

MIB = 2**20


def write_model_with_data(folder: Path) -> Path:
    """Write a model with 8 MiB of external data, and another file next to it."""
    for name, size_mib in (("w.bin", 8), ("other.bin", 64)):
        (folder / name).touch()
        os.truncate(folder / name, size_mib * MIB)
    return write(folder / "model.onnx", external_model())


def write_ensemble(path: Path, count: int) -> Path:
    """Write a model with `count` values in each of two lists, in a branch, and 4 MiB of weights."""
    trees = helper.make_node(
        "TreeEnsembleRegressor",
        ["X"],
        ["Y"],
        domain="ai.onnx.ml",
        nodes_values=[0.5] * count,
        nodes_modes=["BRANCH_LEQ"] * count,
    )
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)
    body = helper.make_graph([trees], "body", [], [output])
    branch = helper.make_node("If", ["B"], ["Z"], then_branch=body, else_branch=body)
    weights = numpy_helper.from_array(np.zeros(MIB, np.float32), "W")
    constant = helper.make_node("Constant", [], ["C"], value=numpy_helper.from_array(np.zeros(MIB, np.float32)))
    graph = helper.make_graph([branch, constant], "graph", [], [], [weights])
    return write(path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_limit_follows_from_the_model_alone(tmp_path: Path) -> None:
    """Other files in the model's folder do not raise the limit; external data does."""
    model = write_model_with_data(tmp_path)

    limit_mib = memory_limit_mib(Load(model=str(model)), JobLimits())

    assert limit_mib == default_memory_mib(ModelSize(model.stat().st_size + 8 * MIB))


def test_limit_of_a_file_that_is_no_model(tmp_path: Path) -> None:
    """The limit of a file that is not a model follows from the file size."""
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 100)

    assert memory_limit_mib(Load(model=str(tmp_path / "m.onnx")), JobLimits()) == default_memory_mib(ModelSize(100))
    assert memory_limit_mib(Load(model=str(tmp_path / "none.onnx")), JobLimits()) == default_memory_mib(ModelSize(0))


def test_estimate_of_weights(tmp_path: Path) -> None:
    """External weights are counted, for both models of a benchmark; of the inputs, only the largest case is counted."""
    model = write_model_with_data(tmp_path)
    (tmp_path / "small.npy").write_bytes(bytes(1000))
    (tmp_path / "large.npy").write_bytes(bytes(3000))
    cases = tuple(
        InputCase(name=name, origin="generated", inputs={"x": str(tmp_path / f"{name}.npy")})
        for name in ("small", "large", "absent")
    )
    weights = WEIGHT_FACTOR * (model.stat().st_size + 8 * MIB)
    benchmark = Benchmark(model=str(model), baseline=str(model), cases=cases, rounds=1, memory_runs=0, time_s=1)

    assert estimate_job_bytes(Load(model=str(model))) == WORKER_BYTES + weights
    assert estimate_job_bytes(Run(model=str(model), cases=cases, output="")) == WORKER_BYTES + weights + 3000
    assert estimate_job_bytes(benchmark) == WORKER_BYTES + 2 * weights + 3000


def test_estimate_of_attribute_lists(tmp_path: Path) -> None:
    """Lists of numbers and strings need more memory than weights, because runtimes parse each element."""
    model = write_ensemble(tmp_path / "m.onnx", count := 300_000)
    lists = 2 * count * (5 + 12)  # in both branches; a tag and a float, or a tag, a length and ten characters
    weights = model.stat().st_size - lists

    estimate = estimate_job_bytes(Load(model=str(model)))

    assert estimate == pytest.approx(WORKER_BYTES + LIST_FACTOR * lists + WEIGHT_FACTOR * weights, rel=1e-4)


def test_estimate_reads_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading the elements of a 200 MB tree ensemble takes half a second and does not affect the estimate."""
    model = write_ensemble(tmp_path / "m.onnx", 300_000)
    expected = estimate_job_bytes(Load(model=str(model)))
    copy = write_ensemble(tmp_path / "copy.onnx", 300_000)
    monkeypatch.setattr(omitted_data, "iter_list_pieces", lambda *_: pytest.fail("a list is read"))

    assert estimate_job_bytes(Load(model=str(copy))) == expected


def test_limit_leaves_room_for_attribute_lists(tmp_path: Path) -> None:
    """A tree ensemble of more than 400 MB fits into its limit, although loading takes 13 times its size."""
    model = write_ensemble(tmp_path / "m.onnx", 300_000)
    size, lists = model.stat().st_size, 2 * 300_000 * (5 + 12)

    limit_mib = memory_limit_mib(Load(model=str(model)), JobLimits())

    assert limit_mib == default_memory_mib(ModelSize(size, lists))
    assert default_memory_mib(ModelSize(600 * MIB, 600 * MIB)) > 1.3 * LIST_FACTOR * 600
    assert default_memory_mib(ModelSize(600 * MIB)) == 4096 + 2400


def test_estimate_of_an_export(tmp_path: Path) -> None:
    """An export needs memory for the framework and for copies of the weights, estimated from the committed model."""
    model = str(write_model_with_data(tmp_path))
    weights = EXPORT_FACTOR * (Path(model).stat().st_size + 8 * MIB)
    case = InputCase(name="one", origin="generated", inputs={})
    export = Export(source="", output="", folder="", opset=None, ir_version_max=None, committed=model)
    trace = Trace(
        source="", output="", folder="", opset=None, case=case, names=(), outputs=(), limit_bytes=1, committed=model
    )
    first_one = Command(argv=(), folder="", committed=str(tmp_path / "none.onnx"))

    assert estimate_job_bytes(export) == FRAMEWORK_BYTES + weights
    assert estimate_job_bytes(trace) == FRAMEWORK_BYTES + weights
    assert estimate_job_bytes(Command(argv=(), folder="", committed=model)) == FRAMEWORK_BYTES + weights
    assert estimate_job_bytes(first_one) == FRAMEWORK_BYTES
    assert estimate_job_bytes(Command(argv=(), folder="")) == FRAMEWORK_BYTES


def test_estimate_of_other_jobs_of_a_toolchain() -> None:
    """Input callables, and probes that import an exporter, need memory for a framework."""
    assert estimate_job_bytes(Inputs(source="", output="", folder="")) == FRAMEWORK_BYTES
    assert estimate_job_bytes(Probe(exporters=("torch",))) == FRAMEWORK_BYTES


@pytest.mark.parametrize("available_gib", [4, 16, 24, 1024])
def test_exports_of_small_models_are_not_large(available_gib: int) -> None:
    """Exports of small models run concurrently with other jobs."""
    slots = WorkerSlots(2, lambda: available_gib * 1024 * MIB)

    assert not slots.is_large(FRAMEWORK_BYTES + EXPORT_FACTOR * MIB)


def test_estimate_without_a_model(tmp_path: Path) -> None:
    """A missing or invalid model gets the default estimate."""
    (tmp_path / "m.onnx").write_bytes(b"\xff" * 100)

    assert estimate_job_bytes(Probe()) == WORKER_BYTES
    assert estimate_job_bytes(Load(model=str(tmp_path / "none.onnx"))) == WORKER_BYTES
    assert estimate_job_bytes(Load(model=str(tmp_path / "m.onnx"))) == WORKER_BYTES + WEIGHT_FACTOR * 100


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a fake machine with 1 GiB of available memory and no cgroup memory limit."""
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "proc" / "meminfo").write_text("MemTotal: 4194304 kB\nMemAvailable: 1048576 kB\nHugePages_Total: 0\n")
    (tmp_path / "proc" / "self" / "cgroup").write_text("9:cpu:/\n0::/\n")
    return tmp_path


def available_mib(machine: Path) -> int:
    """Return the available memory of a fake machine."""
    return measure_available_bytes(machine / "proc", machine / "cgroup") // MIB


def write_files(folder: Path, **values: object) -> None:
    """Write one value per file; `_` in a name is a dot if it follows `memory`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("memory_", "memory.", 1)).write_text(f"{value}\n")


def test_available_memory_of_a_machine(machine: Path) -> None:
    """Without a cgroup limit, the kernel's value is used."""
    assert available_mib(machine) == 1024


def test_available_memory_of_a_control_group(machine: Path) -> None:
    """The smallest limit of a group and its parents counts; inactive cached files count as available."""
    (machine / "proc" / "self" / "cgroup").write_text("0::/ci/job\n")
    write_files(machine / "cgroup" / "ci", memory_max=600 * MIB, memory_current=500 * MIB)
    write_files(machine / "cgroup" / "ci", memory_stat=f"anon 1\ninactive_file {300 * MIB}")
    write_files(machine / "cgroup" / "ci" / "job", memory_max="max", memory_current=400 * MIB, memory_stat="anon 1")

    assert available_mib(machine) == 400

    write_files(machine / "cgroup" / "ci" / "job", memory_max=300 * MIB, memory_stat="inactive_file 0")

    assert available_mib(machine) == 0


def test_available_memory_in_a_container(machine: Path) -> None:
    """In a container, the own group is the root, whatever path the host reports."""
    (machine / "proc" / "self" / "cgroup").write_text("0::/../../kubepods/pod\n")
    write_files(machine / "cgroup", memory_max=700 * MIB, memory_current=0, memory_stat="inactive_file 0")

    assert available_mib(machine) == 700


def test_available_memory_of_a_first_version_group(machine: Path) -> None:
    """cgroup version 1 has other file names, and a folder per controller."""
    (machine / "proc" / "self" / "cgroup").write_text("5:cpu,memory:/job\n4:pids:/job\n")
    write_files(machine / "cgroup" / "memory", memory_limit_in_bytes=2**63 - 4096, memory_usage_in_bytes=MIB)
    write_files(machine / "cgroup" / "memory" / "job", memory_limit_in_bytes=500 * MIB, memory_usage_in_bytes=200 * MIB)
    write_files(machine / "cgroup" / "memory" / "job", memory_stat=f"total_inactive_file {100 * MIB}")

    assert available_mib(machine) == 400


def test_available_memory_of_a_group_without_statistics(machine: Path) -> None:
    """The limit applies even if the size of the cached files is unknown."""
    write_files(machine / "cgroup", memory_max=700 * MIB, memory_current=100 * MIB)

    assert available_mib(machine) == 600

    write_files(machine / "cgroup", memory_stat="anon 1")

    assert available_mib(machine) == 600


@pytest.mark.parametrize("content", [b"0::/caf\xe9\n", b"0:/\n", b"\n"])
def test_unreadable_list_of_groups(machine: Path, content: bytes) -> None:
    """The memory of the machine is used."""
    (machine / "proc" / "self" / "cgroup").write_bytes(content)

    assert available_mib(machine) == 1024


def test_available_memory_where_the_system_reports_none(tmp_path: Path) -> None:
    """A default value is used."""
    assert measure_available_bytes(tmp_path, tmp_path) == UNKNOWN_MEMORY_BYTES


def test_available_memory_of_this_machine() -> None:
    """The real files of this machine can be read."""
    assert measure_available_bytes() > 64 * MIB
