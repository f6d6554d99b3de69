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
_QUIET_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier")
_LOCK_COMMAND = ("install", "--package-lock", "--package-lock-only", "--ignore-scripts", *_QUIET_OPTIONS)


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
        """Return one release and all packages that npm would install with it, by name.

        Raises:
            ResolutionError: npm is not installed, or fails.
        """
        with temporary_folder() as scratch:
            folder = Path(scratch)
            (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {name: version}}))
            self._run(_LOCK_COMMAND, folder)
            lock = _parse_json((folder / "package-lock.json").read_text(encoding="utf-8"))
        packages = {}
        for path, entry in lock["packages"].items():
            prefix, _, package = path.partition("node_modules/")
            release, integrity = entry.get("version"), entry.get("integrity")
            is_copy = prefix or "node_modules/" in package
            if package and release and integrity and not is_copy:  # the project itself has no name
                packages[package] = NpmPackage(name=package, version=release, integrity=integrity)
        return packages

    def _run(self, arguments: Sequence[str], folder: Path) -> str:
        """Return the output of npm. `folder` is its project, since npm reads the settings of a project.

        Without `--prefix`, it would use a parent folder that contains `package.json` or `node_modules`.
        """
        npm = shutil.which("npm")
        if npm is None:
            raise ResolutionError("npm is not installed, but a target needs an npm package", hint=INSTALL_NODE_HINT)
        try:
            result = subprocesses.run_supervised(
                [npm, *arguments, "--prefix", str(folder), *(["--offline"] if self.offline else [])],
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
