"""A Python package index, asked through uv: the newest release that fits a requirement, and its wheels."""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version
from uv import find_uv_bin

from onnxgate.core import subprocesses
from onnxgate.core.errors import ResolutionError
from onnxgate.core.files import temporary_folder
from onnxgate.project.lock.types import LockedPackage, Wheel
from onnxgate.project.toml import loads

TIMEOUT_S = 180
_HTTP_TIMEOUT_S = "30"
# What a user sets for installs of their own must not narrow what a lock promises. Where the indexes are stays theirs.
_IGNORED_VARIABLES = (
    "UV_CONSTRAINT",
    "UV_OVERRIDE",
    "UV_BUILD_CONSTRAINT",
    "UV_EXCLUDE",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
)
_UNREACHABLE_MESSAGES = (
    "Failed to fetch",
    "network was disabled",
    "could not be queried",
    "error sending request",
    "403 Forbidden",
)
# A page to sign in at is taken for an index without any file.
_EMPTY_INDEX_MESSAGE = re.compile(r"there are no versions of [\w.-]+(?: and\b|,)")
_OPTIONS = (
    *("--quiet", "--color", "never", "--no-header"),
    *("--universal", "--only-binary", ":all:", "--format", "pylock.toml"),
    *("--resolution", "highest", "--prerelease", "explicit", "--fork-strategy", "requires-python"),
)


@dataclass(frozen=True, slots=True)
class Release:
    """One release of a package for one Python, and its wheels."""

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
        """As the lock has it."""
        return LockedPackage(name=self.name, version=str(self.version), python=self.python, wheels=self.wheels)


@dataclass(frozen=True, slots=True)
class ReleaseNotFound:
    """Nothing fits, and why, in uv's words."""

    reason: str


@dataclass(frozen=True, slots=True)
class UvIndex:
    """The indexes that the user's environment names to uv; `offline`: uv's cache alone."""

    offline: bool = False

    def newest(self, requirement: Requirement, python: str) -> Release | ReleaseNotFound:
        """
        The newest release that has wheels for one Python.

        Raises:
            ResolutionError: the index cannot be asked.
        """
        found = self._found((requirement,), python, "--no-deps")
        return found if isinstance(found, ReleaseNotFound) else _parse_release(found, requirement, python)

    def together(self, requirements: Sequence[Requirement], python: str) -> tuple[Release, ...] | ReleaseNotFound:
        """
        The newest releases that fit one another, with all that they depend on.

        Raises:
            ResolutionError: the index cannot be asked.
        """
        found = self._found(requirements, python)
        if isinstance(found, ReleaseNotFound):
            return found
        asked = {canonicalize_name(requirement.name): requirement for requirement in requirements}
        names = dict.fromkeys(canonicalize_name(each["name"]) for each in found.get("packages", ()))
        releases = (_parse_release(found, asked.get(name) or Requirement(name), python) for name in names)
        return tuple(release for release in releases if isinstance(release, Release))

    def _found(
        self, requirements: Sequence[Requirement], python: str, *options: str
    ) -> Mapping[str, Any] | ReleaseNotFound:
        """What uv writes."""
        with temporary_folder() as scratch:
            answer = self._ask(requirements, python, Path(scratch), *options)
            if answer is not None:
                return answer
            return loads((Path(scratch) / "pylock.onnxgate.toml").read_text(encoding="utf-8"))

    def _ask(
        self, requirements: Sequence[Requirement], python: str, scratch: Path, *options: str
    ) -> ReleaseNotFound | None:
        """Leave uv's answer in `scratch`; None where there is one."""
        # In a folder of its own, since uv also reads the settings of the project that it runs in.
        command = [*_uv_command(), *options, "--python-version", python]
        command += ["--output-file", str(scratch / "pylock.onnxgate.toml"), "-"]
        command += ["--offline"] if self.offline else []
        try:
            asked = "".join(f"{requirement}\n" for requirement in requirements).encode()
            done = subprocesses.run_supervised(
                command, input=asked, environment=_uv_environment(), folder=scratch, timeout_s=TIMEOUT_S
            )
        except subprocess.TimeoutExpired as error:
            raise _index_error(f"no answer within {TIMEOUT_S} s") from error
        said = done.stderr.decode("utf-8", "replace")
        if done.returncode == 0:
            return None
        if done.returncode != 1 or any(sign in said for sign in _UNREACHABLE_MESSAGES):
            raise _index_error(summarize_uv_error(said), offline=self.offline)
        if _EMPTY_INDEX_MESSAGE.search(said):
            raise _index_error(f"it has no files at all, as something that is no index ({summarize_uv_error(said)})")
        return ReleaseNotFound(summarize_uv_error(said))


def _uv_command() -> Sequence[str]:
    return (os.fsdecode(find_uv_bin()), "pip", "compile", *_OPTIONS, "--python", sys.executable)


def _uv_environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES}
    return {"UV_HTTP_TIMEOUT": _HTTP_TIMEOUT_S, **kept}


def _index_error(why: str, *, offline: bool = False) -> ResolutionError:
    if offline:
        hint = "run it once without `--offline`"
        return ResolutionError(
            "the lock needs a release that is not in uv's cache, and `--offline` asks no index", hint=hint
        )
    hint = "check the network, or name your index in `UV_DEFAULT_INDEX`"
    return ResolutionError(f"the package index cannot be asked: {why}", hint=hint)


def summarize_uv_error(said: str) -> str:
    """One line of what uv said: what it could not fetch and the last cause of that, or why nothing fits."""
    plain = " ".join(re.sub(r"[×╰─▶│├]", " ", said.partition("\nhint:")[0].partition(" hint:")[0]).split())
    plain = re.sub(r"No solution found when resolving dependencies:?", "", plain.replace("Caused by:", "cause:"))
    words = [word for part in re.split(r"\b(?:error|cause):", plain) if (word := part.strip(" :"))]
    if not words:
        return "uv gave no reason"
    fetched = next((word for word in words if word.startswith("Failed to fetch")), words[-1])
    reason = words[-1] if fetched == words[-1] else f"{fetched}: {words[-1]}"
    return re.split(r",? we can conclude", reason)[0].removeprefix("Because ")


def _parse_release(found: Mapping[str, Any], requirement: Requirement, python: str) -> Release | ReleaseNotFound:
    name = canonicalize_name(requirement.name)
    packages = [each for each in found.get("packages", ()) if canonicalize_name(each["name"]) == name]
    fitting = [package for package in packages if _applies_to_python(package.get("marker"), python)]
    if not fitting:
        return ReleaseNotFound(f"`{name}` has no release for Python {python}")
    newest = max(fitting, key=lambda each: Version(each["version"]))
    version = Version(newest["version"])
    if not requirement.specifier.contains(version, prereleases=True):
        raise ResolutionError(
            f"uv answered {name} {version} for `{requirement}`", hint="look for overrides in uv's settings"
        )
    return Release(name, version, python, select_wheels(_wheel_digests(newest.get("wheels", ())), python))


def _applies_to_python(marker: str | None, python: str) -> bool:
    return marker is None or any(
        Marker(marker).evaluate(_marker_environment(python, platform)) for platform in PLATFORMS
    )


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


def _wheel_digests(wheels: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """File name -> sha256. Where a file lies is nobody's business in a lock."""
    return {
        _wheel_file_name(wheel): wheel["hashes"]["sha256"] for wheel in wheels if "sha256" in wheel.get("hashes", {})
    }


def _wheel_file_name(wheel: Mapping[str, Any]) -> str:
    where = wheel.get("name") or wheel.get("path") or urlsplit(wheel["url"]).path
    return unquote(re.split(r"[/\\]", where)[-1])


WheelRank = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Platform:
    """One system and architecture that locks are made for."""

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
    """
    The wheels for one Python, by file name: of several that fit a platform, the one that fits most systems.

    `files` maps file names to sha256. A wheel for musl is not locked: Linux means glibc.
    """
    chosen = {_best_wheel(files, python, platform) for platform in PLATFORMS} - {""}
    return tuple(Wheel(file=file, sha256=files[file]) for file in sorted(chosen))


def _best_wheel(files: Iterable[str], python: str, platform: Platform) -> str:
    ranked = [(rank, file) for file in files if (rank := _rank_wheel(file, python, platform)) is not None]
    return min(ranked)[1] if ranked else ""


def _rank_wheel(file: str, python: str, platform: Platform) -> WheelRank | None:
    """How well a wheel fits, smaller is better; None where it does not."""
    try:
        _, _, build, tags = parse_wheel_filename(file)
    except InvalidWheelFilename:
        return None
    newest_build = -build[0] if build else 0
    return min(((*rank, newest_build) for rank in _rank_tags(tags, python, platform)), default=None)


def _rank_tags(tags: Iterable[Tag], python: str, platform: Platform) -> Iterator[WheelRank]:
    order = _rank_interpreters(python)
    for tag in tags:
        place = order.get((tag.interpreter, tag.abi))
        fit = _rank_platform(tag.platform, platform)
        if place is not None and fit is not None:
            yield (place, *fit)


@functools.cache
def _rank_interpreters(python: str) -> dict[tuple[str, str], int]:
    """Pairs of interpreter and ABI that CPython takes, best first."""
    major, minor = (int(part) for part in python.split("."))
    interpreter = f"cp{major}{minor}"
    own = cpython_tags((major, minor), abis=[interpreter], platforms=["any"])
    rest = compatible_tags((major, minor), interpreter, platforms=["any"])
    pairs = dict.fromkeys((tag.interpreter, tag.abi) for tag in (*own, *rest))
    return {pair: place for place, pair in enumerate(pairs)}


def _rank_platform(text: str, platform: Platform) -> WheelRank | None:
    """Built for this machine alone before built for several, then by the oldest system that it runs on."""
    if text == "any":
        return (2, 0, 0)
    found = _PLATFORM.fullmatch(text)
    if found is None or _normalize_system(found["system"]) != platform.system:
        return None
    universal = found["machine"] in _UNIVERSAL.get(platform.machine, ()) and platform.system == "macosx"
    if found["machine"] != platform.machine and not universal:
        return None
    version = _GLIBC.get(found["year"] or "") or (int(found["major"] or 0), int(found["minor"] or 0))
    return (int(universal), *version)


def _normalize_system(name: str) -> str:
    return "linux" if name == "manylinux" else name
