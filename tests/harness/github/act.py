"""`act`, an engine that runs real workflows locally without Docker, and the entries of its log."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.github.workflow_commands import Command
from tests.harness.repositories.checkout import commit

TOKEN = "the-token-of-the-job"
STUBS = Path(__file__).parent / "stubs"


@dataclass(frozen=True, slots=True)
class Workflow:
    """One run of a workflow; use `job` first if it has several jobs."""

    status: int
    entries: tuple[dict[str, Any], ...]

    def outcome(self, *step: str) -> str:
        """Return the result of a step; a step inside an action is addressed by the path of both names."""
        ended = (entry for entry in self._of(*step) if "stepResult" in entry and entry.get("stage", "Main") == "Main")
        return next((entry["stepResult"] for entry in ended), "absent")

    def outputs(self, *step: str) -> dict[str, str]:
        """Return a step's outputs."""
        return {entry["name"]: entry["arg"] for entry in self._of(*step) if entry.get("command") == "set-output"}

    def printed(self, *step: str) -> str:
        """Return the output of a step's script."""
        return "".join(entry["msg"] for entry in self._of(*step) if entry.get("raw_output"))

    def annotations(self) -> list[Command]:
        """Return the annotations of the run."""
        return [
            Command(entry["command"], entry["arg"], entry.get("kvPairs") or {})
            for entry in self.entries
            if entry.get("command") in ("error", "warning", "notice")
        ]

    def summary(self) -> str:
        """Return the job summary. `act` reports the summary of the last step of an action twice."""
        return "".join(dict.fromkeys(entry["content"] for entry in self.entries if entry.get("command") == "summary"))

    def job(self, name: str) -> Workflow:
        """Return the entries of one job, selected by a part of its name."""
        return Workflow(self.status, tuple(entry for entry in self.entries if name in str(entry.get("job", ""))))

    def log(self) -> str:
        """Return everything that was printed."""
        return "\n".join(str(entry.get("msg", "")).rstrip("\n") for entry in self.entries)

    def _of(self, *step: str) -> Iterator[dict[str, Any]]:
        return (entry for entry in self.entries if entry.get("stepID") == list(step))


@dataclass(frozen=True, slots=True)
class Actor:
    """Runs workflows of one repository; `actions` maps remote actions to local folders."""

    program: Path
    repository: Path
    scratch: Path
    actions: Mapping[str, Path]

    def push(self, workflow: Path, **environment: str) -> Workflow:
        """Run the workflow for a push."""
        return self.start(workflow, "push", None, **environment)

    def start(self, workflow: Path, event: str, payload: object, **environment: str) -> Workflow:
        """Run the workflow for an event; `payload` is the event's JSON."""
        options = [f"--env={name}={value}" for name, value in environment.items()]
        if payload is not None:
            (self.scratch / "event.json").write_text(json.dumps(payload), encoding="utf-8")
            options.append(f"--eventpath={self.scratch / 'event.json'}")
        result = subprocess.run(
            [*self._command(workflow, event), *options],
            cwd=self.repository,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        entries = (json.loads(line) for line in result.stdout.splitlines() if line.startswith("{"))
        return Workflow(result.returncode, tuple(entries))

    def _command(self, workflow: Path, event: str) -> list[str]:
        stubs = [f"--local-repository={name}={folder}" for name, folder in self.actions.items()]
        options = [
            "--platform=ubuntu-24.04=-self-hosted",
            "--no-cache-server",
            "--json",
            f"--secret=GITHUB_TOKEN={TOKEN}",
        ]
        return [str(self.program), event, *options, f"--action-cache-path={self.scratch}", *stubs, "-W", str(workflow)]


def stubs(folder: Path, texts: Iterable[str]) -> dict[str, Path]:
    """Create local stand-ins for the third-party actions that these files use, by name and commit."""
    used = {name for text in texts for name in re.findall(r"uses: ((?:actions|github)/\S+)", text)}
    known = {path.name: path for path in STUBS.iterdir()}
    actual: dict[str, Path] = {}
    for name, _, revision in (each.partition("@") for each in sorted(used)):
        owner, repository = name.split("/")[:2]
        if repository in known:
            shutil.copytree(known[repository], folder / repository, dirs_exist_ok=True)
            commit(folder / repository)
            actual[f"{owner}/{repository}@{revision}"] = folder / repository
    return actual
