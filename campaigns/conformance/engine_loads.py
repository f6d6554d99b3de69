"""Load the models of a corpus on one release of any engine, with the product's environments and workers."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from campaigns.conformance import corpora
from campaigns.conformance.real_loads import CRASHED, TIMED_OUT, TIMEOUT_S, Observed
from onnxgate.commands.matrix_verification import ReleaseResolver
from onnxgate.core.files import cache_dir
from onnxgate.core.jobs import Completed, Crashed, Load, Observation, Optimization, Refused, TimedOut
from onnxgate.project.lock.index import UvIndex
from onnxgate.project.lock.npm import NpmResolver
from onnxgate.project.lock.releases import NumpyResolver
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.pool import Progress, WorkerPool
from onnxgate.runtimes.worker_spec import JobLimits, WorkerSpec


def observed(engine: str, release: str, corpus: Path, stored: Path, optimization: str = "all") -> dict[str, str]:
    """Return the error text of each model, "" if it loads; results for the same corpus are read from `stored`."""
    digest = corpora.digest(corpus)
    if stored.exists():
        kept = msgspec.json.decode(stored.read_bytes(), type=Observed)
        if kept.corpus == digest:
            return kept.texts
    texts = load_all(find_spec(engine, release), dict(corpora.models(corpus)), optimization)
    stored.parent.mkdir(parents=True, exist_ok=True)
    stored.write_bytes(msgspec.json.format(msgspec.json.encode(Observed(digest, texts))))
    return texts


def find_spec(engine: str, release: str) -> WorkerSpec:
    """Return the worker of one release with its packages, which are selected as by `onnxgate matrix --verify`."""
    index = UvIndex(False)
    resolver = ReleaseResolver(index, NumpyResolver(index), NpmResolver(Lock(targets={})), Progress())
    runtime = LockedRuntime(engine=engine, release=release)
    spec = resolver.find_specs([runtime])[runtime.name]
    if not isinstance(spec, WorkerSpec):
        raise SystemExit(f"{runtime.name}: {spec.reason}")
    return spec


def load_all(
    spec: WorkerSpec, models: Mapping[str, bytes], optimization: str = "all", workers: int = 1
) -> dict[str, str]:
    """Return the error text of each model by name; "" if it loads. Each worker loads a part of the models."""
    level: Optimization = "disabled" if optimization == "disabled" else "all"
    limits = JobLimits(time_s=TIMEOUT_S)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="conformance-"))
        pools = [
            stack.enter_context(WorkerPool(Environments(cache_dir(), offline=False), jobs=1)) for _ in range(workers)
        ]
        waiting = {}
        for index, (name, model) in enumerate(models.items()):
            path = Path(folder, f"{index}.onnx")
            path.write_bytes(model)
            job = Load(model=str(path), optimization=level)
            waiting[name] = pools[index % workers].submit(spec, job, limits=limits)
        return {name: _describe(spec, future.result()) for name, future in waiting.items()}


def _describe(spec: WorkerSpec, observation: Observation) -> str:
    match observation:
        case Completed():
            return ""
        case Refused(failure=failure):
            return failure.text or failure.type
        case Crashed(signal=signal, during=during):
            return f"{CRASHED}{signal} during {during}"
        case TimedOut(limit_s=limit_s):
            return f"{TIMED_OUT}{limit_s:g} s"
        case _:
            raise SystemExit(f"{spec.name}: {observation}")
