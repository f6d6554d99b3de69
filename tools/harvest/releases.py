"""List releases, and resolve their packages as `onnxgate lock` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import Requirement

from onnxgate.project.lock.index import Release, UvIndex
from onnxgate.project.lock.releases import NumpyResolver, find_releases
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, Wheel
from onnxgate.runtimes.environments.wheels import rank_wheels

ENGINE = "onnxruntime"
OLDEST = "1.8"


@dataclass(frozen=True, slots=True)
class Installable:
    """One release, with the packages of its environment; the engine's package is first."""

    runtime: LockedRuntime
    packages: tuple[LockedPackage, LockedPackage]

    @property
    def release(self) -> str:
        """The release, such as `1.31.1`."""
        return self.runtime.release

    @property
    def wheel(self) -> Wheel:
        """The engine's wheel for this machine."""
        hashes = {wheel.sha256 for wheel in rank_wheels(self.packages[0])}
        return next(wheel for wheel in self.packages[0].wheels if wheel.sha256 in hashes)


def find(named: Sequence[str]) -> tuple[Installable, ...]:
    """Return the named releases, or all releases on the index since `OLDEST`, in ascending order."""
    index = UvIndex()
    companions = NumpyResolver(index)
    requirements = [f"{ENGINE}=={release}" for release in named] or [f"{ENGINE}>={OLDEST}"]
    actual = [
        release for requirement in requirements for release in find_releases(Requirement(requirement), "all", index)
    ]
    return tuple(_with(companions.numpy(release.version, release.python), release) for release in actual)


def _with(numpy: Release, release: Release) -> Installable:
    runtime = LockedRuntime(
        engine=release.name,
        release=str(release.version),
        python=release.python,
        packages=tuple(sorted((release.pin, numpy.pin))),
    )
    return Installable(runtime, (release.locked, numpy.locked))
