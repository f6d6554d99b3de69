"""Kernel and schema queries to real releases of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.core.errors import UnavailableError
from onnxgate.core.jobs import Completed, Crashed, Harvest, HarvestResult
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.gate.static_cache import HarvestError, harvest_build
from onnxgate.project.lock.types import LockedPackage, LockedRuntime
from onnxgate.runtimes.environments.builder import find_interpreter
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support.harvest import BuildDump, DumpedKernel, decode_dump
from onnxgate.support.operators import TableSource

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]

OLD_NUMPY = "1.26.4"


def harvest(host: WorkerPool, locked: Locked, output: Path) -> tuple[HarvestResult, BuildDump]:
    """Return the result of a release and the dump that it writes."""
    try:
        find_interpreter(locked[0].python, CommandRunner(), offline=True)
    except UnavailableError as error:
        pytest.skip(f"{error.message}: {error.hint}")
    observation = host.submit(WorkerSpec.of_runtime(*locked), Harvest(output=str(output))).result(200)
    assert isinstance(observation, Completed), observation
    assert isinstance(observation.result, HarvestResult)
    return observation.result, decode_dump(output.read_bytes())


def kernels(dump: BuildDump, domain: str, name: str) -> list[DumpedKernel]:
    """Return the kernels of one operator."""
    return [kernel for kernel in dump.kernels if (kernel.domain, kernel.name) == (domain, name)]


@pytest.mark.index
def test_release_dumps_kernels_and_schemas(host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path) -> None:
    """The dump contains versions and types. Source: 1.31.1 registers Det since opset 22 for float only."""
    result, dump = harvest(host, locked("1.31.1"), tmp_path / "a file.json")

    assert HarvestResult(registry=True, release="1.31.1", commit="6af1a93") == result
    assert (len(dump.kernels), len(dump.schemas)) == (1465, 847)
    assert [((11, 21), {"T": ("tensor(float)",)}), ((22, 2**31 - 1), {"T": ("tensor(float)",)})] == [
        (kernel.versions, kernel.constraints) for kernel in kernels(dump, "", "Det")
    ]
    assert {kernel.provider for kernel in dump.kernels} == {"CPUExecutionProvider"}
    (clip,) = [schema for schema in dump.schemas if (schema.domain, schema.name, schema.since) == ("", "Clip", 13)]
    assert [(value.name, value.type, value.option) for value in clip.inputs] == [
        ("input", "T", "Single"),
        ("min", "T", "Optional"),
        ("max", "T", "Optional"),
    ]
    assert "tensor(bfloat16)" in clip.constraints["T"]
    assert ((1, 3), (1, 1), {}) == (clip.inputs_range, clip.outputs_range, clip.attributes)


@pytest.mark.index
def test_patch_releases_differ(host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path) -> None:
    """MatMulNBits was added in a patch release: 1.16.1 has neither schema nor kernel."""
    actual = {}
    for release in ("1.16.1", "1.16.3"):
        result, dump = harvest(host, locked(release, numpy=OLD_NUMPY), tmp_path / f"{release}.json")
        schemas = [schema for schema in dump.schemas if schema.name == "MatMulNBits"]
        actual[result.release] = (len(kernels(dump, "com.microsoft", "MatMulNBits")), len(schemas))

    assert {"1.16.1": (0, 0), "1.16.3": (1, 1)} == actual


@pytest.mark.index
def test_older_release_has_no_registry(host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path) -> None:
    """A release without a registry is a valid result, not an error."""
    result, dump = harvest(host, locked("1.15.1", numpy=OLD_NUMPY), tmp_path / "dump.json")

    assert not result.registry
    assert ("1.15.1", (), ()) == (dump.release, dump.kernels, dump.schemas)


@pytest.mark.index
def test_two_pythons_hear_the_same(host: WorkerPool, locked: Callable[..., Locked], tmp_path: Path) -> None:
    """The dumps are identical under two Python versions, including the oldest one, although their wheels differ."""
    for name, python, numpy in (("one", "3.8", "1.24.4"), ("other", "3.11", OLD_NUMPY)):
        harvest(host, locked("1.16.3", python, numpy), tmp_path / name)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_unwritten_file_counts_as_crash(fake_host: WorkerPool, fake: WorkerSpec, tmp_path: Path) -> None:
    """A worker that reports a file it did not write counts as crashed."""
    observation = fake_host.submit(fake, Harvest(output=str(tmp_path / "dump.json"))).result(60)

    assert Crashed(signal="an invalid response", during="start", log="") == observation


def test_invalid_dump_is_an_error(fake_host: WorkerPool, fake: WorkerSpec) -> None:
    """An invalid dump from a patched build raises an error with a readable message."""
    seat = replace(fake, environment=(("NONSENSE", '{"registry": true}'),))
    with pytest.raises(HarvestError, match=r"^the result of the kernel query is invalid: ValidationError$"):
        harvest_build(fake_host, seat, TableSource(release="1.0", wheel="", sha256="0" * 64))
