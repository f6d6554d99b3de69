"""Query npm registries through npm: the versions of a package, and the dependencies of one version."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from onnxgate.core import subprocesses
from onnxgate.core.errors import ConfigError, ResolutionError
from onnxgate.core.files import temporary_folder
from onnxgate.project.config.schema import ReleaseSelection
from onnxgate.project.engines import engine_dependencies, has_required_dependencies
from onnxgate.project.lock.index import Release
from onnxgate.project.lock.releases import apply_selection, minor_of
from onnxgate.project.lock.types import Lock, LockedRuntime, NpmPackage
from onnxgate.project.lock.validation import NPM_INTEGRITY

TIMEOUT_S = 180
INSTALL_NODE_HINT = "install Node 18 or newer, which includes npm"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_ERROR_LINE = re.compile(r"^npm (?:error|ERR!)\s+(.+)$", re.MULTILINE)
_IRRELEVANT_ERRORS = ("code ", "A complete log", "Log files", "errno ", "syscall ", "404 Note")
_VERSION_RANGE = re.compile(r"[\w.^~<>=|*+ -]+")
"""Matches a range of releases of the same package, and not another package, a URL, a path or a git repository."""
_RELEASE_FIELDS = ("name", "version", "dist.integrity", "dependencies")


class _Release(msgspec.Struct, frozen=True):
    """Metadata of one release in npm's answer."""

    name: str
    version: str
    integrity: str = msgspec.field(default="", name="dist.integrity")
    dependencies: dict[str, str] = {}

    @property
    def package(self) -> NpmPackage:
        """The pin of the release. Its integrity is empty if the registry has only a SHA-1 digest."""
        return NpmPackage(name=self.name, version=self.version, integrity=self.integrity)

    @property
    def is_stable(self) -> bool:
        """Whether the release is not a prerelease, such as `1.31.0-dev.20260914-8d85527a0`."""
        return _RELEASE.fullmatch(self.version) is not None


@dataclass(frozen=True, slots=True)
class NpmClient:
    """The registries that npm is configured for. With `offline`, only npm's cache is used."""

    offline: bool = False

    def releases(self, name: str) -> tuple[Version, ...]:
        """Return all releases of a package, ascending, without prereleases (`1.31.0-dev.20260914-8d85527a0`).

        Raises:
            ResolutionError: npm is not installed, or fails.
        """
        with temporary_folder() as scratch:
            answer = _parse_json(self._run(["view", name, "versions", "--json"], Path(scratch)))
        texts = answer if isinstance(answer, list) else [answer]
        return tuple(sorted(Version(text) for text in map(str, texts) if _RELEASE.fullmatch(text)))

    def needed(self, name: str, version: str) -> Mapping[str, NpmPackage]:
        """Return one release of an engine and the packages that are pinned with it, by name.

        Only metadata in the registry is read. `npm install --package-lock-only` would also download dependencies from
        the git repositories and URLs that a package names.

        Raises:
            ResolutionError: npm is not installed, or fails.
        """
        newest = self._newest(name, version)
        packages = {name: newest.package}
        for dependency in engine_dependencies(name):
            accepted = newest.dependencies.get(dependency)
            if accepted and _VERSION_RANGE.fullmatch(accepted):
                packages[dependency] = self._newest(dependency, accepted).package
        return packages

    def _newest(self, name: str, accepted: str) -> _Release:
        """Return the newest release in a range."""
        with temporary_folder() as scratch:
            answer = self._run(["view", f"{name}@{accepted}", *_RELEASE_FIELDS, "--json"], Path(scratch))
        try:
            releases: _Release | list[_Release] = msgspec.json.decode(answer, type=_Release | list[_Release])
        except msgspec.MsgspecError as error:
            raise ResolutionError(f"npm did not return the metadata of `{name}`: {error}") from error
        if isinstance(releases, _Release):  # the only one, which may be a prerelease
            return releases
        stable = [it for it in releases if it.is_stable]
        if not stable:
            raise ResolutionError(f"no release of `{name}` on npm satisfies `{accepted}`")
        return max(stable, key=lambda release: Version(release.version))

    def _run(self, arguments: Sequence[str], folder: Path) -> str:
        """Return the output of npm. `folder` is its project, since npm reads the settings of a project.

        Without `--prefix`, it would use a parent folder that contains `package.json` or `node_modules`.
        """
        npm = shutil.which("npm")
        if npm is None:
            raise ResolutionError("npm is not installed, but a target needs an npm package", hint=INSTALL_NODE_HINT)
        offline = ["--offline"] if self.offline else []
        try:
            result = subprocesses.run_supervised(
                [npm, *arguments, *offline, "--no-update-notifier", "--prefix", str(folder)],
                environment={**os.environ, "NO_COLOR": "1"},
                folder=folder,
                timeout_s=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            problem = f"npm did not respond within {TIMEOUT_S} s"
            raise ResolutionError(problem, hint="check the network connection") from error
        if result.returncode != 0:
            stderr = result.stderr.decode("utf-8", "replace")
            if self.offline and "ENOTCACHED" in stderr:
                problem = "the lock needs a package that is not in npm's cache, and `--offline` is set"
                raise ResolutionError(problem, hint="run the command once without `--offline`")
            problem = f"cannot query the npm registry: {summarize_npm_error(stderr)}"
            raise ResolutionError(problem, hint="check the network connection and npm's `registry` setting")
        return result.stdout.decode("utf-8", "replace")


def summarize_npm_error(stderr: str) -> str:
    """Return the first relevant line of npm's errors."""
    lines = (line.strip() for line in _ERROR_LINE.findall(stderr))
    return next((line for line in lines if not line.startswith(_IRRELEVANT_ERRORS)), "npm printed no reason")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ResolutionError(f"npm did not return valid JSON: {error}") from error


@dataclass(slots=True)
class NpmResolver:
    """Resolves npm packages, starting with the pins of the old lock."""

    old: Lock
    offline: bool = False
    npm: NpmClient = field(init=False)
    pool: dict[str, NpmPackage] = field(init=False)  # pin -> the package
    published: dict[str, tuple[Version, ...]] = field(default_factory=dict)  # name -> releases
    resolved: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)  # (engine, release) -> pins

    def __post_init__(self) -> None:
        self.npm = NpmClient(self.offline)
        self.pool = {f"{package.name}=={package.version}": package for package in self.old.npm}

    def find(self, requirement: Requirement, select: ReleaseSelection) -> tuple[Release, ...]:
        """Return the releases that `select` chooses for a requirement, ascending.

        Raises:
            ConfigError: no release satisfies the requirement.
            ResolutionError: npm is not installed, or fails.
        """
        name = canonicalize_name(requirement.name)
        if name not in self.published:
            self.published[name] = self.npm.releases(name)
        fitting = [version for version in self.published[name] if requirement.specifier.contains(version)]
        if not fitting:
            raise ConfigError(f"no release of `{name}` on npm satisfies `{requirement.specifier}`")
        newest = {version if select == "all" else minor_of(version): version for version in fitting}
        return apply_selection([Release(name, version, "", ()) for version in newest.values()], select)

    def complete(self, runtime: LockedRuntime) -> LockedRuntime:
        """Return the runtime with the dependencies of its engine."""
        if has_required_dependencies(runtime):
            return runtime
        return msgspec.structs.replace(runtime, packages=self._resolve(runtime.engine, runtime.release))

    def packages(self, runtimes: Iterable[LockedRuntime]) -> tuple[NpmPackage, ...]:
        """Return all packages that the runtimes pin; npm is queried for packages that are not in the old lock."""
        packages: dict[str, NpmPackage] = {}
        for runtime in runtimes:
            if not self.pool.keys() >= set(runtime.packages):
                self._resolve(runtime.engine, runtime.release)
            for pin in runtime.packages:
                if pin not in self.pool:
                    raise ResolutionError(f"`{pin}` is no longer on npm", hint="run `onnxgate lock --upgrade`")
                packages[pin] = self.pool[pin]
        return tuple(sorted(packages.values(), key=lambda package: (package.name, Version(package.version))))

    def _resolve(self, engine: str, release: str) -> tuple[str, ...]:
        """Return the sorted pins of one release and its dependencies, and remember their packages."""
        if (engine, release) in self.resolved:
            return self.resolved[engine, release]
        offered = self.npm.needed(engine, release)
        pins = []
        for name in (engine, *engine_dependencies(engine)):
            package = offered.get(name)
            if package is None or not NPM_INTEGRITY.fullmatch(package.integrity):
                raise ResolutionError(
                    f"npm has no SHA-512 integrity hash for `{name}`, which `{engine} {release}` requires"
                )
            pins.append(f"{name}=={package.version}")
            self.pool[pins[-1]] = package
        self.resolved[engine, release] = tuple(sorted(pins))
        return self.resolved[engine, release]
