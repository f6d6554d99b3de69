"""A user's repository, with the installed command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.conftest import CI_PREFIXES, CI_VARIABLES

INDEX_VARIABLES = (
    *("UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_CONFIG_FILE", "UV_OFFLINE"),
    *("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"),
)
"""Variables that configure the package index of uv and pip."""
PATIENCE_S = 600
"""Time after which a command is considered to hang."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a command."""

    status: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Repository:
    """A folder with a config, the installed command, and the environment variables to run it with."""

    program: Path
    folder: Path
    environment: Mapping[str, str]

    def with_environment(self, **variables: str | Path | None) -> Repository:
        """Return a copy with other environment variables; None removes one."""
        merged = {**self.environment, **variables}
        return replace(self, environment={name: str(value) for name, value in merged.items() if value is not None})

    def at(self, folder: Path) -> Repository:
        """Return a copy that runs the command in another folder."""
        return replace(self, folder=folder)

    def run(self, *arguments: str, status: int = 0, patience_s: float = PATIENCE_S) -> CommandResult:
        """Run the command and require its exit status."""
        with self.start(*arguments) as process:
            result = wait(process, patience_s)
        assert result.status == status, f"status {result.status}\n{result.out}\n{result.err}"
        return result

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command in its own session."""
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
        """Return the JSON report of `onnxgate check`."""
        decoded: dict[str, Any] = json.loads(self.run("check", "--output", "json", *arguments, status=status).out)
        assert decoded["exit"] == status
        return decoded

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace a text that must occur in the file."""
        text = self.read(name)
        assert old in text
        self.write(name, text.replace(old, new))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return (self.folder / name).read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Write a file."""
        (self.folder / name).write_text(text, encoding="utf-8", newline="\n")


def wait(process: subprocess.Popen[str], patience_s: float = PATIENCE_S) -> CommandResult:
    """Wait for a command to end; kill it after the timeout."""
    try:
        out, err = process.communicate(timeout=patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return CommandResult(process.returncode, out, err)


def usual_environment() -> dict[str, str]:
    """Return this process's environment without the variables set by CI and the tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if name not in CI_VARIABLES and not name.startswith(CI_PREFIXES)
    }


def brief(finding: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a finding's level, rule and model."""
    return finding["level"], finding["rule"], finding["model"]
