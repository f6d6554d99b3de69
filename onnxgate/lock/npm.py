"""A registry of npm, asked through npm itself: which versions a package has, and what one of them needs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from packaging.version import Version

from onnxgate import lifeline
from onnxgate.errors import ResolutionError
from onnxgate.lock.types import NpmPackage
from onnxgate.scratch import scratch_folder

TIMEOUT_S = 180
GET_NODE = "install Node 18 or newer, which brings npm"
_RELEASE = re.compile(r"\d+\.\d+\.\d+")
_SAID = re.compile(r"^npm (?:error|ERR!)\s+(.+)$", re.MULTILINE)
_ASIDE = ("code ", "A complete log", "Log files", "errno ", "syscall ", "404 Note")
_QUIET = ("--no-audit", "--no-fund", "--no-update-notifier")
_TREE = ("install", "--package-lock", "--package-lock-only", "--ignore-scripts", *_QUIET)


class AsksNpm(Protocol):
    """What resolving needs of a registry."""

    def releases(self, name: str) -> tuple[Version, ...]:
        """All releases of a package, without the builds between them."""

    def needed(self, name: str, version: str) -> Mapping[str, NpmPackage]:
        """One release with all that it depends on, by name."""


@dataclass(frozen=True, slots=True)
class Npm:
    """The registries that the user's npm knows; `offline`: npm's cache alone."""

    offline: bool = False

    def releases(self, name: str) -> tuple[Version, ...]:
        """
        All releases of a package, ascending; npm's prereleases (`1.31.0-dev.20260914-8d85527a0`) are none.

        Raises:
            ResolutionError: npm is not there, or cannot say it.
        """
        with scratch_folder() as scratch:
            said = _decoded(self._ask(["view", name, "versions", "--json"], Path(scratch)))
        texts = said if isinstance(said, list) else [said]
        return tuple(sorted(Version(text) for text in map(str, texts) if _RELEASE.fullmatch(text)))

    def needed(self, name: str, version: str) -> Mapping[str, NpmPackage]:
        """
        One release with all that npm would install for it, by name.

        Raises:
            ResolutionError: npm is not there, or cannot say it.
        """
        with scratch_folder() as scratch:
            folder = Path(scratch)
            (folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {name: version}}))
            self._ask(_TREE, folder)
            found = _decoded((folder / "package-lock.json").read_text(encoding="utf-8"))
        return {each.name: each for each in map(_package, found["packages"].items()) if each is not None}

    def _ask(self, arguments: Sequence[str], folder: Path) -> str:
        """What npm prints, in a folder of its own, since it also reads the settings of the project that it runs in."""
        npm = shutil.which("npm")
        if npm is None:
            raise ResolutionError("npm is not installed, and a target needs a package of it", hint=GET_NODE)
        try:
            done = lifeline.run(
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
        return ResolutionError(f"npm cannot say it: {cause(said)}", hint="check the network, and npm's `registry`")


def cause(said: str) -> str:
    """The first thing that npm said of an error."""
    lines = (line.strip() for line in _SAID.findall(said))
    return next((line for line in lines if not line.startswith(_ASIDE)), "it gave no reason")


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ResolutionError(f"npm answered nonsense: {error}") from error


def _package(entry: tuple[str, Mapping[str, Any]]) -> NpmPackage | None:
    """The package of an entry of `packages` in npm's own lock; None for the project itself, and for second copies."""
    prefix, _, name = entry[0].partition("node_modules/")
    version, integrity = entry[1].get("version"), entry[1].get("integrity")
    if prefix or "node_modules/" in name or not (name and version and integrity):
        return None
    return NpmPackage(name=name, version=version, integrity=integrity)
