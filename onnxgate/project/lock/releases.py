"""Resolve a target to exact releases: search its range downward, minor by minor, for each Python."""

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
"""The Python of a release is the first of these that it has wheels for."""

# Source: measured: 1.15.1 to 1.18.1 fail to import with numpy 2, 1.19.2 and later work.
NUMPY_2_SINCE = Version("1.19")

MinorVersion = tuple[int, ...]
Element = TypeVar("Element")


class PackageIndex(Protocol):
    """The queries that resolving needs."""

    def newest(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        """Return the newest release that has wheels for one Python."""

    def together(self, requirements: Sequence[Requirement], python: str) -> tuple[Release, ...] | ReleaseNotFound:
        """Return the newest releases that are compatible with each other, with all dependencies."""


def minor_of(version: Version) -> MinorVersion:
    """Return epoch, major and minor: `(0, 1, 18)` of 1.18.1."""
    return (version.epoch, version.major, version.minor)


def find_releases(requirement: Requirement, select: ReleaseSelection, index: PackageIndex) -> tuple[Release, ...]:
    """
    Return the releases that `select` takes of a requirement, ascending, each with the Python that it runs under.

    Raises:
        ConfigError: no release satisfies the requirement.
        ResolutionError: the index is not available.
    """
    first, *others = PYTHONS
    searches = [_search_releases(requirement, first, select, index)]  # alone: raises if the index is not available
    with ThreadPoolExecutor(max_workers=4) as threads:
        searches += threads.map(lambda python: _search_releases(requirement, python, select, index), others)
    merged = _merge_releases([release for search in searches for release in search.releases], _grouping_key(select))
    if not merged:
        reason = searches[0].ended.reason
        raise ConfigError(
            f"no release of `{requirement.name}` satisfies `{requirement.specifier}`: {reason}",
            hint="ask for other releases in the target, or name the index that has them in `UV_DEFAULT_INDEX`",
        )
    return apply_selection(merged, select)


def apply_selection(ascending: Sequence[Element], select: ReleaseSelection) -> tuple[Element, ...]:
    """Return what `select` takes of the newest patches of all minors (of all patches for `all`)."""
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
    """The releases of a range for one Python, newest first, and the answer that ended the search."""

    releases: tuple[Release, ...]
    ended: ReleaseNotFound = _NOT_SEARCHED


def _search_releases(
    requirement: Requirement, python: str, select: ReleaseSelection, index: PackageIndex
) -> _ReleaseSearch:
    releases: list[Release] = []
    below = SpecifierSet()
    while True:
        answer = index.newest(_narrow(requirement, below), python)
        if isinstance(answer, ReleaseNotFound):
            return _ReleaseSearch(tuple(releases), answer)
        if answer.wheels:
            releases.append(answer)
            if select == "newest":
                return _ReleaseSearch(tuple(releases))
        below = _specifier_below(answer.version, by_patch=select == "all" or not answer.wheels)


def find_newest_with_wheels(requirement: Requirement, python: str, index: PackageIndex) -> Release | ReleaseNotFound:
    """Return the newest release that has wheels for one Python on a supported system."""
    search = _search_releases(requirement, python, "newest", index)
    return search.releases[0] if search.releases else search.ended


def _narrow(requirement: Requirement, clauses: SpecifierSet) -> Requirement:
    return Requirement(f"{canonicalize_name(requirement.name)}{requirement.specifier & clauses}")


def _specifier_below(version: Version, *, by_patch: bool) -> SpecifierSet:
    epoch = f"{version.epoch}!" if version.epoch else ""
    return SpecifierSet(f"<{version.public}" if by_patch else f"<{epoch}{version.major}.{version.minor}")


def _grouping_key(select: ReleaseSelection) -> Callable[[Release], object]:
    """Return the key of which one release is taken: the minor, or the version for `all`."""
    return (lambda release: release.version) if select == "all" else (lambda release: minor_of(release.version))


def _merge_releases(releases: Iterable[Release], step: Callable[[Release], object]) -> list[Release]:
    """Return the newest release of each step, ascending, with the first Python that has it."""
    best: dict[object, Release] = {}
    for release in sorted(releases, key=lambda release: PYTHONS.index(release.python)):
        key = step(release)
        if key not in best or release.version > best[key].version:
            best[key] = release
    return sorted(best.values(), key=lambda release: release.version)


@dataclass(slots=True)
class NumpyResolver:
    """Resolves numpy: one release for all runtimes that can share it."""

    index: PackageIndex
    asked: Requirement | None = None  # which numpy; None: any that works
    known: dict[tuple[str, bool], Release] = field(default_factory=dict)  # (Python, takes numpy 2) -> numpy

    def numpy(self, engine_release: Version, python: str) -> Release:
        """Return the numpy of one runtime: the one that other runtimes share, or the newest."""
        key = (python, supports_numpy_2(engine_release))
        if key not in self.known:
            self.known[key] = find_exact_release(self._requirement(takes_2=key[1]), python, self.index)
        return self.known[key]

    def _requirement(self, *, takes_2: bool) -> Requirement:
        specifier = self.asked.specifier if self.asked is not None else SpecifierSet()
        if not takes_2:
            specifier &= SpecifierSet("<2")
        return Requirement(f"numpy{specifier if is_satisfiable(specifier) else '<2'}")


def supports_numpy_2(engine_release: Version) -> bool:
    """Return whether a release of onnxruntime works with numpy 2, which its metadata does not contain."""
    return Version(engine_release.base_version) >= NUMPY_2_SINCE


def find_exact_release(requirement: Requirement, python: str, index: PackageIndex) -> Release:
    """
    Return the newest release of a requirement for one Python.

    Raises:
        ConfigError: there is none, or it has no wheels.
    """
    answer = index.newest(requirement, python)
    if isinstance(answer, ReleaseNotFound):
        raise ConfigError(f"no release satisfies `{requirement}` on Python {python}: {answer.reason}")
    if not answer.wheels:
        raise ConfigError(f"{answer.name} {answer.version} has no wheels for Python {python} on any system")
    return answer


def runtime_from_release(release: Release) -> LockedRuntime:
    """Return a runtime with only the engine pinned."""
    return LockedRuntime(
        engine=release.name, release=str(release.version), python=release.python, packages=(release.pin,)
    )


@dataclass(slots=True)
class UpgradeRequest:
    """The pins that may change: all of them, or those of some packages, possibly only for some releases."""

    everything: bool = False
    requirements: tuple[Requirement, ...] = ()
    used: set[str] = field(default_factory=set)

    def of(self, package: str) -> Requirement | None:
        """Return the requirement for a package's new pin: only its name for the newest; None if its pins stay."""
        named = next(
            (requirement for requirement in self.requirements if canonicalize_name(requirement.name) == package), None
        )
        return named or (Requirement(package) if self.everything else None)

    def takes(self, versions: Mapping[str, str]) -> bool:
        """Return whether the request includes a package in one of these versions."""
        requested = {name: self.of(name) for name in versions}
        included = {
            name
            for name, requirement in requested.items()
            if requirement and requirement.specifier.contains(versions[name], True)
        }
        self.used.update(included)
        return bool(included)

    def refuse_unused(self) -> None:
        """Raise if a requested package is in neither a target nor the toolchain, or no range allows the release."""
        for requirement in self.requirements:
            if canonicalize_name(requirement.name) not in self.used:
                raise UsageError(
                    f"neither a target nor the toolchain here takes `{requirement}`",
                    hint="change the `runtime` of a target, then run `onnxgate lock`",
                )


def parse_upgrade(texts: Sequence[str]) -> UpgradeRequest | None:
    """Parse values of `--upgrade`: `""` for everything; `onnxruntime`, `onnxruntime=1.31.1` or any requirement."""
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
