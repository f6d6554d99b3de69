"""The one entry of `action.yml`: inputs from the environment, one run of the command, outputs for the next step.

A gate that is closed is an output and no failure of this process; the action's last step ends with that status.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.cli import action_kept
from onnxgate.cli.action_inputs import REPORTING, Inputs, Results, part, read_inputs
from onnxgate.cli.action_outputs import write_outputs
from onnxgate.cli.action_running import Ran, annotate, run
from onnxgate.errors import UsageError

if TYPE_CHECKING:
    from onnxgate.report import Report

NO_VERDICT = 3
VERDICTS = {0: "pass", 1: "fail"}  # of a command that writes no report
MOST_SHARDS = 256
"""Jobs of one matrix. Source: GitHub's documentation, 2026-08."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The action's outputs; what a command does not tell is empty."""

    exit_code: int
    verdict: str = "undecided"
    errors: str = ""
    warnings: str = ""
    undecided: str = ""
    report: str = ""
    costs: str = ""
    sarif_file: str = ""
    matrix: str = ""
    count: str = ""


@dataclass(frozen=True, slots=True)
class Onward:
    """What later steps of the action read."""

    comment_file: str = ""
    comment_subject: str = ""  # tells the comments of several projects in one job apart
    silent: str = ""  # "true" where a first comment would have nothing to say
    sarif_category: str = ""
    keep: str = ""  # "true" where wheels are to be saved
    results_key: str = ""  # by which results and costs are to be saved; "" where they are not


def act(environment: Mapping[str, str]) -> tuple[Outcome, Onward]:
    """Run what the inputs ask for, and say it in the log, in annotations and in the summary."""
    try:
        inputs = read_inputs(environment)
    except UsageError as error:
        annotate("error", error.message, *([f"hint: {error.hint}"] if error.hint else []))
        return Outcome(error.exit_code), Onward()
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-", dir=environment.get("RUNNER_TEMP")))
    results = Results(folder, inputs.shard)
    ran = run(inputs, results, {**environment, **action_kept.use(inputs, environment)})
    _publish(results, environment)
    outcome, report = judge(inputs, results, ran)
    outcome = replace(outcome, costs=action_kept.hand_over_costs(results, environment) if outcome.report else "")
    return outcome, _onward(inputs, results, outcome, report, environment)


def _publish(results: Results, environment: Mapping[str, str]) -> None:
    if results.annotations.exists():
        print(results.annotations.read_text(encoding="utf-8"), flush=True)
    if results.summary.exists() and "GITHUB_STEP_SUMMARY" in environment:
        with Path(environment["GITHUB_STEP_SUMMARY"]).open("ab") as file:
            file.write(results.summary.read_bytes())


def judge(inputs: Inputs, results: Results, ran: Ran) -> tuple[Outcome, Report | None]:
    """The outcome of a run; a `check` that left no report, or one that says another status, has not passed."""
    if results.report.exists():
        return _reported(results, ran.status)
    if inputs.command == "plan" and ran.status == 0:
        return _planned(ran), None
    if inputs.command not in REPORTING and ran.status in VERDICTS:
        return Outcome(ran.status, VERDICTS[ran.status]), None
    annotate("error", *_trouble(ran))
    return Outcome(ran.status or NO_VERDICT), None


def _trouble(ran: Ran) -> list[str]:
    """The command's own words on what went wrong."""
    errors = [number for number, line in enumerate(ran.printed) if line.startswith("error:")]
    said = list(ran.printed[errors[-1] :]) if errors else []
    return said or [f"no verdict: onnxgate ended with status {ran.status}; its log says more"]


def _reported(results: Results, status: int) -> tuple[Outcome, Report]:
    import msgspec

    from onnxgate.report import Report

    report = msgspec.json.decode(results.report.read_bytes(), type=Report)
    agreed = report.exit == status
    outcome = Outcome(
        exit_code=status if agreed else status or NO_VERDICT,
        verdict=report.verdict if agreed else "undecided",
        errors=str(_count(report, "error")),
        warnings=str(_count(report, "warning")),
        undecided=str(len(report.undecided)),
        report=str(results.report),
        sarif_file=_written(results.sarif),
    )
    return outcome, report


def _written(path: Path) -> str:
    return str(path) if path.exists() and path.stat().st_size else ""


def _count(report: Report, level: str) -> int:
    return sum(finding.level == level and not finding.ignored for finding in report.findings)


def _planned(ran: Ran) -> Outcome:
    """The matrix that a plan printed, on one line."""
    import msgspec

    try:
        matrix = msgspec.json.decode("\n".join(ran.answered), type=dict[str, list[dict[str, str | int]]])
        shards = matrix["include"]
    except (msgspec.MsgspecError, KeyError) as error:
        annotate("error", f"no plan: what `onnxgate plan` printed is no matrix: {error}")
        return Outcome(NO_VERDICT)
    if len(matrix) != 1 or len(shards) > MOST_SHARDS:
        annotate("error", f"no plan: a matrix has `include` alone and up to {MOST_SHARDS} jobs, not {len(shards)}")
        return Outcome(NO_VERDICT)
    text = msgspec.json.encode(matrix).decode()
    return Outcome(0, "pass", matrix=text, count=str(len(shards)))


def _onward(
    inputs: Inputs, results: Results, outcome: Outcome, report: Report | None, environment: Mapping[str, str]
) -> Onward:
    restored = environment.get(action_kept.FOLDER_VARIABLE, "")
    swept = outcome.exit_code in VERDICTS and bool(restored) and action_kept.sweep(inputs, restored)
    subject = "" if inputs.directory == "." else inputs.directory
    return Onward(
        comment_file=_written(results.comment),
        comment_subject=" ".join(word for word in (subject, inputs.config) if word),
        silent="true" if report is not None and has_nothing_to_say(report) else "false",
        sarif_category="-".join(word for word in ("onnxgate", _plain(subject), part(inputs.shard)) if word),
        keep="true" if swept and action_kept.has_wheels(restored) else "false",
        results_key=action_kept.results_key(inputs, environment) if swept else "",
    )


def _plain(text: str) -> str:
    return "".join(each if each.isalnum() and each.isascii() else "_" for each in text)


def has_nothing_to_say(report: Report) -> bool:
    """Whether all is well, and the models are what they were."""
    return report.verdict == "pass" and not report.changes and not (_count(report, "error") + _count(report, "warning"))


def main() -> None:
    """Run the action's step; any fault of our own ends it with a failure."""
    speak_plainly()
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), *act(os.environ))


def speak_plainly() -> None:
    """Have the log in UTF-8, whatever the system thinks of it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    main()
