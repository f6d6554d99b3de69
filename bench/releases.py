"""Run the locked releases without onnxgate: an environment for each, and scripts that load and run models in it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contestants import LOOPS

Installer = Callable[[Path, "Release"], str]
"""Returns the shell commands that create an environment with the packages of a release."""


@dataclass(frozen=True, slots=True)
class Release:
    """One locked release."""

    version: str
    pins: tuple[str, ...]  # onnxruntime and numpy, as the lock pins them


@dataclass(frozen=True, slots=True)
class ReleaseLoop:
    """A shell script like one that a user would write: it starts one Python process for each release."""

    folder: Path
    releases: tuple[Release, ...]
    script: str  # in bench/loops; takes the folders of models, samples and outputs, and prints seconds as JSON

    def command(self, installer: Installer | None = None, *, compares: bool = False) -> tuple[str, ...]:
        """Return the script. `installer` adds the creation of environments, `compares` the comparison of outputs."""
        lines = ["set -e"]
        for release in self.releases:
            lines += self.installation(release, installer) if installer else []
            home = self.folder / release.version
            lines.append(
                f"{_python(home)} {LOOPS / self.script} models samples {home / 'out'} > {home / 'seconds.json'}"
            )
        if compares:
            outputs = " ".join(str(self.folder / release.version / "out") for release in self.releases)
            lines.append(f"{_python(self.folder / self.releases[-1].version)} {LOOPS / 'compare.py'} {outputs}")
        return ("sh", "-c", "\n".join(lines))

    def installation(self, release: Release, installer: Installer) -> list[str]:
        """Return the shell commands that recreate the environment of a release."""
        home = self.folder / release.version
        return [f"rm -rf {home}; mkdir -p {home}", installer(home / "env", release)]

    def own_work_s(self) -> dict[str, float]:
        """Return the seconds that the last run of the script spent in each step, as a total over all releases."""
        spent: dict[str, float] = {}
        for release in self.releases:
            text = (self.folder / release.version / "seconds.json").read_text(encoding="utf-8")
            for step, seconds in json.loads(text).items():
                spent[step] = spent.get(step, 0.0) + seconds
        return spent


def read_releases(lock: Path) -> Iterator[Release]:
    """Yield the locked releases, oldest first."""
    from onnxgate.core.findings import runtime_sort_key
    from onnxgate.project.lock.lock_file import load_lock

    runtimes = {runtime.name: runtime for target in load_lock(lock).targets.values() for runtime in target.runtimes}
    for name in sorted(runtimes, key=runtime_sort_key):
        pins = [pin for pin in runtimes[name].packages if pin.partition("==")[0] in ("onnxruntime", "numpy")]
        yield Release(runtimes[name].release, tuple(pins))


def install_by_pip(environment: Path, release: Release) -> str:
    """Return the shell commands that create the environment with pip."""
    return _lines(
        [sys.executable, "-m", "venv", environment],
        [
            environment / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *release.pins,
        ],
    )


def install_by_uv(environment: Path, release: Release) -> str:
    """Return the shell commands that create the environment with uv."""
    from uv import find_uv_bin

    uv, python = find_uv_bin(), environment / "bin" / "python"
    return _lines(
        [uv, "venv", "--quiet", "--no-project", "--python", sys.executable, environment],
        [uv, "pip", "install", "--quiet", "--python", python, *release.pins],
    )


def _lines(*commands: Sequence[str | Path]) -> str:
    return "\n".join(" ".join(map(str, command)) for command in commands)


def _python(home: Path) -> Path:
    return home / "env" / "bin" / "python"
