"""A user's repository, and the installed command in it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conftest import FOREIGN, FOREIGN_PREFIXES

INDEX_VARIABLES = (
    *("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE", "UV_OFFLINE"),
    *("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
)
"""Variables by which uv and pip find a package index."""
PATIENCE_S = 600
"""So long a command may take before it counts as one that hangs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder with a config, the installed command, and the environment that it is given."""

    program: Path
    folder: Path
    environment: Mapping[str, str]

    def given(self, **variables: str | Path | None) -> Repository:
        """The same with other variables in the environment; None takes one out."""
        merged = {**self.environment, **variables}
        return replace(self, environment={name: str(value) for name, value in merged.items() if value is not None})

    def at(self, folder: Path) -> Repository:
        """The same command in another folder."""
        return replace(self, folder=folder)

    def run(self, *arguments: str, status: int = 0, patience_s: float = PATIENCE_S) -> Ended:
        """Run the command, which must end with that status."""
        with self.start(*arguments) as process:
            ended = wait(process, patience_s)
        assert ended.status == status, f"status {ended.status}\n{ended.out}\n{ended.err}"
        return ended

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in a session of its own."""
        return subprocess.Popen(
            [self.program, *arguments],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )

    def report(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """What `onnxgate check --output json` says."""
        said: dict[str, Any] = json.loads(self.run("check", "--output", "json", *arguments, status=status).out)
        assert said["exit"] == status
        return said

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text in one of the files, where it must be."""
        text = self.read(name)
        assert old in text
        self.write(name, text.replace(old, new))

    def read(self, name: str) -> str:
        """The text of one of the files."""
        return (self.folder / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write one of the files."""
        (self.folder / name).write_text(text, encoding="utf-8", newline="\n")


def wait(process: subprocess.Popen[str], patience_s: float = PATIENCE_S) -> Ended:
    """The end of a command, which must come."""
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return Ended(process.returncode, out, err)


def usual_environment() -> dict[str, str]:
    """That of this process without what CI and the tests' own environment put into it."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in FOREIGN and not name.startswith(FOREIGN_PREFIXES)
    }


def brief(finding: Mapping[str, Any]) -> tuple[str, str, str]:
    """A finding's level, rule and model."""
    return finding["level"], finding["rule"], finding["model"]
