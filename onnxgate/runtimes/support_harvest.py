"""Harvest of one ONNX Runtime build: its registered kernels and schemas, and the probe models that it loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from onnxgate.core.files import temporary_folder
from onnxgate.core.jobs import Completed, Crashed, Harvest, Load, Observation, Refused, TimedOut
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support import harvest, probes
from onnxgate.support.harvest import decode_dump
from onnxgate.support.operators import TableSource

KERNEL_QUERY = "the question for its kernels"


class HarvestError(Exception):
    """The build cannot be harvested; the message is the reason, and is empty if the build is not available."""


def harvest_build(pool: WorkerPool, spec: WorkerSpec, source: TableSource) -> harvest.HarvestRecord:
    """Return the operator support of the build in a worker. `source` names it; its commit is read from the build.

    Raises:
        HarvestError: it does not list its kernels, or the loaded probes are inconsistent.
    """
    with temporary_folder() as scratch:
        output = Path(scratch).absolute() / "dump.json"
        pool.show(output.parent)  # some probes have their data outside their own folders
        if _is_refused(pool.submit(spec, Harvest(output=str(output))).result(), KERNEL_QUERY):
            raise HarvestError(f"it refuses {KERNEL_QUERY}")
        try:
            dump = decode_dump(output.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeError) as error:
            raise HarvestError(f"what it says cannot be read: {type(error).__name__}") from error
        folder = output.with_name("probes")
        folder.mkdir()
        loads = _load_probes(pool, spec, probes.write_probes(folder))
    try:
        limits = probes.derive_limits(loads)
    except probes.ProbeError as error:
        raise HarvestError(str(error)) from error
    return harvest.make_harvest_record(dump, limits, msgspec.structs.replace(source, commit=dump.commit))


def _load_probes(pool: WorkerPool, spec: WorkerSpec, paths: Mapping[str, Path]) -> dict[str, bool]:
    """Return whether each probe loads, in a process with the environment variables that it needs."""
    futures = {}
    for name, path in paths.items():
        environment = tuple(probes.get_probe_environment(name).items())
        futures[name] = pool.submit(replace(spec, environment=environment), Load(model=str(path)))
    return {name: not _is_refused(future.result(), f"the probe `{name}`") for name, future in futures.items()}


def _is_refused(observation: Observation, what: str) -> bool:
    """Return whether the engine refused the job; raise `HarvestError` for anything but completion or refusal."""
    match observation:
        case Completed():
            return False
        case Refused():
            return True
        case Crashed(signal=signal):
            raise HarvestError(f"it fails on {what}: {signal}")
        case TimedOut(limit_s=limit_s):
            raise HarvestError(f"it does not answer {what} within {limit_s:g} s")
        case _:
            raise HarvestError
