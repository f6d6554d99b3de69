"""Resolve a target to exact releases: for each Python version, search its range from the newest release down."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.core.text import find_similar, join_quoted
from onnxgate.project.config.schema import ReleaseSelection
from onnxgate.project.engines import is_satisfiable
from onnxgate.project.lock.index import Release, ReleaseNotFound, UvIndex
from onnxgate.project.lock.types import LockedRuntime

PYTHONS = ("3.11", "3.14", "3.13", "3.12", "3.10", "3.9", "3.8")
"""Python versions in order of preference. A release uses the first version for which it has wheels."""

# Source: measured: 1.15.1 to 1.18.1 fail to import with numpy 2, 1.19.2 and later work.
NUMPY_2_SINCE = Version("1.19")

Element = TypeVar("Element")


def minor_of(version: Version) -> tuple[int, ...]:
    """Return the epoch, major and minor version, such as `(0, 1, 18)` for 1.18.1."""
    return (version.epoch, version.major, version.minor)


def find_releases(requirement: Requirement, select: ReleaseSelection, index: UvIndex) -> tuple[Release, ...]:
    """Return the selected releases of a requirement, ascending, each with the Python version that it runs on.

    Raises:
        ConfigError: no release satisfies the requirement.
        ResolutionError: the index is not available.
    """
    first, *others = PYTHONS
    searches = [_search_releases(requirement, first, select, index)]  # alone: raises if the index is not available
    with ThreadPoolExecutor(max_workers=4) as threads:
        searches += threads.map(lambda python: _search_releases(requirement, python, select, index), others)
    merged = _merge_releases([release for search in searches for release in search.releases], select)
    if not merged:
        reason = index.explain(requirement, first).partition(" and you require ")[0]
        reason = reason or "these releases have no wheels for any platform in a lock"
        addition = "" if reason.startswith("there is no version of") else f": {reason}"
        raise ConfigError(
            f"no release of `{requirement.name}` satisfies `{requirement.specifier}`{addition}",
            hint="change the range in `runtime`, or set `UV_DEFAULT_INDEX` to an index that has such releases",
        )
    return apply_selection(merged, select)


def apply_selection(ascending: Sequence[Element], select: ReleaseSelection) -> tuple[Element, ...]:
    """Apply `select` to the newest patch release of each minor release (for `all`, to all patch releases)."""
    match select:
        case "newest":
            return tuple(ascending[-1:])
        case "bounds":
            return tuple(dict.fromkeys((ascending[0], ascending[-1])))
        case "minors" | "all":
            return tuple(ascending)


@dataclass(frozen=True, slots=True)
class _ReleaseSearch:
    """The releases in a range for one Python version, newest first, and the reason why there are no more."""

    releases: tuple[Release, ...]
    ended: ReleaseNotFound


def _search_releases(requirement: Requirement, python: str, select: ReleaseSelection, index: UvIndex) -> _ReleaseSearch:
    releases: list[Release] = []
    below = SpecifierSet()
    while True:
        specifier = requirement.specifier & below
        if releases and not is_satisfiable(specifier):
            return _ReleaseSearch(tuple(releases), ReleaseNotFound(""))
        narrowed = Requirement(f"{canonicalize_name(requirement.name)}{specifier}")
        answer = index.newest(narrowed, python)
        if isinstance(answer, ReleaseNotFound):
            return _ReleaseSearch(tuple(releases), answer)
        if answer.wheels:
            releases.append(answer)
            if select == "newest":
                return _ReleaseSearch(tuple(releases), ReleaseNotFound(""))
        version, by_patch = answer.version, select == "all" or not answer.wheels
        epoch = f"{version.epoch}!" if version.epoch else ""
        below = SpecifierSet(f"<{version.public}" if by_patch else f"<{epoch}{version.major}.{version.minor}")


def find_newest_with_wheels(requirement: Requirement, python: str, index: UvIndex) -> Release | ReleaseNotFound:
    """Return the newest release that has wheels for one Python version on a supported system."""
    search = _search_releases(requirement, python, "newest", index)
    return search.releases[0] if search.releases else search.ended


def _merge_releases(releases: Iterable[Release], select: ReleaseSelection) -> list[Release]:
    """Return the newest patch release of each minor release (for `all`, all), ascending, with its preferred Python."""
    best: dict[object, Release] = {}
    for release in sorted(releases, key=lambda release: PYTHONS.index(release.python)):
        key = release.version if select == "all" else minor_of(release.version)
        if key not in best or release.version > best[key].version:
            best[key] = release
    return sorted(best.values(), key=lambda release: release.version)


@dataclass(slots=True)
class NumpyResolver:
    """Resolves numpy: one release for all runtimes that can share it."""

    index: UvIndex
    requirement: Requirement | None = None  # None: any compatible release
    releases: dict[tuple[str, bool], Release] = field(default_factory=dict)  # (Python, supports numpy 2) -> numpy

    def numpy(self, engine_release: Version, python: str) -> Release:
        """Return the numpy release for one runtime: the release that other runtimes share, or the newest."""
        key = (python, supports_numpy_2(engine_release))
        if key not in self.releases:
            specifier = self.requirement.specifier if self.requirement is not None else SpecifierSet()
            specifier &= SpecifierSet("" if key[1] else "<2")
            requirement = Requirement(f"numpy{specifier if is_satisfiable(specifier) else '<2'}")
            self.releases[key] = find_exact_release(requirement, python, self.index)
        return self.releases[key]


def supports_numpy_2(engine_release: Version) -> bool:
    """Return whether a release of onnxruntime works with numpy 2, which its metadata does not state."""
    return Version(engine_release.base_version) >= NUMPY_2_SINCE


def find_exact_release(requirement: Requirement, python: str, index: UvIndex) -> Release:
    """Return the newest release that satisfies a requirement for one Python version.

    Raises:
        ConfigError: there is no such release, or it has no wheels.
    """
    answer = index.newest(requirement, python)
    if isinstance(answer, ReleaseNotFound):
        reason = answer.reason or index.explain(requirement, python)
        raise ConfigError(f"no release satisfies `{requirement}` on Python {python}: {reason}")
    if not answer.wheels:
        raise ConfigError(f"{answer.name} {answer.version} has no wheels for Python {python} on any platform")
    return answer


def runtime_from_release(release: Release) -> LockedRuntime:
    """Return a runtime with only the engine pinned."""
    return LockedRuntime(
        engine=release.name, release=str(release.version), python=release.python, packages=(release.pin,)
    )


@dataclass(slots=True)
class UpgradeRequest:
    """The pins that an upgrade may change: all pins, or the pins of some packages, possibly only for some releases."""

    everything: bool = False
    requirements: tuple[Requirement, ...] = ()
    used: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)  # packages of targets and toolchain

    def of(self, package: str) -> Requirement | None:
        """Return the requirement for a package's new pin (without a version for the newest); None to keep its pins."""
        self.known.add(package)
        named = next(
            (requirement for requirement in self.requirements if canonicalize_name(requirement.name) == package), None
        )
        return named or (Requirement(package) if self.everything else None)

    def takes(self, versions: Mapping[str, str]) -> bool:
        """Return whether the upgrade includes one of these packages at its version."""
        requested = {name: requirement for name in versions if (requirement := self.of(name)) is not None}
        included = [name for name, request in requested.items() if request.specifier.contains(versions[name], True)]
        self.used.update(included)
        return bool(included)

    def refuse_unused(self) -> None:
        """Raise if neither a target nor the toolchain uses a requested package, or if no range allows the release."""
        for requirement in self.requirements:
            name = canonicalize_name(requirement.name)
            if name in self.used:
                continue
            if name not in self.known:
                near = find_similar(name, self.known)
                hint = f"expected one of {join_quoted(sorted(self.known))}"
                if near:
                    hint = f"did you mean `--upgrade {shlex.quote(f'{near}{requirement.specifier}')}`?"
                raise UsageError(f"`--upgrade {requirement}`: no target or toolchain uses this package", hint=hint)
            raise UsageError(
                f"`--upgrade {requirement}`: no target or toolchain requirement allows this release",
                hint="change `runtime` of a target, then run `onnxgate lock`",
            )


def parse_upgrade(texts: Sequence[str]) -> UpgradeRequest | None:
    """Parse values of `--upgrade`: `""` for everything; `onnxruntime`, `onnxruntime=1.31.1` or any requirement."""
    if not texts:
        return None
    requirements = []
    for text in filter(None, texts):
        name, equals, version = text.partition("=")
        is_single = equals and not version.startswith("=") and name[-1:] not in "<>!~="
        try:
            requirements.append(Requirement(f"{name}=={version}" if is_single else text))
        except InvalidRequirement as error:
            problem = f"`--upgrade {text}`: expected a package or a requirement, for example `onnxruntime=1.31.1`"
            raise UsageError(problem) from error
    return UpgradeRequest(everything="" in texts, requirements=tuple(requirements))
