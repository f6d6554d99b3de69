"""A Python package index, asked through uv: the newest release that fits a requirement, and its wheels."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate import lifeline
from onnxgate.config.toml import loads
from onnxgate.errors import ResolutionError
from onnxgate.lock.types import LockedPackage, Wheel
from onnxgate.lock.wheels import PLATFORMS, Platform, locked_wheels
from onnxgate.scratch import scratch_folder

TIMEOUT_S = 180
_HTTP_TIMEOUT_S = "30"
# What a user sets for installs of their own must not narrow what a lock promises. Where the indexes are stays theirs.
_NOT_OURS = (
    "UV_CONSTRAINT",
    "UV_OVERRIDE",
    "UV_BUILD_CONSTRAINT",
    "UV_EXCLUDE",
    "UV_NO_BINARY",
    "UV_NO_BINARY_PACKAGE",
)
_UNREACHABLE = (
    "Failed to fetch",
    "network was disabled",
    "could not be queried",
    "error sending request",
    "403 Forbidden",
)
# A page to sign in at is taken for an index without any file.
_NO_INDEX = re.compile(r"there are no versions of [\w.-]+(?: and\b|,)")
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
class NoRelease:
    """Nothing fits, and why, in uv's words."""

    reason: str


@dataclass(frozen=True, slots=True)
class Index:
    """The indexes that the user's environment names to uv; `offline`: uv's cache alone."""

    offline: bool = False

    def newest(self, requirement: Requirement, python: str) -> Release | NoRelease:
        """
        The newest release that has wheels for one Python.

        Raises:
            ResolutionError: the index cannot be asked.
        """
        found = self._found((requirement,), python, "--no-deps")
        return found if isinstance(found, NoRelease) else _release(found, requirement, python)

    def together(self, requirements: Sequence[Requirement], python: str) -> tuple[Release, ...] | NoRelease:
        """
        The newest releases that fit one another, with all that they depend on.

        Raises:
            ResolutionError: the index cannot be asked.
        """
        found = self._found(requirements, python)
        if isinstance(found, NoRelease):
            return found
        asked = {canonicalize_name(each.name): each for each in requirements}
        names = dict.fromkeys(canonicalize_name(each["name"]) for each in found.get("packages", ()))
        releases = (_release(found, asked.get(name) or Requirement(name), python) for name in names)
        return tuple(each for each in releases if isinstance(each, Release))

    def _found(self, requirements: Sequence[Requirement], python: str, *options: str) -> Mapping[str, Any] | NoRelease:
        """What uv writes."""
        with scratch_folder() as scratch:
            answer = self._ask(requirements, python, Path(scratch), *options)
            if answer is not None:
                return answer
            return loads((Path(scratch) / "pylock.onnxgate.toml").read_text(encoding="utf-8"))

    def _ask(self, requirements: Sequence[Requirement], python: str, scratch: Path, *options: str) -> NoRelease | None:
        """Leave uv's answer in `scratch`; None where there is one."""
        # In a folder of its own, since uv also reads the settings of the project that it runs in.
        command = [*_uv(), *options, "--python-version", python]
        command += ["--output-file", str(scratch / "pylock.onnxgate.toml"), "-"]
        command += ["--offline"] if self.offline else []
        try:
            asked = "".join(f"{each}\n" for each in requirements).encode()
            done = lifeline.run(command, input=asked, environment=_environment(), folder=scratch, timeout_s=TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise _unreachable(f"no answer within {TIMEOUT_S} s") from error
        said = done.stderr.decode("utf-8", "replace")
        if done.returncode == 0:
            return None
        if done.returncode != 1 or any(sign in said for sign in _UNREACHABLE):
            raise _unreachable(cause(said), offline=self.offline)
        if _NO_INDEX.search(said):
            raise _unreachable(f"it has no files at all, as something that is no index ({cause(said)})")
        return NoRelease(cause(said))


def _uv() -> Sequence[str]:
    from uv import find_uv_bin

    return (os.fsdecode(find_uv_bin()), "pip", "compile", *_OPTIONS, "--python", sys.executable)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_OURS}
    return {"UV_HTTP_TIMEOUT": _HTTP_TIMEOUT_S, **kept}


def _unreachable(why: str, *, offline: bool = False) -> ResolutionError:
    if offline:
        hint = "run it once without `--offline`"
        return ResolutionError(
            "the lock needs a release that is not in uv's cache, and `--offline` asks no index", hint=hint
        )
    hint = "check the network, or name your index in `UV_DEFAULT_INDEX`"
    return ResolutionError(f"the package index cannot be asked: {why}", hint=hint)


def cause(said: str) -> str:
    """One line of what uv said: what it could not fetch and the last cause of that, or why nothing fits."""
    plain = " ".join(re.sub(r"[×╰─▶│├]", " ", said.partition("\nhint:")[0].partition(" hint:")[0]).split())
    plain = re.sub(r"No solution found when resolving dependencies:?", "", plain.replace("Caused by:", "cause:"))
    words = [word for part in re.split(r"\b(?:error|cause):", plain) if (word := part.strip(" :"))]
    if not words:
        return "uv gave no reason"
    fetched = next((word for word in words if word.startswith("Failed to fetch")), words[-1])
    reason = words[-1] if fetched == words[-1] else f"{fetched}: {words[-1]}"
    return re.split(r",? we can conclude", reason)[0].removeprefix("Because ")


def _release(found: Mapping[str, Any], requirement: Requirement, python: str) -> Release | NoRelease:
    name = canonicalize_name(requirement.name)
    packages = [each for each in found.get("packages", ()) if canonicalize_name(each["name"]) == name]
    fitting = [each for each in packages if _is_for(each.get("marker"), python)]
    if not fitting:
        return NoRelease(f"`{name}` has no release for Python {python}")
    newest = max(fitting, key=lambda each: Version(each["version"]))
    version = Version(newest["version"])
    if not requirement.specifier.contains(version, prereleases=True):
        raise ResolutionError(
            f"uv answered {name} {version} for `{requirement}`", hint="look for overrides in uv's settings"
        )
    return Release(name, version, python, locked_wheels(_files(newest.get("wheels", ())), python))


def _is_for(marker: str | None, python: str) -> bool:
    return marker is None or any(Marker(marker).evaluate(_target(python, platform)) for platform in PLATFORMS)


def _target(python: str, platform: Platform) -> dict[str, str]:
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


def _files(wheels: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """File name -> sha256. Where a file lies is nobody's business in a lock."""
    return {_file_name(wheel): wheel["hashes"]["sha256"] for wheel in wheels if "sha256" in wheel.get("hashes", {})}


def _file_name(wheel: Mapping[str, Any]) -> str:
    where = wheel.get("name") or wheel.get("path") or urlsplit(wheel["url"]).path
    return unquote(re.split(r"[/\\]", where)[-1])
