"""The one entry of `action.yml`: inputs from the environment, one run of the command, outputs for the next step.

A gate that is closed is an output and no failure of this process; the action's last step ends with that status.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec

from onnxgate.cli.action_inputs import Inputs, Results, arguments, read_inputs
from onnxgate.errors import UsageError
from onnxgate.formats.escape import command_data, log_line, visible
from onnxgate.report import Report

NO_VERDICT = 3
VERDICTS = {0: "pass", 1: "fail"}  # of a command that writes no report
# With these a process can command the runner; what the gate starts runs the repository's own code.
COMMAND_FILES = ("GITHUB_OUTPUT", "GITHUB_ENV", "GITHUB_PATH", "GITHUB_STATE", "GITHUB_STEP_SUMMARY")


@dataclass(frozen=True, slots=True)
class Ran:
    """How the command ended, and what it printed."""

    status: int
    printed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The action's outputs; counts and the report are empty where nothing was judged."""

    exit_code: int
    verdict: str = "undecided"
    errors: str = ""
    warnings: str = ""
    undecided: str = ""
    report: str = ""


def act(environment: Mapping[str, str]) -> Outcome:
    """Run what the inputs ask for, and say it in the log, in annotations and in the summary."""
    try:
        inputs = read_inputs(environment)
    except UsageError as error:
        _annotate(error.message, *([f"hint: {error.hint}"] if error.hint else []))
        return Outcome(error.exit_code)
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-", dir=environment.get("RUNNER_TEMP")))
    results = Results(folder / "report.json", folder / "annotations.txt", folder / "summary.md")
    ran = run(inputs, results, environment)
    _publish(results, environment)
    return judge(inputs, results, ran)


def run(inputs: Inputs, results: Results, environment: Mapping[str, str]) -> Ran:
    """Run the command; what it prints goes to the log and commands nothing there."""
    command = [sys.executable, "-I", "-X", "utf8", "-m", "onnxgate", *arguments(inputs, results)]
    kept = {name: value for name, value in environment.items() if name not in COMMAND_FILES}
    printed: list[str] = []
    with subprocess.Popen(
        command,
        cwd=inputs.folder,
        env={**kept, "NO_COLOR": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            printed.append(line.rstrip("\n"))
            print(log_line(printed[-1]), flush=True)
    status = process.returncode
    return Ran(status if status >= 0 else 128 - status, tuple(printed))


def _publish(results: Results, environment: Mapping[str, str]) -> None:
    if results.annotations.exists():
        print(results.annotations.read_text(encoding="utf-8"), flush=True)
    if results.summary.exists() and "GITHUB_STEP_SUMMARY" in environment:
        with Path(environment["GITHUB_STEP_SUMMARY"]).open("ab") as file:
            file.write(results.summary.read_bytes())


def judge(inputs: Inputs, results: Results, ran: Ran) -> Outcome:
    """The outcome of a run; a `check` that left no report, or one that says another status, has not passed."""
    if results.report.exists():
        return _reported(results.report, ran.status)
    if inputs.command != "check" and ran.status in VERDICTS:
        return Outcome(ran.status, VERDICTS[ran.status])
    _annotate(*_trouble(ran))
    return Outcome(ran.status or NO_VERDICT)


def _trouble(ran: Ran) -> list[str]:
    """The command's own words on what went wrong."""
    errors = [number for number, line in enumerate(ran.printed) if line.startswith("error:")]
    said = list(ran.printed[errors[-1] :]) if errors else []
    return said or [f"no verdict: onnxgate ended with status {ran.status}; its log says more"]


def _reported(path: Path, status: int) -> Outcome:
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    agreed = report.exit == status
    return Outcome(
        exit_code=status if agreed else status or NO_VERDICT,
        verdict=report.verdict if agreed else "undecided",
        errors=str(_count(report, "error")),
        warnings=str(_count(report, "warning")),
        undecided=str(len(report.undecided)),
        report=str(path),
    )


def _count(report: Report, level: str) -> int:
    return sum(finding.level == level and not finding.ignored for finding in report.findings)


def write_outputs(path: Path, outcome: Outcome) -> None:
    """Append the outputs; a delimiter that nobody can guess keeps one value from setting another."""
    with path.open("a", encoding="utf-8", newline="\n") as file:
        for name, value in asdict(outcome).items():
            delimiter = f"onnxgate_{uuid.uuid4()}"
            file.write(f"{name.replace('_', '-')}<<{delimiter}\n{value}\n{delimiter}\n")


def _annotate(*lines: str) -> None:
    text = "\n".join(visible(line) for line in lines)
    print(f"::error title=onnxgate::{command_data(text)}", flush=True)


def main() -> None:
    """Run the action's step; any fault of our own ends it with a failure."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    outcome = act(os.environ)
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outcome)


if __name__ == "__main__":
    main()
