"""One run of the command below the action: what it prints goes to the log, and commands nothing there."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from onnxgate.cli.action_inputs import Inputs, Results, arguments
from onnxgate.formats.escape import command_data, log_line, visible

# With these a process can command the runner; what the gate starts runs the repository's own code.
COMMAND_FILES = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")


@dataclass(frozen=True, slots=True)
class Ran:
    """How the command ended, and what it printed: `answered` on standard output, `printed` on both."""

    status: int
    printed: tuple[str, ...]
    answered: tuple[str, ...] = ()


def run(inputs: Inputs, results: Results, environment: Mapping[str, str]) -> Ran:
    """Run the command that the inputs ask for."""
    command = [sys.executable, "-I", "-X", "utf8", "-m", "onnxgate", *arguments(inputs, results)]
    kept = {name: value for name, value in environment.items() if name not in COMMAND_FILES}
    printed: list[str] = []
    answered: list[str] = []
    with subprocess.Popen(
        command,
        cwd=inputs.folder,
        env={**kept, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if inputs.command == "plan" else subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        aside = threading.Thread(target=_log, args=(process.stderr or (), printed))
        aside.start()
        _log(process.stdout or (), printed, answered)
        aside.join()
    status = process.returncode
    return Ran(status if status >= 0 else 128 - status, tuple(printed), tuple(answered))


def _log(lines: Iterable[str], *kept: list[str]) -> None:
    for line in lines:
        text = line.rstrip("\n")
        for each in kept:
            each.append(text)
        print(log_line(text), flush=True)


def annotate(level: str, *lines: str) -> None:
    """One annotation of a step; `lines` may hold foreign text."""
    text = "\n".join(visible(line) for line in lines)
    print(f"::{level} title=onnxgate::{command_data(text)}", flush=True)
