"""What one release says of itself and which probes it loads, found out in an environment of its own."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harvest.releases import Installable
from onnxgate.core.files import replace_atomically
from onnxgate.core.jobs import Completed, Harvest, Job, Load, Observation, Refused
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.protocol import WORKER_FOLDER
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support import harvest, probes
from onnxgate.support.harvest import BuildDump, decode_dump
from onnxgate.support.operators import TableSource


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """All that is kept of one release between two runs."""

    recipe: str
    source: TableSource
    loads: dict[str, bool]
    dump: BuildDump

    @property
    def harvest(self) -> harvest.HarvestRecord:
        """What follows from it."""
        return harvest.make_harvest_record(self.dump, probes.derive_limits(self.loads), self.source)


def recipe() -> str:
    """A digest of all that decides what a record says, beside the release."""
    parts = [WORKER_FOLDER / "kernel_registry.py", Path(probes.__file__), Path(harvest.__file__)]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def recorded(work: Path, installable: Installable) -> Record | None:
    """What an earlier run found out about this wheel in the same way."""
    try:
        record = msgspec.json.decode(_path(work, installable).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
    same = (recipe(), installable.wheel.sha256) == (record.recipe, record.source.sha256)
    return record if same else None


def measure(work: Path, installable: Installable) -> Record:
    """Find it out, and keep it; nothing is left of the environment."""
    with tempfile.TemporaryDirectory(prefix="harvest-") as name:
        folder = Path(name)
        with WorkerPool(Environments(folder / "cache", offline=False), jobs=1) as host:
            record = _asked(host, installable, folder)
    path = _path(work, installable)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as scratch:
        scratch.write_bytes(msgspec.json.encode(record))
    return record


def _path(work: Path, installable: Installable) -> Path:
    return work / f"{installable.release}.json"


def _asked(host: WorkerPool, installable: Installable, folder: Path) -> Record:
    seat = WorkerSpec.of_runtime(installable.runtime, installable.packages)
    output = folder / "dump.json"
    _done(seat, host.submit(seat, Harvest(output=str(output))).result())
    said = decode_dump(output.read_bytes())
    wheel = installable.wheel
    source = TableSource(release=installable.release, wheel=wheel.file, sha256=wheel.sha256, commit=said.commit)
    (folder / "probes").mkdir()
    loads = _loads(host, seat, probes.write_probes(folder / "probes"))
    return Record(recipe=recipe(), source=source, loads=loads, dump=said)


def _loads(host: WorkerPool, seat: WorkerSpec, paths: Mapping[str, Path]) -> dict[str, bool]:
    """Which probes load, each where its environment is set."""
    waiting = {}
    for name, path in paths.items():
        environment = tuple(probes.get_probe_environment(name).items())
        job: Job = Load(model=str(path))
        waiting[name] = host.submit(msgspec.structs.replace(seat, environment=environment), job)
    return {name: _done(seat, future.result()) for name, future in waiting.items()}


def _done(seat: WorkerSpec, observation: Observation) -> bool:
    """Whether it did not refuse; all else is no answer."""
    if isinstance(observation, Completed | Refused):
        return isinstance(observation, Completed)
    raise SystemExit(f"{seat.name}: {observation}")
