"""The runtimes that npm installs: their releases, and the integrity of each package."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.config.types import Select
from onnxgate.errors import ConfigError, ResolutionError
from onnxgate.lock.companions import companions_of, has_companions
from onnxgate.lock.index import Release
from onnxgate.lock.npm import AsksNpm
from onnxgate.lock.resolving import minor_of, select_ascending
from onnxgate.lock.types import Lock, LockedRuntime, NpmPackage
from onnxgate.lock.validation import INTEGRITY


@dataclass(slots=True)
class NpmPins:
    """The pins of the old lock, and those that npm gave since."""

    old: Lock
    npm: AsksNpm
    pool: dict[str, NpmPackage] = field(init=False)  # pin -> the package

    def __post_init__(self) -> None:
        self.pool = {f"{each.name}=={each.version}": each for each in self.old.npm}

    def find(self, requirement: Requirement, select: Select) -> tuple[Release, ...]:
        """
        The releases that `select` takes of a requirement, ascending.

        Raises:
            ConfigError: no release satisfies the requirement.
            ResolutionError: npm cannot be asked.
        """
        name = canonicalize_name(requirement.name)
        fitting = [version for version in self.npm.releases(name) if requirement.specifier.contains(version)]
        if not fitting:
            raise ConfigError(f"no release of `{name}` that npm offers satisfies `{requirement.specifier}`")
        newest = {version if select == "all" else minor_of(version): version for version in fitting}
        return select_ascending([Release(name, version, "", ()) for version in newest.values()], select)

    def complete(self, runtime: LockedRuntime) -> LockedRuntime:
        """The runtime with what its engine needs beside itself."""
        if has_companions(runtime):
            return runtime
        pins = self._ask(runtime.engine, runtime.release)
        return msgspec.structs.replace(runtime, packages=pins)

    def packages(self, runtimes: Iterable[LockedRuntime]) -> tuple[NpmPackage, ...]:
        """All that the runtimes pin; what the old lock lacks is asked for."""
        found: dict[str, NpmPackage] = {}
        for runtime in runtimes:
            if not self.pool.keys() >= set(runtime.packages):
                self._ask(runtime.engine, runtime.release)
            found |= {pin: self._known(pin) for pin in runtime.packages}
        return tuple(sorted(found.values(), key=lambda each: (each.name, Version(each.version))))

    def _known(self, pin: str) -> NpmPackage:
        if pin not in self.pool:
            raise ResolutionError(f"npm has no `{pin}` any longer", hint="run `onnxgate lock --upgrade`")
        return self.pool[pin]

    def _ask(self, engine: str, release: str) -> tuple[str, ...]:
        """Sorted pins of one release and its companions, whose integrity is known from then on."""
        offered = self.npm.needed(engine, release)
        pins = []
        for name in (engine, *companions_of(engine)):
            package = offered.get(name)
            if package is None or not INTEGRITY.fullmatch(package.integrity):
                raise ResolutionError(f"npm gives no integrity by sha512 of `{name}`, which `{engine} {release}` needs")
            pins.append(f"{name}=={package.version}")
            self.pool[pins[-1]] = package
        return tuple(sorted(pins))
