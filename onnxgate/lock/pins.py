"""The runtimes of each target: which pins stay, and which are asked for anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.config.engines import ONNXRUNTIME, runs_on_node
from onnxgate.config.requirements import satisfiable
from onnxgate.config.types import Select, Target
from onnxgate.lock.builds import FindBuild, lock_build
from onnxgate.lock.companions import companions_of, has_companions
from onnxgate.lock.extensions import Extensions, pin_of
from onnxgate.lock.index import Release
from onnxgate.lock.metadata import Metadata
from onnxgate.lock.npm import AsksNpm
from onnxgate.lock.npm_pins import NpmPins
from onnxgate.lock.policy import asked_extensions, resolved_digest, runtime_differences, satisfies, target_policy
from onnxgate.lock.resolving import (
    AsksIndex,
    Companions,
    exact,
    find_releases,
    minor_of,
    runtime_of,
    select_ascending,
    takes_numpy_2,
)
from onnxgate.lock.types import Lock, LockedPackage, LockedRuntime, LockedTarget, NpmPackage
from onnxgate.lock.upgrades import Upgrade

NUMPY = "numpy"


@dataclass(slots=True)
class Pins:
    """The pins of the old lock, and those that an index gave since."""

    old: Lock
    index: AsksIndex
    upgrade: Upgrade
    find_build: FindBuild
    asks_npm: AsksNpm
    pool: dict[tuple[str, str], LockedPackage] = field(init=False)  # (pin, Python) -> its wheels
    companions: Companions = field(init=False)
    extensions: Extensions = field(init=False)
    npm: NpmPins = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = {(f"{each.name}=={each.version}", each.python): each for each in self.old.packages}
        self.extensions = Extensions(self.index, self.upgrade)
        self.extensions.learn(self.old)
        self.npm = NpmPins(self.old, self.asks_npm)
        self.companions = Companions(self.index, self.upgrade.of(NUMPY))
        if self.companions.asked is None:
            self.companions.known = dict(self._locked_numpy())
        else:
            self.upgrade.used.add(NUMPY)

    def target(self, name: str, target: Target) -> LockedTarget:
        """The runtimes of one target."""
        locked = self.old.targets.get(name)
        if target.python is not None:
            found, notes = lock_build(name, target, locked, self.find_build, self.upgrade)
            self.notes += notes
            return found
        requirement = Requirement(target.runtime)
        policy = target_policy(target)
        fits = locked is not None and locked.policy == policy and not any(runtime_differences(name, target, locked))
        old = locked.runtimes if locked is not None else ()
        chosen = self._runtimes(requirement, target.select, old, fits=fits)
        asked = asked_extensions(target)
        runtimes = tuple(self._with_extensions(self._with_companions(each), asked) for each in chosen)
        return LockedTarget(policy=policy, runtimes=runtimes, resolved=resolved_digest(runtimes))

    def packages(self, targets: Iterable[LockedTarget]) -> tuple[LockedPackage, ...]:
        """The wheels of all that the targets pin; what the old lock lacks is asked for by its exact version."""
        made = [runtime for runtime in _made(targets) if not runs_on_node(runtime.engine)]
        needed = {(pin, runtime.python) for runtime in made for pin in runtime.packages}
        for pin, python in sorted(needed - self.pool.keys()):
            self._keep(exact(Requirement(pin), python, self.index))
        return tuple(self.pool[key] for key in sorted(needed))

    def npm_packages(self, targets: Iterable[LockedTarget]) -> tuple[NpmPackage, ...]:
        """The integrity of all that npm installs for the targets."""
        return self.npm.packages(runtime for runtime in _made(targets) if runs_on_node(runtime.engine))

    def _runtimes(
        self, requirement: Requirement, select: Select, old: tuple[LockedRuntime, ...], *, fits: bool
    ) -> tuple[LockedRuntime, ...]:
        """`fits`: the old rows are all that this requirement was resolved to."""
        asked = self.upgrade.of(canonicalize_name(requirement.name))
        if asked is None:
            return old if fits else self._resolved(requirement, select, _fitting(old, requirement))
        if not asked.specifier or not fits:
            self.upgrade.used.add(canonicalize_name(asked.name))
            return self._resolved(requirement, select, ())
        return self._upgraded(requirement, asked, select, old)

    def _resolved(
        self, requirement: Requirement, select: Select, kept: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Newly resolved. A minor that was locked keeps its patch, except where the newest is what is asked for."""
        stays = {} if select in ("newest", "all") else {minor_of(Version(each.release)): each for each in kept}
        found = self._find(requirement, select)
        return tuple(stays.get(minor_of(release.version)) or self._runtime(release) for release in found)

    def _upgraded(
        self, requirement: Requirement, asked: Requirement, select: Select, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """The old pins, with those that the releases asked for take the place of."""
        both = Requirement(f"{canonicalize_name(requirement.name)}{requirement.specifier & asked.specifier}")
        if not satisfiable(both.specifier):
            return tuple(old)
        self.upgrade.used.add(canonicalize_name(asked.name))
        new = {runtime.release: runtime for runtime in map(self._runtime, self._find(both, select))}
        if select == "all":
            stays = [each for each in old if each.release not in new]
        else:
            minors = {minor_of(Version(release)) for release in new}
            stays = [each for each in old if minor_of(Version(each.release)) not in minors]
        every = [*stays, *new.values()] if select != "newest" else [*new.values()]
        return select_ascending(sorted(every, key=lambda each: Version(each.release)), select)

    def _find(self, requirement: Requirement, select: Select) -> tuple[Release, ...]:
        if runs_on_node(canonicalize_name(requirement.name)):
            return self.npm.find(requirement, select)
        return find_releases(requirement, select, self.index)

    def _runtime(self, release: Release) -> LockedRuntime:
        self._keep(release)
        return runtime_of(release)

    def _with_companions(self, runtime: LockedRuntime) -> LockedRuntime:
        """The runtime with what its engine needs beside itself: the pinned ones, unless they are given up."""
        if runtime.engine == ONNXRUNTIME:
            return self._with_numpy(runtime)
        if runs_on_node(runtime.engine):
            return self.npm.complete(runtime)
        metadata = Metadata(self.index, self.upgrade)
        if has_companions(runtime) and not metadata.given_up(runtime.engine):
            return runtime
        found = metadata.releases(runtime, self.companions.known.get((runtime.python, True)))
        for each in found:
            self._keep(each)
        pins = (f"{runtime.engine}=={runtime.release}", *(each.pin for each in found))
        return msgspec.structs.replace(runtime, packages=tuple(sorted(pins)))

    def _with_numpy(self, runtime: LockedRuntime) -> LockedRuntime:
        """The runtime with its numpy: the pinned one, unless numpy is upgraded or was never pinned."""
        own = tuple(pin for pin in runtime.packages if not pin.startswith(f"{NUMPY}=="))
        if own != runtime.packages and self.companions.asked is None:
            return runtime
        numpy = self.companions.numpy(Version(runtime.release), runtime.python)
        self._keep(numpy)
        return msgspec.structs.replace(runtime, packages=tuple(sorted((*own, numpy.pin))))

    def _with_extensions(self, runtime: LockedRuntime, asked: tuple[str, ...]) -> LockedRuntime:
        names = (runtime.engine, *companions_of(runtime.engine))
        own = [pin for name in names if (pin := pin_of(runtime, name))]
        pins = tuple(self.extensions.pins(runtime, asked))
        for release in self.extensions.found:
            self._keep(release)
        return msgspec.structs.replace(runtime, packages=tuple(sorted((*own, *pins))), extensions=asked)

    def _keep(self, release: Release) -> None:
        if release.wheels:
            self.pool[(release.pin, release.python)] = release.locked

    def _locked_numpy(self) -> Iterator[tuple[tuple[str, bool], Release]]:
        """What the locked runtimes share already, so that new ones share it too."""
        found = []
        for target in self.old.targets.values():
            for runtime in (each for each in target.runtimes if each.engine == ONNXRUNTIME):
                for pin in runtime.packages:
                    package = self.pool.get((pin, runtime.python))
                    if package is not None and package.name == NUMPY:
                        numpy = Release(NUMPY, Version(package.version), package.python, package.wheels)
                        found.append(((runtime.python, takes_numpy_2(Version(runtime.release))), numpy))
        yield from sorted(found, key=lambda each: each[1].version)


def _made(targets: Iterable[LockedTarget]) -> Iterator[LockedRuntime]:
    """The runtimes whose environments are made here."""
    return (runtime for target in targets for runtime in target.runtimes if not runtime.environment)


def _fitting(runtimes: Iterable[LockedRuntime], requirement: Requirement) -> tuple[LockedRuntime, ...]:
    return tuple(each for each in runtimes if not each.environment and satisfies(each, requirement))
