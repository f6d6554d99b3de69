"""Query Python package indexes through uv: the newest release that satisfies a requirement, and its wheels."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import Specifier, SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from onnxgate.core import subprocesses
from onnxgate.core.errors import ResolutionError
from onnxgate.core.files import temporary_folder
from onnxgate.core.machine_faults import ACCESS_HINT, OTHER_FOLDER_HINT, SPACE_HINT, WRITABLE_HINT, find_fault_in_text
from onnxgate.project.lock.types import LockedPackage, Wheel
from onnxgate.project.toml import TOMLDecodeError, loads

TIMEOUT_S = 180
VERSION_TIMEOUT_S = 10
OLDEST_UV = Version("0.6.15")
"""Oldest uv that writes `pylock.toml`. Source: uv 0.6.14 refuses `--format`; tested with uv 0.6.15."""
_HTTP_TIMEOUT_S = "30"
_UNREACHABLE_MESSAGES = (
    "Failed to fetch",
    "network was disabled",
    "could not be queried",
    "error sending request",
    "Request failed",
    "operation timed out",
    "403 Forbidden",
)
# uv reads a sign-in page as an index without files.
_EMPTY_INDEX_MESSAGE = re.compile(r"there are no versions of [\w.-]+(?: and\b|,)")
_UV_VERSION = re.compile(r"^uv (\d+(?:\.\d+)+)", re.MULTILINE)
_OPTIONS = (
    *("--quiet", "--color", "never", "--no-header"),
    *("--universal", "--only-binary", ":all:", "--format", "pylock.toml"),
    *("--resolution", "highest", "--prerelease", "explicit", "--fork-strategy", "requires-python"),
)


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package for one Python version, and its wheels."""

    name: str
    version: Version
    python: str
    wheels: tuple[Wheel, ...]

    @property
    def pin(self) -> str:
        """`numpy==1.26.4`."""
        return f"{self.name}=={self.version}"

    @property
    def locked(self) -> LockedPackage:
        """The release as a package of the lock."""
        return LockedPackage(name=self.name, version=str(self.version), python=self.python, wheels=self.wheels)


@dataclass(frozen=True, slots=True)
class ReleaseNotFound:
    """The result if no release satisfies the requirements, with the reason that uv gives; "" if it was deduced."""

    reason: str


_Question = tuple[tuple[str, ...], str]
"""Requirements and a Python version."""


@dataclass(frozen=True, slots=True)
class UvIndex:
    """The package indexes that uv is configured for. With `offline`, only uv's cache is used.

    Each answer is kept, because targets often share their questions, and answers to other questions follow from it.
    Threads can share it if each of them uses another Python version.
    """

    offline: bool = False
    _answers: dict[tuple[str, str], list[Answer]] = field(default_factory=dict, init=False)  # package and Python
    _newest: dict[_Question, Release | ReleaseNotFound] = field(default_factory=dict, init=False)
    _together: dict[_Question, tuple[Release, ...] | ReleaseNotFound] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        sysconfig.get_config_vars()  # initialized here: in Python 3.11 and older, this is not thread-safe

    def newest(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        """Return the newest release that has wheels for one Python version.

        Raises:
            ResolutionError: the index or uv is not available.
        """
        answers = self._answers.setdefault((requirement.name, python), [])
        for answer in answers:
            if (known := answer.apply(requirement.specifier)) is not None:
                return known
        return self._ask(requirement, python)

    def explain(self, requirement: Requirement, python: str) -> str:
        """Return why no release satisfies a requirement; "" if one does.

        Raises:
            ResolutionError: the index or uv is not available.
        """
        answer = self._ask(requirement, python)
        return answer.reason if isinstance(answer, ReleaseNotFound) else ""

    def _ask(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        question = (str(requirement),), python
        if question not in self._newest:
            solution = self._resolve((requirement,), python, "--no-deps")
            if not isinstance(solution, ReleaseNotFound):
                self._newest[question] = _parse_release(solution, requirement, python)
            else:
                self._newest[question] = solution
            answers = self._answers.setdefault((requirement.name, python), [])
            answers.append(Answer(requirement.specifier, self._newest[question]))
        return self._newest[question]

    def together(self, requirements: Sequence[Requirement], python: str) -> tuple[Release, ...] | ReleaseNotFound:
        """Return the newest releases that are compatible with each other, with all dependencies.

        Raises:
            ResolutionError: the index or uv is not available.
        """
        question = tuple(map(str, requirements)), python
        if question not in self._together:
            solution = self._resolve(requirements, python)
            if not isinstance(solution, ReleaseNotFound):
                self._together[question] = _parse_releases(solution, requirements, python)
            else:
                self._together[question] = solution
        return self._together[question]

    def _resolve(
        self, requirements: Sequence[Requirement], python: str, *options: str
    ) -> Mapping[str, Any] | ReleaseNotFound:
        """Return the `pylock.toml` that uv writes."""
        lines = "".join(f"{requirement}\n" for requirement in requirements).encode()
        ignored = subprocesses.INSTALL_VARIABLES  # a user's settings for installs must not narrow a lock
        inherited = {name: value for name, value in os.environ.items() if name not in ignored}
        environment = {"UV_HTTP_TIMEOUT": _HTTP_TIMEOUT_S, **inherited}
        command = [subprocesses.find_uv(), "pip", "compile", *_OPTIONS, "--python", sys.executable]
        command += [*options, "--python-version", python, *(["--offline"] if self.offline else [])]
        with temporary_folder() as scratch:
            folder, solution = Path(scratch), Path(scratch) / "pylock.onnxgate.toml"
            subprocesses.isolate_uv(folder)
            command += ["--output-file", str(solution), "-"]
            try:
                result = subprocesses.run_supervised(
                    command, input=lines, environment=environment, folder=folder, timeout_s=TIMEOUT_S
                )
            except subprocess.TimeoutExpired as error:
                raise _index_error(f"no response within {TIMEOUT_S} s") from error
            if result.returncode == 0:
                try:
                    return loads(solution.read_text(encoding="utf-8"))
                except (FileNotFoundError, UnicodeDecodeError, TOMLDecodeError) as error:
                    raise _create_uv_error("uv did not write a valid `pylock.toml`") from error
        stderr = result.stderr.decode("utf-8", "replace")
        ending = subprocesses.describe_exit_status(result.returncode)
        if fault := find_fault_in_text(f"{stderr}\n{ending}", is_trusted=True):
            hint = fault.hint.replace("`ONNXGATE_CACHE_DIR`", "`UV_CACHE_DIR`")
            if hint in (SPACE_HINT, WRITABLE_HINT, ACCESS_HINT):
                hint += OTHER_FOLDER_HINT.format("`UV_CACHE_DIR`")
            raise ResolutionError(f"uv cannot resolve releases: {fault.message}", hint=hint)
        reason = summarize_uv_error(stderr)
        if not reason:
            raise _create_uv_error(f"uv failed without a message ({ending})")
        if any(message in stderr for message in _UNREACHABLE_MESSAGES):
            raise _index_error(reason, offline=self.offline)
        if result.returncode != 1:
            raise _create_uv_error(f"uv failed: {reason}")
        if _EMPTY_INDEX_MESSAGE.search(stderr):
            raise _index_error(f"it lists no files, so its URL may be wrong ({reason})")
        return ReleaseNotFound(reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """The newest release in a range."""

    specifier: SpecifierSet
    newest: Release | ReleaseNotFound

    def apply(self, specifier: SpecifierSet) -> Release | ReleaseNotFound | None:
        """Return the newest release in another range if it follows from this answer."""
        if str(specifier) == str(self.specifier):
            return self.newest
        if not _PLAIN_SPECIFIER.fullmatch(f"{specifier},{self.specifier}"):
            return None
        if isinstance(self.newest, ReleaseNotFound):
            return ReleaseNotFound("") if all(_is_implied(it, specifier) for it in self.specifier) else None
        # Each newer release in `specifier` would be in this range, too: it is not below the lower bounds of the range.
        if not all(it.operator == ">=" or _is_implied(it, specifier) for it in self.specifier):
            return None
        if specifier.contains(self.newest.version):
            return self.newest
        is_above = any(it.operator == ">=" and Version(it.version) > self.newest.version for it in specifier)
        return ReleaseNotFound("") if is_above else None


_PLAIN_SPECIFIER = re.compile(r"[\d.,*<>=!~]*")
"""Matches ranges without prereleases and other special versions, which affect the meaning of `<` and `>`."""


def _is_implied(bound: Specifier, specifier: SpecifierSet) -> bool:
    """Return whether each release that satisfies `specifier` satisfies the bound."""
    if bound in tuple(specifier):
        return True
    if bound.operator not in ("<", ">="):
        return False  # the version may end with `.*`
    same = [Version(it.version) for it in specifier if it.operator == bound.operator]
    if bound.operator == "<":
        return any(version <= Version(bound.version) for version in same)
    return any(version >= Version(bound.version) for version in same)


def _create_uv_error(problem: str) -> ResolutionError:
    """Return an error for a uv that does not work, or for one that is too old."""
    uv, version = subprocesses.find_uv(), ""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        printed = subprocesses.run_supervised([uv, "--version"], timeout_s=VERSION_TIMEOUT_S).stdout
        version = "".join(_UV_VERSION.findall(printed.decode("utf-8", "replace"))[:1])
    if version and Version(version) < OLDEST_UV:
        problem, hint = f"uv {version} is too old; onnxgate needs uv {OLDEST_UV} or newer", ""
    else:
        hint = f"check the settings of uv (`{uv}`), or "
    return ResolutionError(problem, hint=f"{hint}upgrade uv: `pip install --upgrade uv`")


def _index_error(why: str, *, offline: bool = False) -> ResolutionError:
    if offline:
        problem = "the lock needs a release that is not in uv's cache, and `--offline` is set"
        return ResolutionError(problem, hint="run the command once without `--offline`")
    hint = "check the network connection, or set `UV_DEFAULT_INDEX` to your package index"
    return ResolutionError(f"cannot query the package index: {why}", hint=hint)


def summarize_uv_error(stderr: str) -> str:
    """Return uv's error on one line: the failed download with its last cause, or the unsatisfiable requirement."""
    plain = " ".join(re.sub(r"[×╰─▶│├]", " ", stderr.partition("\nhint:")[0].partition(" hint:")[0]).split())
    plain = re.sub(r"No solution found when resolving dependencies:?", "", plain.replace("Caused by:", "cause:"))
    words = [word for part in re.split(r"\b(?:error|cause):", plain) if (word := part.strip(" :"))]
    if not words:
        return ""
    fetched = next((word for word in words if word.startswith("Failed to fetch")), words[-1])
    reason = words[-1] if fetched == words[-1] else f"{fetched}: {words[-1]}"
    return re.split(r",? we can conclude", reason)[0].removeprefix("Because ")


def _parse_releases(
    solution: Mapping[str, Any], requirements: Sequence[Requirement], python: str
) -> tuple[Release, ...]:
    by_name = {canonicalize_name(requirement.name): requirement for requirement in requirements}
    names = dict.fromkeys(canonicalize_name(package["name"]) for package in solution.get("packages", ()))
    releases = (_parse_release(solution, by_name.get(name) or Requirement(name), python) for name in names)
    return tuple(release for release in releases if isinstance(release, Release))


def _parse_release(solution: Mapping[str, Any], requirement: Requirement, python: str) -> Release | ReleaseNotFound:
    name = canonicalize_name(requirement.name)
    environments = [_marker_environment(python, platform) for platform in PLATFORMS]
    packages = [package for package in solution.get("packages", ()) if canonicalize_name(package["name"]) == name]
    fitting = [
        package
        for package in packages
        if "marker" not in package or any(map(Marker(package["marker"]).evaluate, environments))
    ]
    if not fitting:
        return ReleaseNotFound(f"`{name}` has no release for Python {python}")
    newest = max(fitting, key=lambda package: Version(package["version"]))
    version = Version(newest["version"])
    if not requirement.specifier.contains(version, prereleases=True):
        raise ResolutionError(
            f"uv resolved `{requirement}` to {name} {version}", hint="check uv's settings for overrides"
        )
    digests = {}  # a lock does not contain index URLs
    for wheel in newest.get("wheels", ()):
        if "sha256" in wheel.get("hashes", {}):
            path = wheel.get("name") or wheel.get("path") or urlsplit(wheel["url"]).path
            digests[unquote(re.split(r"[/\\]", path)[-1])] = wheel["hashes"]["sha256"]
    return Release(name, version, python, select_wheels(digests, python))


def _marker_environment(python: str, platform: Platform) -> dict[str, str]:
    sys_platform = {"win": "win32", "macosx": "darwin"}.get(platform.system, platform.system)
    return {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": sys_platform,
        "platform_system": {"win32": "Windows", "darwin": "Darwin"}.get(sys_platform, "Linux"),
        "platform_machine": "AMD64" if sys_platform == "win32" else platform.machine,
        "os_name": "nt" if sys_platform == "win32" else "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }


WheelRank = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """A system and architecture for which locks contain wheels."""

    system: str
    machine: str


PLATFORMS = (
    Platform("linux", "x86_64"),
    Platform("linux", "aarch64"),
    Platform("macosx", "arm64"),
    Platform("macosx", "x86_64"),
    Platform("win", "amd64"),
)

_PLATFORM = re.compile(r"(?P<system>[a-z]+?)(?P<year>1|2010|2014)?(?:_(?P<major>\d+)_(?P<minor>\d+))?_(?P<machine>.+)")
_GLIBC = {"1": (2, 5), "2010": (2, 12), "2014": (2, 17)}  # Source: PEP 600
_UNIVERSAL = {"arm64": ("universal2",), "x86_64": ("universal2", "intel", "universal")}


def select_wheels(files: Mapping[str, str], python: str) -> tuple[Wheel, ...]:
    """Return the wheels for one Python version: for each platform, the wheel that the most systems can install.

    `files` maps file names to SHA-256. Wheels for musl are not locked, since the Linux platforms use glibc.
    """
    selected = set()
    for platform in PLATFORMS:
        ranks = {file: rank for file in files if (rank := _rank_wheel(file, python, platform)) is not None}
        if ranks:
            selected.add(min((rank, file) for file, rank in ranks.items())[1])
    return tuple(Wheel(file=file, sha256=files[file]) for file in sorted(selected))


def _rank_wheel(file: str, python: str, platform: Platform) -> WheelRank | None:
    """Return a wheel's rank for a platform (smaller is better); None if it cannot be installed."""
    try:
        _, _, build, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    order = _rank_interpreters(python)
    ranks = []
    for tag in tags:
        place = order.get((tag.interpreter, tag.abi))
        fit = _rank_platform(tag.platform, platform)
        if place is not None and fit is not None:
            ranks.append((place, *fit, -build[0] if build else 0))
    return min(ranks, default=None)


@functools.cache
def _rank_interpreters(python: str) -> dict[tuple[str, str], int]:
    """Return the rank of each pair of interpreter and ABI that CPython supports."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    own = cpython_tags((major, minor), abis=[interpreter], platforms=["any"])
    rest = compatible_tags((major, minor), interpreter, platforms=["any"])
    pairs = dict.fromkeys((tag.interpreter, tag.abi) for tag in (*own, *rest))
    return {pair: place for place, pair in enumerate(pairs)}


def _rank_platform(text: str, platform: Platform) -> WheelRank | None:
    """Rank wheels for one architecture before universal wheels, then by the oldest supported system."""
    if text == "any":
        return (2, 0, 0)
    match = _PLATFORM.fullmatch(text)
    if match is None or match["system"].replace("manylinux", "linux") != platform.system:
        return None
    universal = match["machine"] in _UNIVERSAL.get(platform.machine, ()) and platform.system == "macosx"
    if match["machine"] != platform.machine and not universal:
        return None
    version = _GLIBC.get(match["year"] or "") or (int(match["major"] or 0), int(match["minor"] or 0))
    return (int(universal), *version)
