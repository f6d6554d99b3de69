"""Resolves a target to exact releases: walks its range down, minor by minor, for each Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.project.config.schema import ReleaseSelection
from onnxgate.project.engines import is_satisfiable
from onnxgate.project.lock.index import Release, ReleaseNotFound
from onnxgate.project.lock.types import LockedRuntime

PYTHONS = ("3.11", "3.14", "3.13", "3.12", "3.10", "3.9", "3.8")
"""The Python of a release is the first of these that it has wheels for: 3.11, else the newest."""

# Source: measured, `facts` of the releases: 1.15.1 to 1.18.1 fail to import with numpy 2, 1.19.2 and later take it.
NUMPY_2_SINCE = Version("1.19")

MinorVersion = tuple[int, ...]
Element = TypeVar("Element")


class PackageIndex(Protocol):
    """What resolving needs of an index."""

    def newest(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        """The newest release that has wheels for one Python."""

    def together(self, requirements: Sequence[Requirement], python: str) -> tuple[Release, ...] | ReleaseNotFound:
        """The newest releases that fit one another, with all that they depend on."""


def minor_of(version: Version) -> MinorVersion:
    """`(1, 18)` of 1.18.1."""
    return (version.epoch, version.major, version.minor)


def find_releases(requirement: Requirement, select: ReleaseSelection, index: PackageIndex) -> tuple[Release, ...]:
    """
    The releases that `select` takes of a requirement, ascending, each with the Python that it is run under.

    Raises:
        ConfigError: no release satisfies the requirement.
        ResolutionError: the index cannot be asked.
    """
    first, *others = PYTHONS
    walks = [_search_releases(requirement, first, select, index)]  # alone: where the index is not reached, it ends here
    with ThreadPoolExecutor(max_workers=4) as threads:
        walks += threads.map(lambda python: _search_releases(requirement, python, select, index), others)
    found = _merge_releases([release for walk in walks for release in walk.releases], _grouping_key(select))
    if not found:
        reason = walks[0].ended.reason
        raise ConfigError(
            f"no release of `{requirement.name}` satisfies `{requirement.specifier}`: {reason}",
            hint="ask for other releases in the target, or name the index that has them in `UV_DEFAULT_INDEX`",
        )
    return apply_selection(found, select)


def apply_selection(ascending: Sequence[Element], select: ReleaseSelection) -> tuple[Element, ...]:
    """What `select` takes of the newest patch of each minor (of every patch, where it is `all`)."""
    match select:
        case "newest":
            return tuple(ascending[-1:])
        case "bounds":
            return tuple(dict.fromkeys((ascending[0], ascending[-1])))
        case "minors" | "all":
            return tuple(ascending)


_NOT_SEARCHED = ReleaseNotFound("")


@dataclass(frozen=True, slots=True)
class _ReleaseSearch:
    """What one Python has of a range, newest first, and what ended it."""

    releases: tuple[Release, ...]
    ended: ReleaseNotFound = _NOT_SEARCHED


def _search_releases(
    requirement: Requirement, python: str, select: ReleaseSelection, index: PackageIndex
) -> _ReleaseSearch:
    found: list[Release] = []
    below = SpecifierSet()
    while True:
        answer = index.newest(_narrow(requirement, below), python)
        if isinstance(answer, ReleaseNotFound):
            return _ReleaseSearch(tuple(found), answer)
        if answer.wheels:
            found.append(answer)
            if select == "newest":
                return _ReleaseSearch(tuple(found))
        below = _specifier_below(answer.version, by_patch=select == "all" or not answer.wheels)


def find_newest_with_wheels(requirement: Requirement, python: str, index: PackageIndex) -> Release | ReleaseNotFound:
    """The newest release that has wheels for one Python on a system of ours; older ones are asked for until one has."""
    walk = _search_releases(requirement, python, "newest", index)
    return walk.releases[0] if walk.releases else walk.ended


def _narrow(requirement: Requirement, clauses: SpecifierSet) -> Requirement:
    return Requirement(f"{canonicalize_name(requirement.name)}{requirement.specifier & clauses}")


def _specifier_below(version: Version, *, by_patch: bool) -> SpecifierSet:
    epoch = f"{version.epoch}!" if version.epoch else ""
    return SpecifierSet(f"<{version.public}" if by_patch else f"<{epoch}{version.major}.{version.minor}")


def _grouping_key(select: ReleaseSelection) -> Callable[[Release], object]:
    """Which releases stand for one another: those of one minor, or none."""
    return (lambda release: release.version) if select == "all" else (lambda release: minor_of(release.version))


def _merge_releases(releases: Iterable[Release], step: Callable[[Release], object]) -> list[Release]:
    """The newest of each step, ascending, under the Python that comes first for it."""
    best: dict[object, Release] = {}
    for release in sorted(releases, key=lambda each: PYTHONS.index(each.python)):
        key = step(release)
        if key not in best or release.version > best[key].version:
            best[key] = release
    return sorted(best.values(), key=lambda each: each.version)


@dataclass(slots=True)
class NumpyResolver:
    """What an engine needs beside itself: numpy, one release for all runtimes that can share it."""

    index: PackageIndex
    asked: Requirement | None = None  # which numpy; None: any that works
    known: dict[tuple[str, bool], Release] = field(default_factory=dict)  # (Python, takes numpy 2) -> numpy

    def numpy(self, engine_release: Version, python: str) -> Release:
        """The numpy of one runtime: the one that others share, else the newest that there is."""
        key = (python, supports_numpy_2(engine_release))
        if key not in self.known:
            self.known[key] = find_exact_release(self._requirement(takes_2=key[1]), python, self.index)
        return self.known[key]

    def _requirement(self, *, takes_2: bool) -> Requirement:
        asked = self.asked.specifier if self.asked is not None else SpecifierSet()
        wanted = asked if takes_2 else asked & SpecifierSet("<2")
        return Requirement(f"numpy{wanted if is_satisfiable(wanted) else '<2'}")


def supports_numpy_2(engine_release: Version) -> bool:
    """Whether a release of onnxruntime works with numpy 2; its metadata does not tell."""
    return Version(engine_release.base_version) >= NUMPY_2_SINCE


def find_exact_release(requirement: Requirement, python: str, index: PackageIndex) -> Release:
    """
    The one release that a requirement means for one Python.

    Raises:
        ConfigError: there is none.
    """
    answer = index.newest(requirement, python)
    if isinstance(answer, ReleaseNotFound):
        raise ConfigError(f"no release satisfies `{requirement}` on Python {python}: {answer.reason}")
    if not answer.wheels:
        raise ConfigError(f"{answer.name} {answer.version} has no wheels for Python {python} on any system")
    return answer


def runtime_from_release(release: Release) -> LockedRuntime:
    """A runtime of the engine alone."""
    return LockedRuntime(
        engine=release.name, release=str(release.version), python=release.python, packages=(release.pin,)
    )


@dataclass(slots=True)
class UpgradeRequest:
    """Whose pins are given up: everything's, or those of some packages, each perhaps for certain releases."""

    everything: bool = False
    requirements: tuple[Requirement, ...] = ()
    used: set[str] = field(default_factory=set)

    def of(self, package: str) -> Requirement | None:
        """What is asked of a package: its name alone for anything newer; None where its pins stay."""
        named = next(
            (requirement for requirement in self.requirements if canonicalize_name(requirement.name) == package), None
        )
        return named or (Requirement(package) if self.everything else None)

    def takes(self, versions: Mapping[str, str]) -> bool:
        """Whether some packages were asked for in these versions."""
        asked = {name: self.of(name) for name in versions}
        taken = {name for name, each in asked.items() if each and each.specifier.contains(versions[name], True)}
        self.used.update(taken)
        return bool(taken)

    def refuse_unused(self) -> None:
        """Raise where something was named that neither a target nor the toolchain has, or that no range takes."""
        for requirement in self.requirements:
            if canonicalize_name(requirement.name) not in self.used:
                raise UsageError(
                    f"neither a target nor the toolchain here takes `{requirement}`",
                    hint="change the `runtime` of a target, then run `onnxgate lock`",
                )


def parse_upgrade(texts: Sequence[str]) -> UpgradeRequest | None:
    """What `--upgrade` asks for: `""` is everything; `onnxruntime`, `onnxruntime=1.31.1` or any requirement."""
    if not texts:
        return None
    return UpgradeRequest(
        everything="" in texts, requirements=tuple(_parse_requirement(text) for text in texts if text)
    )


def _parse_requirement(text: str) -> Requirement:
    name, equals, version = text.partition("=")
    single = equals and not version.startswith("=") and name[-1:] not in "<>!~="
    try:
        return Requirement(f"{name}=={version}" if single else text)
    except InvalidRequirement as error:
        raise UsageError(
            f"`--upgrade {text}`: expected a package or a requirement, such as `onnxruntime=1.31.1`"
        ) from error
