"""A registry of npm, asked through npm itself: which versions a package has, and what one of them needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

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
from onnxgate.project.lock.loader import NPM_INTEGRITY
from onnxgate.project.lock.releases import apply_selection, minor_of
from onnxgate.project.lock.types import Lock, LockedRuntime, NpmPackage

TIMEOUT_S = 180
INSTALL_NODE_HINT = "install Node 18 or newer, which brings npm"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_ERROR_LINE = re.compile(r"^npm (?:error|ERR!)\s+(.+)$", re.MULTILINE)
_IRRELEVANT_ERRORS = ("code ", "A complete log", "Log files", "errno ", "syscall ", "404 Note")
_QUIET_OPTIONS = ("--no-audit", "--no-fund", "--no-update-notifier")
_LOCK_COMMAND = ("install", "--package-lock", "--package-lock-only", "--ignore-scripts", *_QUIET_OPTIONS)


class NpmRegistry(Protocol):
    """What resolving needs of a registry."""

    def releases(self, name: str) -> tuple[Version, ...]:
        """All releases of a package, without the builds between them."""

    def needed(self, name: str, version: str) -> Mapping[str, NpmPackage]:
        """One release with all that it depends on, by name."""


@dataclass(frozen=True, slots=True)
class NpmClient:
    """The registries that the user's npm knows; `offline`: npm's cache alone."""

    offline: bool = False

    def releases(self, name: str) -> tuple[Version, ...]:
        """
        All releases of a package, ascending; npm's prereleases (`1.31.0-dev.20260914-8d85527a0`) are none.

        Raises:
            ResolutionError: npm is not there, or cannot say it.
        """
        with temporary_folder() as scratch:
            said = _parse_json(self._ask(["view", name, "versions", "--json"], Path(scratch)))
        texts = said if isinstance(said, list) else [said]
        return tuple(sorted(Version(text) for text in map(str, texts) if _RELEASE.fullmatch(text)))

    def needed(self, name: str, version: str) -> Mapping[str, NpmPackage]:
        """
        One release with all that npm would install for it, by name.

        Raises:
            ResolutionError: npm is not there, or cannot say it.
        """
        with temporary_folder() as scratch:
            folder = Path(scratch)
            (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {name: version}}))
            self._ask(_LOCK_COMMAND, folder)
            found = _parse_json((folder / "package-lock.json").read_text(encoding="utf-8"))
        return {each.name: each for each in map(_parse_package, found["packages"].items()) if each is not None}

    def _ask(self, arguments: Sequence[str], folder: Path) -> str:
        """What npm prints, in a folder of its own, since it also reads the settings of the project that it runs in."""
        npm = shutil.which("npm")
        if npm is None:
            raise ResolutionError("npm is not installed, and a target needs a package of it", hint=INSTALL_NODE_HINT)
        try:
            done = subprocesses.run_supervised(
                [npm, *arguments, *(["--offline"] if self.offline else [])],
                environment={**os.environ, "NO_COLOR": "1"},
                folder=folder,
                timeout_s=TIMEOUT_S,
            )
        except subprocess.TimeoutExpired as error:
            raise ResolutionError(f"npm gave no answer within {TIMEOUT_S} s") from error
        if done.returncode != 0:
            raise self._failed(done.stderr.decode("utf-8", "replace"))
        return done.stdout.decode("utf-8", "replace")

    def _failed(self, said: str) -> ResolutionError:
        if self.offline and "ENOTCACHED" in said:
            hint = "run it once without `--offline`"
            return ResolutionError(
                "the lock needs a package that is not in npm's cache, and `--offline` asks no registry", hint=hint
            )
        return ResolutionError(
            f"npm cannot say it: {summarize_npm_error(said)}", hint="check the network, and npm's `registry`"
        )


def summarize_npm_error(said: str) -> str:
    """The first thing that npm said of an error."""
    lines = (line.strip() for line in _ERROR_LINE.findall(said))
    return next((line for line in lines if not line.startswith(_IRRELEVANT_ERRORS)), "it gave no reason")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ResolutionError(f"npm answered nonsense: {error}") from error


def _parse_package(entry: tuple[str, Mapping[str, Any]]) -> NpmPackage | None:
    """The package of an entry of `packages` in npm's own lock; None for the project itself, and for second copies."""
    prefix, _, name = entry[0].partition("node_modules/")
    version, integrity = entry[1].get("version"), entry[1].get("integrity")
    if prefix or "node_modules/" in name or not (name and version and integrity):
        return None
    return NpmPackage(name=name, version=version, integrity=integrity)


@dataclass(slots=True)
class NpmResolver:
    """The pins of the old lock, and those that npm gave since."""

    old: Lock
    npm: NpmRegistry
    pool: dict[str, NpmPackage] = field(init=False)  # pin -> the package

    def __post_init__(self) -> None:
        self.pool = {f"{each.name}=={each.version}": each for each in self.old.npm}

    def find(self, requirement: Requirement, select: ReleaseSelection) -> tuple[Release, ...]:
        """
        The releases that `select` takes of a requirement, ascending.

        Raises:
            ConfigError: no release satisfies the requirement.
            ResolutionError: npm cannot be asked.
        """
        name = canonicalize_name(requirement.name)
        fitting = [version for version in self.npm.releases(name) if requirement.specifier.contains(version)]
        if not fitting:
            raise ConfigError(f"no release of `{name}` that npm offers satisfies `{requirement.specifier}`")
        newest = {version if select == "all" else minor_of(version): version for version in fitting}
        return apply_selection([Release(name, version, "", ()) for version in newest.values()], select)

    def complete(self, runtime: LockedRuntime) -> LockedRuntime:
        """The runtime with what its engine needs beside itself."""
        if has_required_dependencies(runtime):
            return runtime
        pins = self._ask(runtime.engine, runtime.release)
        return msgspec.structs.replace(runtime, packages=pins)

    def packages(self, runtimes: Iterable[LockedRuntime]) -> tuple[NpmPackage, ...]:
        """All that the runtimes pin; what the old lock lacks is asked for."""
        found: dict[str, NpmPackage] = {}
        for runtime in runtimes:
            if not self.pool.keys() >= set(runtime.packages):
                self._ask(runtime.engine, runtime.release)
            found |= {pin: self._known(pin) for pin in runtime.packages}
        return tuple(sorted(found.values(), key=lambda each: (each.name, Version(each.version))))

    def _known(self, pin: str) -> NpmPackage:
        if pin not in self.pool:
            raise ResolutionError(f"npm has no `{pin}` any longer", hint="run `onnxgate lock --upgrade`")
        return self.pool[pin]

    def _ask(self, engine: str, release: str) -> tuple[str, ...]:
        """Sorted pins of one release and its companions, whose integrity is known from then on."""
        offered = self.npm.needed(engine, release)
        pins = []
        for name in (engine, *engine_dependencies(engine)):
            package = offered.get(name)
            if package is None or not NPM_INTEGRITY.fullmatch(package.integrity):
                raise ResolutionError(f"npm gives no integrity by sha512 of `{name}`, which `{engine} {release}` needs")
            pins.append(f"{name}=={package.version}")
            self.pool[pins[-1]] = package
        return tuple(sorted(pins))
