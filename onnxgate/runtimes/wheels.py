"""Locked wheels: which of them this machine takes."""

from __future__ import annotations

import functools
import sysconfig
from collections.abc import Sequence

from packaging import tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from onnxgate.config.engines import family_of
from onnxgate.errors import UnavailableError
from onnxgate.lock.types import LockedPackage, LockedRuntime, Wheel

MODULES = {"opencv-python-headless": "cv2"}


def module_of(engine: str) -> str:
    """What is imported for an engine."""
    family = family_of(engine)
    return MODULES.get(family, family.replace("-", "_"))


def needed(runtime: LockedRuntime, packages: Sequence[LockedPackage]) -> tuple[LockedPackage, ...]:
    """The packages that the runtime pins, of which each has a wheel for this machine.

    Raises:
        UnavailableError: one has not.
    """
    found = tuple(_pinned(pin, runtime, packages) for pin in runtime.packages)
    for package in found:
        if not fitting(package):
            raise UnavailableError(
                f"`{package.name} {package.version}` has no wheel for {sysconfig.get_platform()} "
                f"and Python {package.python}",
                hint="check it on another system, or set `required = false` for its target",
            )
    return found


def fitting(package: LockedPackage) -> tuple[str, ...]:
    """The sha256 of each of its wheels that this machine takes."""
    supported = _supported(package.python)
    return tuple(wheel.sha256 for wheel in package.wheels if not _tags(wheel.file).isdisjoint(supported))


def by_preference(package: LockedPackage) -> tuple[Wheel, ...]:
    """Its wheels that this machine takes, the one that an installer would take first."""
    rank = _supported(package.python)
    ranked = (
        (min((rank[tag] for tag in _tags(wheel.file) if tag in rank), default=-1), wheel) for wheel in package.wheels
    )
    return tuple(wheel for _, wheel in sorted((each for each in ranked if each[0] >= 0), key=lambda each: each[0]))


def requirements(packages: Sequence[LockedPackage]) -> str:
    """What pip and uv read: exact pins with the hash of every locked wheel."""
    lines = (
        " ".join([f"{package.name}=={package.version}", *(f"--hash=sha256:{wheel.sha256}" for wheel in package.wheels)])
        for package in packages
    )
    return "\n".join(lines) + "\n"


def _pinned(pin: str, runtime: LockedRuntime, packages: Sequence[LockedPackage]) -> LockedPackage:
    name, _, version = pin.partition("==")
    wanted = (canonicalize_name(name), version, runtime.python)
    for package in packages:
        if (canonicalize_name(package.name), package.version, package.python) == wanted:
            return package
    raise UnavailableError(
        f"the lock has no wheels of `{pin}` for Python {runtime.python}", hint="run `onnxgate lock --upgrade`"
    )


def _tags(file: str) -> frozenset[tags.Tag]:
    try:
        return parse_wheel_filename(file)[3]
    except InvalidWheelFilename:
        return frozenset()


@functools.cache
def _supported(minor: str) -> dict[tags.Tag, int]:
    """The tags that this machine takes, with their place among them: the most specific is 0."""
    major, _, rest = minor.partition(".")
    version = (int(major), int(rest))
    platforms = list(tags.platform_tags())
    specific = tags.cpython_tags(version, platforms=platforms)
    compatible = tags.compatible_tags(version, f"cp{major}{rest}", platforms=platforms)
    return {tag: rank for rank, tag in enumerate(dict.fromkeys([*specific, *compatible]))}
