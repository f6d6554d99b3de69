"""The runtimes of each target: which pins stay, and which are asked for anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.core.errors import ConfigError, UnavailableError
from onnxgate.project.config.schema import ReleaseSelection, Target
from onnxgate.project.engines import (
    ONNXRUNTIME,
    REQUIRED_DEPENDENCIES,
    engine_dependencies,
    has_required_dependencies,
    is_library,
    is_satisfiable,
    is_satisfied,
    package_name,
    runs_on_node,
)
from onnxgate.project.lock.comparison import (
    canonical_extensions,
    resolved_digest,
    runtime_differences,
    satisfies,
    target_policy,
)
from onnxgate.project.lock.index import Release, ReleaseNotFound
from onnxgate.project.lock.npm import NpmRegistry, NpmResolver
from onnxgate.project.lock.releases import (
    NumpyResolver,
    PackageIndex,
    UpgradeRequest,
    apply_selection,
    find_exact_release,
    find_newest_with_wheels,
    find_releases,
    minor_of,
    runtime_from_release,
    supports_numpy_2,
)
from onnxgate.project.lock.types import Lock, LockedPackage, LockedRuntime, LockedTarget, NpmPackage

NUMPY = "numpy"


@dataclass(slots=True)
class PinResolver:
    """The pins of the old lock, and those that an index gave since."""

    old: Lock
    index: PackageIndex
    upgrade: UpgradeRequest
    find_build: BuildFinder
    asks_npm: NpmRegistry
    pool: dict[tuple[str, str], LockedPackage] = field(init=False)  # (pin, Python) -> its wheels
    companions: NumpyResolver = field(init=False)
    extensions: ExtensionResolver = field(init=False)
    npm: NpmResolver = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = {(f"{package.name}=={package.version}", package.python): package for package in self.old.packages}
        self.extensions = ExtensionResolver(self.index, self.upgrade)
        self.extensions.learn(self.old)
        self.npm = NpmResolver(self.old, self.asks_npm)
        self.companions = NumpyResolver(self.index, self.upgrade.of(NUMPY))
        if self.companions.asked is None:
            self.companions.known = dict(self._locked_numpy())
        else:
            self.upgrade.used.add(NUMPY)

    def target(self, name: str, target: Target) -> LockedTarget:
        """The runtimes of one target."""
        locked = self.old.targets.get(name)
        if target.python is not None:
            found, notes = lock_own_environment(name, target, locked, self.find_build, self.upgrade)
            self.notes += notes
            return found
        requirement = Requirement(target.runtime)
        policy = target_policy(target)
        fits = locked is not None and locked.policy == policy and not any(runtime_differences(name, target, locked))
        old = locked.runtimes if locked is not None else ()
        chosen = self._runtimes(requirement, target.select, old, fits=fits)
        asked = canonical_extensions(target)
        runtimes = tuple(self._with_extensions(self._with_companions(each), asked) for each in chosen)
        return LockedTarget(policy=policy, runtimes=runtimes, resolved=resolved_digest(runtimes))

    def packages(self, targets: Iterable[LockedTarget]) -> tuple[LockedPackage, ...]:
        """The wheels of all that the targets pin; what the old lock lacks is asked for by its exact version."""
        made = [runtime for runtime in _managed_runtimes(targets) if not runs_on_node(runtime.engine)]
        needed = {(pin, runtime.python) for runtime in made for pin in runtime.packages}
        for pin, python in sorted(needed - self.pool.keys()):
            self._keep(find_exact_release(Requirement(pin), python, self.index))
        return tuple(self.pool[key] for key in sorted(needed))

    def npm_packages(self, targets: Iterable[LockedTarget]) -> tuple[NpmPackage, ...]:
        """The integrity of all that npm installs for the targets."""
        return self.npm.packages(runtime for runtime in _managed_runtimes(targets) if runs_on_node(runtime.engine))

    def _runtimes(
        self, requirement: Requirement, select: ReleaseSelection, old: tuple[LockedRuntime, ...], *, fits: bool
    ) -> tuple[LockedRuntime, ...]:
        """`fits`: the old rows are all that this requirement was resolved to."""
        asked = self.upgrade.of(canonicalize_name(requirement.name))
        if asked is None:
            return old if fits else self._resolved(requirement, select, _satisfying_runtimes(old, requirement))
        if not asked.specifier or not fits:
            self.upgrade.used.add(canonicalize_name(asked.name))
            return self._resolved(requirement, select, ())
        return self._upgraded(requirement, asked, select, old)

    def _resolved(
        self, requirement: Requirement, select: ReleaseSelection, kept: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Newly resolved. A minor that was locked keeps its patch, except where the newest is what is asked for."""
        stays = {} if select in ("newest", "all") else {minor_of(Version(each.release)): each for each in kept}
        found = self._find(requirement, select)
        return tuple(stays.get(minor_of(release.version)) or self._runtime(release) for release in found)

    def _upgraded(
        self, requirement: Requirement, asked: Requirement, select: ReleaseSelection, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """The old pins, with those that the releases asked for take the place of."""
        both = Requirement(f"{canonicalize_name(requirement.name)}{requirement.specifier & asked.specifier}")
        if not is_satisfiable(both.specifier):
            return tuple(old)
        self.upgrade.used.add(canonicalize_name(asked.name))
        new = {runtime.release: runtime for runtime in map(self._runtime, self._find(both, select))}
        if select == "all":
            stays = [each for each in old if each.release not in new]
        else:
            minors = {minor_of(Version(release)) for release in new}
            stays = [each for each in old if minor_of(Version(each.release)) not in minors]
        every = [*stays, *new.values()] if select != "newest" else [*new.values()]
        return apply_selection(sorted(every, key=lambda each: Version(each.release)), select)

    def _find(self, requirement: Requirement, select: ReleaseSelection) -> tuple[Release, ...]:
        if runs_on_node(canonicalize_name(requirement.name)):
            return self.npm.find(requirement, select)
        return find_releases(requirement, select, self.index)

    def _runtime(self, release: Release) -> LockedRuntime:
        self._keep(release)
        return runtime_from_release(release)

    def _with_companions(self, runtime: LockedRuntime) -> LockedRuntime:
        """The runtime with what its engine needs beside itself: the pinned ones, unless they are given up."""
        if runtime.engine == ONNXRUNTIME:
            return self._with_numpy(runtime)
        if runs_on_node(runtime.engine):
            return self.npm.complete(runtime)
        metadata = DependencyResolver(self.index, self.upgrade)
        if has_required_dependencies(runtime) and not metadata.given_up(runtime.engine):
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
        names = (runtime.engine, *engine_dependencies(runtime.engine))
        own = [pin for name in names if (pin := find_pin(runtime, name))]
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
                        found.append(((runtime.python, supports_numpy_2(Version(runtime.release))), numpy))
        yield from sorted(found, key=lambda each: each[1].version)


def _managed_runtimes(targets: Iterable[LockedTarget]) -> Iterator[LockedRuntime]:
    """The runtimes whose environments are made here."""
    return (runtime for target in targets for runtime in target.runtimes if not runtime.environment)


def _satisfying_runtimes(runtimes: Iterable[LockedRuntime], requirement: Requirement) -> tuple[LockedRuntime, ...]:
    return tuple(runtime for runtime in runtimes if not runtime.environment and satisfies(runtime, requirement))


BuildFinder = Callable[[Target], LockedRuntime]
"""Looks at the environment of a target; raises `UnavailableError` where it has nothing that the target asks for."""


def lock_own_environment(
    name: str, target: Target, locked: LockedTarget | None, find: BuildFinder, upgrade: UpgradeRequest
) -> tuple[LockedTarget, tuple[str, ...]]:
    """The target as it is locked now, and what must be said of that; a row that still fits stays."""
    kept = _reusable_runtime(name, target, locked)
    try:
        found = find(target)
    except UnavailableError as error:
        stays = "what is locked stays" if kept else "it is not locked"
        return _locked_target(target, kept), (f"target `{name}`: {error.message}; {stays}",)
    given_up = upgrade.takes(
        {pin.partition("==")[0]: pin.partition("==")[2] for pin in (_engine_pin(found), *found.packages)}
    )
    if kept is None or given_up or kept == found:
        return _locked_target(target, found), ()
    said = ", ".join((_engine_pin(found), *found.packages))
    was = ", ".join((_engine_pin(kept), *kept.packages))
    note = (
        f"target `{name}`: `{target.python}` has {said} (locked: {was}); what is locked stays, `--upgrade` takes this"
    )
    return _locked_target(target, kept), (note,)


def _reusable_runtime(name: str, target: Target, locked: LockedTarget | None) -> LockedRuntime | None:
    if locked is None or not locked.runtimes or any(runtime_differences(name, target, locked)):
        return None
    return locked.runtimes[0]


def _locked_target(target: Target, runtime: LockedRuntime | None) -> LockedTarget:
    runtimes = () if runtime is None else (runtime,)
    return LockedTarget(policy=target_policy(target), runtimes=runtimes, resolved=resolved_digest(runtimes))


def _engine_pin(runtime: LockedRuntime) -> str:
    return f"{runtime.engine}=={runtime.release}"


@dataclass(frozen=True, slots=True)
class DependencyResolver:
    """Asks an index for what one release of an engine depends on."""

    index: PackageIndex
    upgrade: UpgradeRequest

    def given_up(self, engine: str) -> bool:
        """Whether `--upgrade` names one of the engine's companions."""
        return any(self.upgrade.of(name) is not None for name in engine_dependencies(engine))

    def releases(self, runtime: LockedRuntime, numpy: Release | None) -> tuple[Release, ...]:
        """
        The companions of one runtime; `numpy` is the one that others have, which is taken where it fits.

        Raises:
            ConfigError: nothing fits.
        """
        wanted = (Requirement(f"{runtime.engine}=={runtime.release}"), *self._asked(runtime.engine))
        answer = self._with_shared(wanted, numpy, runtime.python) or self.index.together(wanted, runtime.python)
        if isinstance(answer, ReleaseNotFound):
            raise ConfigError(
                f"nothing fits `{runtime.engine} {runtime.release}` on Python {runtime.python}: {answer.reason}"
            )
        return tuple(each for each in answer if each.name in engine_dependencies(runtime.engine) and each.wheels)

    def _asked(self, engine: str) -> tuple[Requirement, ...]:
        asked = {name: self.upgrade.of(name) for name in engine_dependencies(engine)}
        self.upgrade.used.update(name for name, each in asked.items() if each is not None)
        return tuple(asked[name] or Requirement(name) for name in REQUIRED_DEPENDENCIES[engine])

    def _with_shared(
        self, wanted: tuple[Requirement, ...], numpy: Release | None, python: str
    ) -> tuple[Release, ...] | None:
        own = next(each for each in wanted if each.name == "numpy")
        if numpy is None or not is_satisfiable(own.specifier) or not own.specifier.contains(numpy.version, True):
            return None
        answer = self.index.together((*wanted, Requirement(numpy.pin)), python)
        return None if isinstance(answer, ReleaseNotFound) else answer


@dataclass(slots=True)
class ExtensionResolver:
    """Releases of extensions: one for all runtimes of one Python that ask for them in the same words."""

    index: PackageIndex
    upgrade: UpgradeRequest
    known: dict[tuple[str, str], str] = field(default_factory=dict)  # (requirement, Python) -> pin
    found: list[Release] = field(default_factory=list)  # what the index was asked for

    def learn(self, lock: Lock) -> None:
        """Have runtimes that are new share what is locked already."""
        made = [each for target in lock.targets.values() for each in target.runtimes if not each.environment]
        for runtime in made:
            for text in package_requirements(runtime.extensions):
                pin, key = find_pin(runtime, package_name(text)), (text, runtime.python)
                if self._stays(text, pin):
                    self.known[key] = max(pin, self.known.get(key, pin), key=_pin_version)

    def pins(self, runtime: LockedRuntime, asked: Iterable[str]) -> Iterator[str]:
        """
        The pins of all packages among `asked`: the runtime's own, where they fit and are not given up.

        Raises:
            ConfigError: no release of one has wheels for the runtime's Python.
        """
        for text in package_requirements(asked):
            own = find_pin(runtime, package_name(text))
            yield own if own and self._stays(text, own) else self._shared(text, runtime)

    def _stays(self, text: str, pin: str) -> bool:
        name, _, version = pin.partition("==")
        upgrade = self.upgrade.of(name)
        given_up = upgrade is not None and is_satisfiable(upgrade.specifier & Requirement(text).specifier)
        return is_satisfied(text, version) and not given_up

    def _shared(self, text: str, runtime: LockedRuntime) -> str:
        key = (text, runtime.python)
        if key not in self.known:
            release = self._newest(text, runtime)
            self.found.append(release)
            self.known[key] = release.pin
        return self.known[key]

    def _newest(self, text: str, runtime: LockedRuntime) -> Release:
        wanted, name = Requirement(text), package_name(text)
        if upgrade := self.upgrade.of(name):
            both = wanted.specifier & upgrade.specifier
            if is_satisfiable(both):
                wanted = Requirement(f"{name}{both}")
                self.upgrade.used.add(name)
        answer = find_newest_with_wheels(wanted, runtime.python, self.index)
        if isinstance(answer, ReleaseNotFound):
            under = f"Python {runtime.python}, under which {runtime.engine} {runtime.release} runs"
            raise ConfigError(f"no release of `{wanted}` has wheels for {under}: {answer.reason}")
        return answer


def _pin_version(pin: str) -> Version:
    return Version(pin.partition("==")[2])


def package_requirements(extensions: Iterable[str]) -> tuple[str, ...]:
    """Those of a target's extensions that are packages."""
    return tuple(text for text in extensions if not is_library(text))


def find_pin(runtime: LockedRuntime, package: str) -> str:
    """The runtime's pin of a package, "" where it has none."""
    return next((pin for pin in runtime.packages if pin.startswith(f"{package}==")), "")
