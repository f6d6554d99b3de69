"""What the metadata of an engine's releases ask for, found in an index."""

from __future__ import annotations

from dataclasses import dataclass

from packaging.requirements import Requirement

from onnxgate.config.requirements import satisfiable
from onnxgate.errors import ConfigError
from onnxgate.lock.companions import NEEDED, companions_of
from onnxgate.lock.index import NoRelease, Release
from onnxgate.lock.resolving import AsksIndex
from onnxgate.lock.types import LockedRuntime
from onnxgate.lock.upgrades import Upgrade


@dataclass(frozen=True, slots=True)
class Metadata:
    """Asks an index for what one release of an engine depends on."""

    index: AsksIndex
    upgrade: Upgrade

    def given_up(self, engine: str) -> bool:
        """Whether `--upgrade` names one of the engine's companions."""
        return any(self.upgrade.of(name) is not None for name in companions_of(engine))

    def releases(self, runtime: LockedRuntime, numpy: Release | None) -> tuple[Release, ...]:
        """
        The companions of one runtime; `numpy` is the one that others have, which is taken where it fits.

        Raises:
            ConfigError: nothing fits.
        """
        wanted = (Requirement(f"{runtime.engine}=={runtime.release}"), *self._asked(runtime.engine))
        answer = self._with_shared(wanted, numpy, runtime.python) or self.index.together(wanted, runtime.python)
        if isinstance(answer, NoRelease):
            raise ConfigError(
                f"nothing fits `{runtime.engine} {runtime.release}` on Python {runtime.python}: {answer.reason}"
            )
        return tuple(each for each in answer if each.name in companions_of(runtime.engine) and each.wheels)

    def _asked(self, engine: str) -> tuple[Requirement, ...]:
        asked = {name: self.upgrade.of(name) for name in companions_of(engine)}
        self.upgrade.used.update(name for name, each in asked.items() if each is not None)
        return tuple(asked[name] or Requirement(name) for name in NEEDED[engine])

    def _with_shared(
        self, wanted: tuple[Requirement, ...], numpy: Release | None, python: str
    ) -> tuple[Release, ...] | None:
        own = next(each for each in wanted if each.name == "numpy")
        if numpy is None or not satisfiable(own.specifier) or not own.specifier.contains(numpy.version, True):
            return None
        answer = self.index.together((*wanted, Requirement(numpy.pin)), python)
        return None if isinstance(answer, NoRelease) else answer
