"""The packages among a target's extensions, pinned beside the engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.config.extensions import is_library, package_name, satisfied
from onnxgate.config.requirements import satisfiable
from onnxgate.errors import ConfigError
from onnxgate.lock.index import NoRelease, Release
from onnxgate.lock.resolving import AsksIndex, newest_with_wheels
from onnxgate.lock.types import Lock, LockedRuntime
from onnxgate.lock.upgrades import Upgrade


@dataclass(slots=True)
class Extensions:
    """Releases of extensions: one for all runtimes of one Python that ask for them in the same words."""

    index: AsksIndex
    upgrade: Upgrade
    known: dict[tuple[str, str], str] = field(default_factory=dict)  # (requirement, Python) -> pin
    found: list[Release] = field(default_factory=list)  # what the index was asked for

    def learn(self, lock: Lock) -> None:
        """Have runtimes that are new share what is locked already."""
        made = [each for target in lock.targets.values() for each in target.runtimes if not each.environment]
        for runtime in made:
            for text in packages(runtime.extensions):
                pin, key = pin_of(runtime, package_name(text)), (text, runtime.python)
                if self._stays(text, pin):
                    self.known[key] = max(pin, self.known.get(key, pin), key=_version)

    def pins(self, runtime: LockedRuntime, asked: Iterable[str]) -> Iterator[str]:
        """
        The pins of all packages among `asked`: the runtime's own, where they fit and are not given up.

        Raises:
            ConfigError: no release of one has wheels for the runtime's Python.
        """
        for text in packages(asked):
            own = pin_of(runtime, package_name(text))
            yield own if own and self._stays(text, own) else self._shared(text, runtime)

    def _stays(self, text: str, pin: str) -> bool:
        name, _, version = pin.partition("==")
        upgrade = self.upgrade.of(name)
        given_up = upgrade is not None and satisfiable(upgrade.specifier & Requirement(text).specifier)
        return satisfied(text, version) and not given_up

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
            if satisfiable(both):
                wanted = Requirement(f"{name}{both}")
                self.upgrade.used.add(name)
        answer = newest_with_wheels(wanted, runtime.python, self.index)
        if isinstance(answer, NoRelease):
            under = f"Python {runtime.python}, under which {runtime.engine} {runtime.release} runs"
            raise ConfigError(f"no release of `{wanted}` has wheels for {under}: {answer.reason}")
        return answer


def _version(pin: str) -> Version:
    return Version(pin.partition("==")[2])


def packages(extensions: Iterable[str]) -> tuple[str, ...]:
    """Those of a target's extensions that are packages."""
    return tuple(text for text in extensions if not is_library(text))


def pin_of(runtime: LockedRuntime, package: str) -> str:
    """The runtime's pin of a package, "" where it has none."""
    return next((pin for pin in runtime.packages if pin.startswith(f"{package}==")), "")
