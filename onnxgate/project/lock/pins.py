"""Resolve the runtimes of each target: pins of the old lock that stay, and new ones."""

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
    """Resolves the targets of a project; begins with the pins of the old lock."""

    old: Lock
    index: PackageIndex
    upgrade: UpgradeRequest
    find_build: BuildFinder
    registry: NpmRegistry
    pool: dict[tuple[str, str], LockedPackage] = field(init=False)  # (pin, Python) -> its wheels
    companions: NumpyResolver = field(init=False)
    extensions: ExtensionResolver = field(init=False)
    npm: NpmResolver = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pool = {(f"{package.name}=={package.version}", package.python): package for package in self.old.packages}
        self.extensions = ExtensionResolver(self.index, self.upgrade)
        self.extensions.learn(self.old)
        self.npm = NpmResolver(self.old, self.registry)
        self.companions = NumpyResolver(self.index, self.upgrade.of(NUMPY))
        if self.companions.asked is None:
            self.companions.known = dict(self._locked_numpy())
        else:
            self.upgrade.used.add(NUMPY)

    def target(self, name: str, target: Target) -> LockedTarget:
        """Return one target with its runtimes."""
        locked = self.old.targets.get(name)
        if target.python is not None:
            own, notes = lock_own_environment(name, target, locked, self.find_build, self.upgrade)
            self.notes += notes
            return own
        requirement = Requirement(target.runtime)
        policy = target_policy(target)
        is_valid = locked is not None and locked.policy == policy and not any(runtime_differences(name, target, locked))
        old = locked.runtimes if locked is not None else ()
        engines = self._resolve_engines(requirement, target.select, old, is_valid=is_valid)
        extensions = canonical_extensions(target)
        runtimes = tuple(self._with_extensions(self._with_companions(runtime), extensions) for runtime in engines)
        return LockedTarget(policy=policy, runtimes=runtimes, resolved=resolved_digest(runtimes))

    def packages(self, targets: Iterable[LockedTarget]) -> tuple[LockedPackage, ...]:
        """Return all packages that the targets pin, with their wheels; those that the old lock lacks are queried."""
        runtimes = [runtime for runtime in _managed_runtimes(targets) if not runs_on_node(runtime.engine)]
        needed = {(pin, runtime.python) for runtime in runtimes for pin in runtime.packages}
        for pin, python in sorted(needed - self.pool.keys()):
            self._remember(find_exact_release(Requirement(pin), python, self.index))
        return tuple(self.pool[key] for key in sorted(needed))

    def npm_packages(self, targets: Iterable[LockedTarget]) -> tuple[NpmPackage, ...]:
        """Return all packages that npm installs for the targets."""
        return self.npm.packages(runtime for runtime in _managed_runtimes(targets) if runs_on_node(runtime.engine))

    def _resolve_engines(
        self, requirement: Requirement, select: ReleaseSelection, old: tuple[LockedRuntime, ...], *, is_valid: bool
    ) -> tuple[LockedRuntime, ...]:
        """Return the runtimes, with only new engines pinned. `is_valid`: `old` are the runtimes of this requirement."""
        upgrade = self.upgrade.of(canonicalize_name(requirement.name))
        if upgrade is None:
            return old if is_valid else self._resolve(requirement, select, _satisfying_runtimes(old, requirement))
        if not upgrade.specifier or not is_valid:
            self.upgrade.used.add(canonicalize_name(upgrade.name))
            return self._resolve(requirement, select, ())
        return self._apply_upgrade(requirement, upgrade, select, old)

    def _resolve(
        self, requirement: Requirement, select: ReleaseSelection, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Resolve a requirement. Minors in `old` keep their patch, unless the newest or all patches are selected."""
        locked = {} if select in ("newest", "all") else {minor_of(Version(row.release)): row for row in old}
        releases = self._find(requirement, select)
        return tuple(locked.get(minor_of(release.version)) or self._runtime(release) for release in releases)

    def _apply_upgrade(
        self, requirement: Requirement, upgrade: Requirement, select: ReleaseSelection, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Return the old runtimes, replaced by the upgrade's releases of the same minors."""
        both = Requirement(f"{canonicalize_name(requirement.name)}{requirement.specifier & upgrade.specifier}")
        if not is_satisfiable(both.specifier):
            return tuple(old)
        self.upgrade.used.add(canonicalize_name(upgrade.name))
        new = {runtime.release: runtime for runtime in map(self._runtime, self._find(both, select))}
        minors = {minor_of(Version(release)) for release in new}
        match select:
            case "newest":
                unchanged = []
            case "all":
                unchanged = [row for row in old if row.release not in new]
            case _:
                unchanged = [row for row in old if minor_of(Version(row.release)) not in minors]
        return apply_selection(sorted([*unchanged, *new.values()], key=lambda row: Version(row.release)), select)

    def _find(self, requirement: Requirement, select: ReleaseSelection) -> tuple[Release, ...]:
        if runs_on_node(canonicalize_name(requirement.name)):
            return self.npm.find(requirement, select)
        return find_releases(requirement, select, self.index)

    def _runtime(self, release: Release) -> LockedRuntime:
        self._remember(release)
        return runtime_from_release(release)

    def _with_companions(self, runtime: LockedRuntime) -> LockedRuntime:
        """Return the runtime with the dependencies of its engine: the pinned ones, unless they are upgraded."""
        if runtime.engine == ONNXRUNTIME:
            return self._with_numpy(runtime)
        if runs_on_node(runtime.engine):
            return self.npm.complete(runtime)
        dependencies = DependencyResolver(self.index, self.upgrade)
        if has_required_dependencies(runtime) and not dependencies.are_upgraded(runtime.engine):
            return runtime
        releases = dependencies.releases(runtime, self.companions.known.get((runtime.python, True)))
        for release in releases:
            self._remember(release)
        pins = (_engine_pin(runtime), *(release.pin for release in releases))
        return msgspec.structs.replace(runtime, packages=tuple(sorted(pins)))

    def _with_numpy(self, runtime: LockedRuntime) -> LockedRuntime:
        """Return the runtime with its numpy: the pinned one, unless numpy is upgraded or was never pinned."""
        own = tuple(pin for pin in runtime.packages if not pin.startswith(f"{NUMPY}=="))
        if own != runtime.packages and self.companions.asked is None:
            return runtime
        numpy = self.companions.numpy(Version(runtime.release), runtime.python)
        self._remember(numpy)
        return msgspec.structs.replace(runtime, packages=tuple(sorted((*own, numpy.pin))))

    def _with_extensions(self, runtime: LockedRuntime, extensions: tuple[str, ...]) -> LockedRuntime:
        names = (runtime.engine, *engine_dependencies(runtime.engine))
        own = [pin for name in names if (pin := find_pin(runtime, name))]
        pins = tuple(self.extensions.pins(runtime, extensions))
        for release in self.extensions.releases:
            self._remember(release)
        return msgspec.structs.replace(runtime, packages=tuple(sorted((*own, *pins))), extensions=extensions)

    def _remember(self, release: Release) -> None:
        if release.wheels:
            self.pool[(release.pin, release.python)] = release.locked

    def _locked_numpy(self) -> Iterator[tuple[tuple[str, bool], Release]]:
        """Yield the numpy that locked runtimes share, for new runtimes; the newest last."""
        locked = []
        for runtime in (row for target in self.old.targets.values() for row in target.runtimes):
            package = self.pool.get((find_pin(runtime, NUMPY), runtime.python))
            if runtime.engine == ONNXRUNTIME and package is not None:
                numpy = Release(NUMPY, Version(package.version), package.python, package.wheels)
                locked.append(((runtime.python, supports_numpy_2(Version(runtime.release))), numpy))
        yield from sorted(locked, key=lambda item: item[1].version)


def _managed_runtimes(targets: Iterable[LockedTarget]) -> Iterator[LockedRuntime]:
    """Yield the runtimes whose environments onnxgate creates."""
    return (runtime for target in targets for runtime in target.runtimes if not runtime.environment)


def _satisfying_runtimes(runtimes: Iterable[LockedRuntime], requirement: Requirement) -> tuple[LockedRuntime, ...]:
    return tuple(runtime for runtime in runtimes if not runtime.environment and satisfies(runtime, requirement))


BuildFinder = Callable[[Target], LockedRuntime]
"""Returns the engine in a target's own environment; raises `UnavailableError` if it does not satisfy the target."""


def lock_own_environment(
    name: str, target: Target, locked: LockedTarget | None, find: BuildFinder, upgrade: UpgradeRequest
) -> tuple[LockedTarget, tuple[str, ...]]:
    """Return the target with its one runtime, and notes for the user; a locked runtime that is still valid stays."""
    old = _reusable_runtime(name, target, locked)
    try:
        new = find(target)
    except UnavailableError as error:
        stays = "what is locked stays" if old else "it is not locked"
        return _locked_target(target, old), (f"target `{name}`: {error.message}; {stays}",)
    pins = (_engine_pin(new), *new.packages)
    is_upgraded = upgrade.takes({pin.partition("==")[0]: pin.partition("==")[2] for pin in pins})
    if old is None or is_upgraded or old == new:
        return _locked_target(target, new), ()
    locked_pins = ", ".join((_engine_pin(old), *old.packages))
    note = f"`{target.python}` has {', '.join(pins)} (locked: {locked_pins}); what is locked stays"
    return _locked_target(target, old), (f"target `{name}`: {note}, `--upgrade` takes this",)


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
    """Resolves the dependencies of one release of an engine."""

    index: PackageIndex
    upgrade: UpgradeRequest

    def are_upgraded(self, engine: str) -> bool:
        """Return whether `--upgrade` names one of the engine's dependencies."""
        return any(self.upgrade.of(name) is not None for name in engine_dependencies(engine))

    def releases(self, runtime: LockedRuntime, numpy: Release | None) -> tuple[Release, ...]:
        """
        Return the dependencies of one runtime; `numpy` is the one of other runtimes, which is used if it is compatible.

        Raises:
            ConfigError: no releases are compatible.
        """
        wanted = (Requirement(_engine_pin(runtime)), *self._requirements(runtime.engine))
        answer = self._with_shared(wanted, numpy, runtime.python) or self.index.together(wanted, runtime.python)
        if isinstance(answer, ReleaseNotFound):
            raise ConfigError(
                f"nothing fits `{runtime.engine} {runtime.release}` on Python {runtime.python}: {answer.reason}"
            )
        dependencies = engine_dependencies(runtime.engine)
        return tuple(release for release in answer if release.name in dependencies and release.wheels)

    def _requirements(self, engine: str) -> tuple[Requirement, ...]:
        upgrades = {name: self.upgrade.of(name) for name in engine_dependencies(engine)}
        self.upgrade.used.update(name for name, upgrade in upgrades.items() if upgrade is not None)
        return tuple(upgrades[name] or Requirement(name) for name in REQUIRED_DEPENDENCIES[engine])

    def _with_shared(
        self, wanted: tuple[Requirement, ...], numpy: Release | None, python: str
    ) -> tuple[Release, ...] | None:
        own = next(requirement for requirement in wanted if requirement.name == NUMPY)
        if numpy is None or not is_satisfiable(own.specifier) or not own.specifier.contains(numpy.version, True):
            return None
        answer = self.index.together((*wanted, Requirement(numpy.pin)), python)
        return None if isinstance(answer, ReleaseNotFound) else answer


@dataclass(slots=True)
class ExtensionResolver:
    """Resolves extensions: one release for all runtimes of one Python that have the same requirement."""

    index: PackageIndex
    upgrade: UpgradeRequest
    known: dict[tuple[str, str], str] = field(default_factory=dict)  # (requirement, Python) -> pin
    releases: list[Release] = field(default_factory=list)  # answers of the index

    def learn(self, lock: Lock) -> None:
        """Remember locked extensions, so that new runtimes share them."""
        for runtime in _managed_runtimes(lock.targets.values()):
            for text in _package_requirements(runtime.extensions):
                pin, key = find_pin(runtime, package_name(text)), (text, runtime.python)
                if self._stays(text, pin):
                    self.known[key] = max(pin, self.known.get(key, pin), key=_pin_version)

    def pins(self, runtime: LockedRuntime, extensions: Iterable[str]) -> Iterator[str]:
        """
        Yield the pins of all packages among extensions: the runtime's own if they are valid and not upgraded.

        Raises:
            ConfigError: no release of one has wheels for the runtime's Python.
        """
        for text in _package_requirements(extensions):
            own = find_pin(runtime, package_name(text))
            yield own if own and self._stays(text, own) else self._shared(text, runtime)

    def _stays(self, text: str, pin: str) -> bool:
        name, _, version = pin.partition("==")
        upgrade = self.upgrade.of(name)
        is_upgraded = upgrade is not None and is_satisfiable(upgrade.specifier & Requirement(text).specifier)
        return is_satisfied(text, version) and not is_upgraded

    def _shared(self, text: str, runtime: LockedRuntime) -> str:
        key = (text, runtime.python)
        if key not in self.known:
            release = self._newest(text, runtime)
            self.releases.append(release)
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


def _package_requirements(extensions: Iterable[str]) -> tuple[str, ...]:
    """Return the extensions that are packages."""
    return tuple(text for text in extensions if not is_library(text))


def find_pin(runtime: LockedRuntime, package: str) -> str:
    """Return the runtime's pin of a package; "" if it has none."""
    return next((pin for pin in runtime.packages if pin.startswith(f"{package}==")), "")
