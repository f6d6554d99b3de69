"""Resolve the runtimes of each target. Pins in the old lock that are still valid are kept."""

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
    runtime_differences,
    satisfies,
    target_policy,
)
from onnxgate.project.lock.index import Release, ReleaseNotFound, UvIndex
from onnxgate.project.lock.npm import NpmResolver
from onnxgate.project.lock.releases import (
    NumpyResolver,
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
BuildFinder = Callable[[Target], LockedRuntime]
"""Function that returns the engine in a target's user environment; raises `UnavailableError` if it does not match."""


@dataclass(slots=True)
class PinResolver:
    """Resolves the targets of a project, starting with the pins of the old lock."""

    old: Lock
    upgrade: UpgradeRequest
    find_build: BuildFinder
    offline: bool
    index: UvIndex = field(init=False)
    pool: dict[tuple[str, str], LockedPackage] = field(init=False)  # (pin, Python) -> its wheels
    companions: NumpyResolver = field(init=False)
    extensions: ExtensionResolver = field(init=False)
    npm: NpmResolver = field(init=False)
    builds: dict[str, LockedRuntime | UnavailableError] = field(default_factory=dict)  # by policy of the target
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.index = UvIndex(self.offline)
        self.pool = {(f"{package.name}=={package.version}", package.python): package for package in self.old.packages}
        self.extensions = ExtensionResolver(self.index, self.upgrade)
        self.extensions.learn(self.old)
        self.npm = NpmResolver(self.old, self.offline)
        self.companions = NumpyResolver(self.index, self.upgrade.of(NUMPY))
        if self.companions.requirement is None:
            self._share_locked_numpy()
        else:
            self.upgrade.used.add(NUMPY)

    def target(self, name: str, target: Target) -> LockedTarget:
        """Resolve one target, and return it with its runtimes."""
        locked = self.old.targets.get(name)
        has_valid_rows = locked is not None and not any(runtime_differences(name, target, locked))
        old = locked.runtimes if locked is not None else ()
        if target.python is not None:
            return self._own_environment(name, target, old[0] if old and has_valid_rows else None)
        is_valid = has_valid_rows and locked is not None and locked.policy == target_policy(target)
        engines = self._resolve_engines(Requirement(target.runtime), target.select, old, is_valid=is_valid)
        extensions = canonical_extensions(target)
        runtimes = tuple(self._with_extensions(self._with_companions(runtime), extensions) for runtime in engines)
        return _locked_target(target, runtimes)

    def packages(self, targets: Iterable[LockedTarget]) -> tuple[LockedPackage, ...]:
        """Return all packages that the targets pin, with their wheels; the index is queried for missing packages."""
        runtimes = [runtime for runtime in _managed_runtimes(targets) if not runs_on_node(runtime.engine)]
        needed = {(pin, runtime.python) for runtime in runtimes for pin in runtime.packages}
        for pin, python in sorted(needed - self.pool.keys()):
            self._remember(find_exact_release(Requirement(pin), python, self.index))
        return tuple(self.pool[key] for key in sorted(needed))

    def npm_packages(self, targets: Iterable[LockedTarget]) -> tuple[NpmPackage, ...]:
        """Return all packages that npm installs for the targets."""
        return self.npm.packages(runtime for runtime in _managed_runtimes(targets) if runs_on_node(runtime.engine))

    def _own_environment(self, name: str, target: Target, old: LockedRuntime | None) -> LockedTarget:
        """Resolve a target that uses a user environment; a locked runtime that is still valid is kept."""
        new = self._find_build_once(target)
        if isinstance(new, UnavailableError):
            stays = "the locked pins are unchanged" if old else "it is not locked"
            self.notes.append(f"target `{name}`: {new.message}; {stays}")
            return _locked_target(target, () if old is None else (old,))
        pins = (_engine_pin(new), *new.packages)
        is_upgraded = self.upgrade.takes({pin.partition("==")[0]: pin.partition("==")[2] for pin in pins})
        if old is None or is_upgraded or old == new:
            return _locked_target(target, (new,))
        locked_pins = ", ".join((_engine_pin(old), *old.packages))
        note = f"`{target.python}` has {', '.join(pins)} (locked: {locked_pins})"
        self.notes.append(f"target `{name}`: {note}; run `onnxgate lock --upgrade` to lock the installed versions")
        return _locked_target(target, (old,))

    def _find_build_once(self, target: Target) -> LockedRuntime | UnavailableError:
        policy = target_policy(target)
        if policy not in self.builds:
            try:
                self.builds[policy] = self.find_build(target)
            except UnavailableError as error:
                self.builds[policy] = error
        return self.builds[policy]

    def _resolve_engines(
        self, requirement: Requirement, select: ReleaseSelection, old: tuple[LockedRuntime, ...], *, is_valid: bool
    ) -> tuple[LockedRuntime, ...]:
        """Return the runtimes for a requirement. New runtimes pin only their engine. `is_valid`: `old` matches it."""
        upgrade = self.upgrade.of(canonicalize_name(requirement.name))
        if upgrade is None:
            reusable = [runtime for runtime in old if not runtime.environment and satisfies(runtime, requirement)]
            return old if is_valid else self._resolve(requirement, select, reusable)
        if not upgrade.specifier or not is_valid:
            self.upgrade.used.add(canonicalize_name(upgrade.name))
            return self._resolve(requirement, select, ())
        return self._apply_upgrade(requirement, upgrade, select, old)

    def _resolve(
        self, requirement: Requirement, select: ReleaseSelection, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Resolve a requirement. Unless `select` is `newest` or `all`, minor releases keep their patch in `old`."""
        locked = {} if select in ("newest", "all") else {minor_of(Version(row.release)): row for row in old}
        releases = self._find(requirement, select)
        return tuple(locked.get(minor_of(release.version)) or self._runtime(release) for release in releases)

    def _apply_upgrade(
        self, requirement: Requirement, upgrade: Requirement, select: ReleaseSelection, old: Sequence[LockedRuntime]
    ) -> tuple[LockedRuntime, ...]:
        """Return the old runtimes; releases of the upgrade replace old runtimes of the same minor release."""
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
        """Return the runtime with the dependencies of its engine. Existing pins are kept unless they are upgraded."""
        if runs_on_node(runtime.engine):
            return self.npm.complete(runtime)
        if runtime.engine != ONNXRUNTIME:
            return self._with_dependencies(runtime)
        own = tuple(pin for pin in runtime.packages if not pin.startswith(f"{NUMPY}=="))
        if own != runtime.packages and self.companions.requirement is None:
            return runtime
        numpy = self.companions.numpy(Version(runtime.release), runtime.python)
        self._remember(numpy)
        return msgspec.structs.replace(runtime, packages=tuple(sorted((*own, numpy.pin))))

    def _with_dependencies(self, runtime: LockedRuntime) -> LockedRuntime:
        """Return the runtime with its dependencies; the numpy release of other runtimes is used if it is compatible.

        Raises:
            ConfigError: no releases are compatible.
        """
        dependencies = engine_dependencies(runtime.engine)
        upgrades = {name: upgrade for name in dependencies if (upgrade := self.upgrade.of(name)) is not None}
        if has_required_dependencies(runtime) and not upgrades:
            return runtime
        self.upgrade.used.update(upgrades)
        names = REQUIRED_DEPENDENCIES[runtime.engine]
        requirements = [upgrades.get(name) or Requirement(name) for name in names]
        engine = Requirement(_engine_pin(runtime))
        answer: tuple[Release, ...] | ReleaseNotFound | None = None
        numpy = self.companions.releases.get((runtime.python, True))
        specifier = next(requirement.specifier for requirement in requirements if requirement.name == NUMPY)
        if numpy and is_satisfiable(specifier) and specifier.contains(numpy.version, True):
            answer = self.index.together((engine, *requirements, Requirement(numpy.pin)), runtime.python)
        if not isinstance(answer, tuple):
            answer = self.index.together((engine, *requirements), runtime.python)
        if isinstance(answer, ReleaseNotFound):
            engine_name = f"{runtime.engine} {runtime.release} on Python {runtime.python}"
            raise ConfigError(f"no compatible dependencies were found for {engine_name}: {answer.reason}")
        releases = [release for release in answer if release.name in dependencies and release.wheels]
        for release in releases:
            self._remember(release)
        pins = (_engine_pin(runtime), *(release.pin for release in releases))
        return msgspec.structs.replace(runtime, packages=tuple(sorted(pins)))

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

    def _share_locked_numpy(self) -> None:
        """Let new runtimes use the newest numpy release that is pinned for locked runtimes."""
        for runtime in (row for target in self.old.targets.values() for row in target.runtimes):
            package = self.pool.get((find_pin(runtime, NUMPY), runtime.python))
            if runtime.engine == ONNXRUNTIME and package is not None:
                numpy = Release(NUMPY, Version(package.version), package.python, package.wheels)
                key = (runtime.python, supports_numpy_2(Version(runtime.release)))
                shared = self.companions.releases.setdefault(key, numpy)
                self.companions.releases[key] = max(shared, numpy, key=lambda release: release.version)


def _managed_runtimes(targets: Iterable[LockedTarget]) -> Iterator[LockedRuntime]:
    """Yield the runtimes whose environments onnxgate creates."""
    return (runtime for target in targets for runtime in target.runtimes if not runtime.environment)


def _locked_target(target: Target, runtimes: tuple[LockedRuntime, ...]) -> LockedTarget:
    return LockedTarget(policy=target_policy(target), runtimes=runtimes)


def _engine_pin(runtime: LockedRuntime) -> str:
    return f"{runtime.engine}=={runtime.release}"


@dataclass(slots=True)
class ExtensionResolver:
    """Resolves extensions: one release for all runtimes with the same requirement and Python version."""

    index: UvIndex
    upgrade: UpgradeRequest
    shared_pins: dict[tuple[str, str], str] = field(default_factory=dict)  # (requirement, Python) -> pin
    releases: list[Release] = field(default_factory=list)  # resolved by the index

    def learn(self, lock: Lock) -> None:
        """Remember the pins of locked extensions, so that new runtimes use the same pins."""
        for runtime in _managed_runtimes(lock.targets.values()):
            for text in _package_requirements(runtime.extensions):
                pin, key = find_pin(runtime, package_name(text)), (text, runtime.python)
                if self._stays(text, pin):
                    pins = (pin, self.shared_pins.get(key, pin))
                    self.shared_pins[key] = max(pins, key=lambda pin: Version(pin.partition("==")[2]))

    def pins(self, runtime: LockedRuntime, extensions: Iterable[str]) -> Iterator[str]:
        """Yield the pins of the extensions that are packages. Valid pins are kept unless they are upgraded.

        Raises:
            ConfigError: an extension has no release with wheels for the runtime's Python version.
        """
        for text in _package_requirements(extensions):
            pin, key = find_pin(runtime, package_name(text)), (text, runtime.python)
            if pin and self._stays(text, pin):
                yield pin
                continue
            if key not in self.shared_pins:
                self.releases.append(self._find_newest(text, runtime))
                self.shared_pins[key] = self.releases[-1].pin
            yield self.shared_pins[key]

    def _stays(self, text: str, pin: str) -> bool:
        name, _, version = pin.partition("==")
        upgrade = self.upgrade.of(name)
        is_upgraded = upgrade is not None and is_satisfiable(upgrade.specifier & Requirement(text).specifier)
        return is_satisfied(text, version) and not is_upgraded

    def _find_newest(self, text: str, runtime: LockedRuntime) -> Release:
        requirement, name = Requirement(text), package_name(text)
        if upgrade := self.upgrade.of(name):
            both = requirement.specifier & upgrade.specifier
            if is_satisfiable(both):
                requirement = Requirement(f"{name}{both}")
                self.upgrade.used.add(name)
        answer = find_newest_with_wheels(requirement, runtime.python, self.index)
        if isinstance(answer, ReleaseNotFound):
            python = f"Python {runtime.python}, which {runtime.engine} {runtime.release} uses"
            reason = answer.reason or self.index.explain(requirement, runtime.python)
            raise ConfigError(f"no release of `{requirement}` has wheels for {python}{f': {reason}' if reason else ''}")
        return answer


def _package_requirements(extensions: Iterable[str]) -> tuple[str, ...]:
    """Return the extensions that are packages."""
    return tuple(text for text in extensions if not is_library(text))


def find_pin(runtime: LockedRuntime, package: str) -> str:
    """Return the runtime's pin of a package; "" if it has none."""
    return next((pin for pin in runtime.packages if pin.startswith(f"{package}==")), "")
