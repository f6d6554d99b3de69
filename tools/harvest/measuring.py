"""Measure one release of ONNX Runtime: the kernels that it reports, and the probe models that it loads."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harvest.data import Description
from harvest.releases import ENGINE, Installable, find
from onnxgate.core.files import replace_atomically
from onnxgate.core.jobs import Completed, Harvest, Job, Load, Observation, Refused
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.runtimes.protocol import WORKER_FOLDER
from onnxgate.runtimes.worker_spec import WorkerSpec
from onnxgate.support import harvest, probes
from onnxgate.support.harvest import BuildDump, decode_dump
from onnxgate.support.operators import TableSource

__all__ = ["DESCRIPTION", "Record", "find", "measure", "recipe", "recorded"]
DESCRIPTION = Description(
    ENGINE,
    "linux x86_64",
    """# Support data of ONNX Runtime

`tools/harvest_support.py` writes this page together with the data. `onnxruntime-kernels.json.z` contains the kernels
and schemas that official wheels (Linux x86_64, CPU) report since release 1.16.0; older wheels do not report them.
`onnxruntime-limits.json` contains the limits, which are measured by loading tiny models.

In the lists of changes, `7+` is a kernel with an open-ended range of versions; ONNX Runtime uses it only for version 7
of the operator. `7-12` is a kernel for versions 7 to 12. After `for` is the kernel or number that was replaced. Types
are written without `tensor(…)`.
""",
)


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Measurements of one release, stored in the work folder."""

    recipe: str
    source: TableSource
    loads: dict[str, bool]
    dump: BuildDump

    @property
    def platform(self) -> str:
        """The platform on which the release was measured."""
        return self.dump.platform

    @property
    def harvest(self) -> harvest.HarvestRecord:
        """The harvest computed from the measurements."""
        return harvest.make_harvest_record(self.dump, probes.derive_limits(self.loads), self.source)


def recipe() -> str:
    """Return a digest of the code that determines the content of a record."""
    parts = [WORKER_FOLDER / "kernel_registry.py", Path(probes.__file__), Path(harvest.__file__)]
    return hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()


def recorded(work: Path, installable: Installable) -> Record | None:
    """Return the stored record of this wheel; None if it was measured by different code."""
    try:
        record = msgspec.json.decode(_path(work, installable).read_bytes(), type=Record)
    except (OSError, msgspec.MsgspecError):
        return None
    same = (recipe(), installable.wheel.sha256) == (record.recipe, record.source.sha256)
    return record if same else None


def measure(work: Path, installable: Installable) -> Record:
    """Measure a release in a temporary environment, and store the record."""
    with tempfile.TemporaryDirectory(prefix="harvest-") as name:
        folder = Path(name)
        with WorkerPool(Environments(folder / "cache", offline=False), jobs=1) as pool:
            record = _measure_release(pool, installable, folder)
    path = _path(work, installable)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(path) as scratch:
        scratch.write_bytes(msgspec.json.encode(record))
    return record


def _path(work: Path, installable: Installable) -> Path:
    return work / f"{installable.release}.json"


def _measure_release(pool: WorkerPool, installable: Installable, folder: Path) -> Record:
    spec = WorkerSpec.of_runtime(installable.runtime, installable.packages)
    output = folder / "dump.json"
    _done(spec, pool.submit(spec, Harvest(output=str(output))).result())
    dump = decode_dump(output.read_bytes())
    wheel = installable.wheel
    source = TableSource(release=installable.release, wheel=wheel.file, sha256=wheel.sha256, commit=dump.commit)
    (folder / "probes").mkdir()
    loads = _loads(pool, spec, probes.write_probes(folder / "probes"))
    return Record(recipe=recipe(), source=source, loads=loads, dump=dump)


def _loads(pool: WorkerPool, spec: WorkerSpec, paths: Mapping[str, Path]) -> dict[str, bool]:
    """Return whether each probe loads, with its environment variables set."""
    waiting = {}
    for name, path in paths.items():
        environment = tuple(probes.get_probe_environment(name).items())
        job: Job = Load(model=str(path))
        waiting[name] = pool.submit(msgspec.structs.replace(spec, environment=environment), job)
    return {name: _done(spec, future.result()) for name, future in waiting.items()}


def _done(spec: WorkerSpec, observation: Observation) -> bool:
    """Return whether a job completed; exit if it neither completed nor was refused."""
    if isinstance(observation, Completed | Refused):
        return isinstance(observation, Completed)
    raise SystemExit(f"{spec.name}: {observation}")
