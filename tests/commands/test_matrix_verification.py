"""Selection of wheels and Python versions for `onnxgate matrix --verify`."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.commands.matrix_verification import ReleaseResolver, _describe_observation
from onnxgate.core.errors import ResolutionError
from onnxgate.core.jobs import Completed, Crashed, Failure, LoadResult, Observation, Refused, TimedOut, Unavailable
from onnxgate.project.lock.index import Release, ReleaseNotFound
from onnxgate.project.lock.npm import NpmResolver
from onnxgate.project.lock.releases import NumpyResolver
from onnxgate.project.lock.types import Lock, LockedRuntime, Wheel
from onnxgate.runtimes.pool import Progress
from onnxgate.runtimes.worker_spec import WorkerSpec

RUNTIMES = [
    LockedRuntime(engine="onnxruntime", release=release, python="", packages=())
    for release in ("1.8.1", "1.17.3", "1.18.1")
]


@dataclass
class Shelf:
    """A package index with some releases for some Python versions; an empty one raises an error."""

    has: dict[str, str] = field(default_factory=dict)  # requirement -> Python
    asked: list[str] = field(default_factory=list)

    def newest(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        """Return a release, like the real index."""
        self.asked.append(str(requirement))
        if not self.has:
            raise ResolutionError("the package index cannot be asked", hint="check the network")
        if requirement.name == "numpy":
            return Release("numpy", Version("1.26.4"), python, (Wheel(file="numpy.whl", sha256="0"),))
        if self.has.get(str(requirement)) != python:
            return ReleaseNotFound("nothing fits")
        version = Version(str(requirement).partition("==")[2])
        return Release(requirement.name, version, python, (Wheel(file="engine.whl", sha256="1"),))


def test_unresponsive_index_is_queried_once() -> None:
    """After the index failed to respond, it is not queried again, because each query may take minutes."""
    shelf = Shelf()
    specs = ReleaseResolver(shelf, NumpyResolver(shelf), NpmResolver(Lock(targets={})), Progress()).find_specs(RUNTIMES)

    assert set(specs) == {runtime.name for runtime in RUNTIMES}
    assert all(isinstance(spec, Unavailable) for spec in specs.values())
    assert shelf.asked == ["onnxruntime==1.18.1"]


def test_release_uses_first_python_with_a_wheel() -> None:
    """Each release uses the first Python with a wheel; a missing release does not affect the others."""
    shelf = Shelf({"onnxruntime==1.8.1": "3.9", "onnxruntime==1.18.1": "3.11"})
    specs = ReleaseResolver(shelf, NumpyResolver(shelf), NpmResolver(Lock(targets={})), Progress()).find_specs(RUNTIMES)
    old, missing, new = (specs[runtime.name] for runtime in RUNTIMES)

    assert isinstance(old, WorkerSpec)
    assert old.runtime is not None
    assert (old.runtime.python, old.runtime.packages) == ("3.9", ("numpy==1.26.4", "onnxruntime==1.8.1"))
    assert missing == Unavailable(reason="the package index has no `onnxruntime 1.17.3` wheels for this system")
    assert isinstance(new, WorkerSpec)
    assert [package.name for package in new.packages] == ["onnxruntime", "numpy"]


@pytest.mark.parametrize(
    ("observation", "message"),
    [
        (Completed(result=LoadResult(providers=("CPUExecutionProvider",))), ("loads", "")),
        (
            Refused(failure=Failure(type="Fail", text="[ONNXRuntimeError] : 1 : FAIL : Load model from a failed:no")),
            ("refused", "no"),
        ),
        (
            Refused(failure=Failure(type="Fail", text="bad_alloc", memory=True)),
            ("unavailable", "loading the model exceeds the memory limit for a job: bad_alloc"),
        ),
        (Crashed(signal="SIGSEGV", during="load", log=""), ("crashed", "SIGSEGV during load")),
        (TimedOut(limit_s=300.0, during="load", log=""), ("timed-out", "loading did not finish within 300 s")),
        (Unavailable(reason="no Python 3.9", hint="get one"), ("unavailable", "no Python 3.9 (get one)")),
    ],
)
def test_observations_map_to_verdicts(observation: Observation, message: tuple[str, str]) -> None:
    """Only a refusal by the runtime is `refused`; exceeding a limit of onnxgate is not."""
    assert message == _describe_observation(observation)
