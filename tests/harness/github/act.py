"""`act`, the engine that runs real workflows here without Docker, and what its log says."""

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
    """One run of a workflow; outcomes of steps are asked for where it has one job."""

    status: int
    entries: tuple[dict[str, Any], ...]

    def outcome(self, *step: str) -> str:
        """How a step ended; a step inside an action is named after the action's step."""
        ended = (entry for entry in self._of(*step) if "stepResult" in entry and entry.get("stage", "Main") == "Main")
        return next((entry["stepResult"] for entry in ended), "absent")

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

    def job(self, name: str) -> Workflow:
        """What is known of one job, by a part of its name."""
        return Workflow(self.status, tuple(entry for entry in self.entries if name in str(entry.get("job", ""))))

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
        return self.start(workflow, "push", None, **environment)

    def start(self, workflow: Path, event: str, payload: object, **environment: str) -> Workflow:
        """What the event would run; `payload` is what GitHub tells of it."""
        options = [f"--env={name}={value}" for name, value in environment.items()]
        if payload is not None:
            (self.scratch / "event.json").write_text(json.dumps(payload), encoding="utf-8")
            options.append(f"--eventpath={self.scratch / 'event.json'}")
        ended = subprocess.run(
            [*self._command(workflow, event), *options],
            cwd=self.repository,
            env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        entries = (json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{"))
        return Workflow(ended.returncode, tuple(entries))

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
    """Folders that stand for the actions of others which these files use, by name and commit."""
    used = {name for text in texts for name in re.findall(r"uses: ((?:actions|github)/\S+)", text)}
    known = {path.name: path for path in STUBS.iterdir()}
    found: dict[str, Path] = {}
    for name, _, revision in (each.partition("@") for each in sorted(used)):
        owner, repository = name.split("/")[:2]
        if repository in known:
            shutil.copytree(known[repository], folder / repository, dirs_exist_ok=True)
            commit(folder / repository)
            found[f"{owner}/{repository}@{revision}"] = folder / repository
    return found
