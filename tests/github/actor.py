"""`act`, the engine that runs real workflows here without Docker, and what its log says."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.github.commands import Command


@dataclass(frozen=True, slots=True)
class Workflow:
    """One run of a workflow with one job."""

    status: int
    entries: tuple[dict[str, Any], ...]

    def outcome(self, *step: str) -> str:
        """How a step ended; a step inside an action is named after the action's step."""
        return next((entry["stepResult"] for entry in self._of(*step) if "stepResult" in entry), "absent")

    def outputs(self, *step: str) -> dict[str, str]:
        """A step's outputs."""
        return {entry["name"]: entry["arg"] for entry in self._of(*step) if entry.get("command") == "set-output"}

    def printed(self, *step: str) -> str:
        """What a step's script printed."""
        return "".join(entry["msg"] for entry in self._of(*step) if entry.get("raw_output"))

    def annotations(self) -> list[Command]:
        """What the run shows as annotations."""
        return [
            Command(entry["command"], entry["arg"], entry.get("kvPairs") or {})
            for entry in self.entries
            if entry.get("command") in ("error", "warning", "notice")
        ]

    def summary(self) -> str:
        """The job's summary."""
        return "".join(entry["content"] for entry in self.entries if entry.get("command") == "summary")

    def log(self) -> str:
        """All that was printed."""
        return "\n".join(str(entry.get("msg", "")).rstrip("\n") for entry in self.entries)

    def _of(self, *step: str) -> Iterator[dict[str, Any]]:
        return (entry for entry in self.entries if entry.get("stepID") == list(step))


@dataclass(frozen=True, slots=True)
class Actor:
    """Runs workflows of one repository; `actions` are folders that stand for remote actions."""

    program: Path
    repository: Path
    scratch: Path
    actions: Mapping[str, Path]

    def push(self, workflow: Path, **environment: str) -> Workflow:
        """What a push would run."""
        ended = subprocess.run(
            [*self._command(workflow), *(f"--env={name}={value}" for name, value in environment.items())],
            cwd=self.repository,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        entries = (json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{"))
        return Workflow(ended.returncode, tuple(entries))

    def _command(self, workflow: Path) -> list[str]:
        stubs = [f"--local-repository={name}={folder}" for name, folder in self.actions.items()]
        options = ["--platform=ubuntu-24.04=-self-hosted", "--no-cache-server", "--json"]
        return [str(self.program), "push", *options, f"--action-cache-path={self.scratch}", *stubs, "-W", str(workflow)]
