"""The step of `action.yml` that runs the command: reads the inputs from the environment and writes the outputs.

It exits with the status of the command, so that the step fails unless the command passes.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from onnxgate.core.errors import UsageError
from onnxgate.core.report import Report
from onnxgate.gate.sharding.plan import MAX_SHARDS
from onnxgate.github import cache, protection
from onnxgate.github.step import (
    EXIT_UNDECIDED,
    REPORTING_COMMANDS,
    CommandRun,
    Inputs,
    ResultFiles,
    annotate,
    read_inputs,
    run_command,
    shard_suffix,
    write_outputs,
)

VERDICT_BY_STATUS = {0: "pass", 1: "fail"}  # for commands that do not write a report


@dataclass(frozen=True, slots=True)
class ActionOutputs:
    """Outputs of the action. Those that do not apply to the command are empty."""

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
    plan: str = ""


@dataclass(frozen=True, slots=True)
class InternalOutputs:
    """Outputs that only the later steps of the action use."""

    comment_file: str = ""
    comment_subject: str = ""  # distinguishes the comments of several projects in one job
    silent: str = ""  # "true" if a first comment would have nothing to report
    sarif_category: str = ""
    keep: str = ""  # "true" if wheels should be saved
    results_key: str = ""  # the key for results and costs; "" if they are not saved


def run_action(environment: Mapping[str, str]) -> tuple[ActionOutputs, InternalOutputs]:
    """Run the selected command. Write its results to the log, annotations and summary, and return the outputs."""
    try:
        inputs = read_inputs(environment)
    except UsageError as error:
        annotate("error", error.message, *([f"hint: {error.hint}"] if error.hint else []))
        return ActionOutputs(error.exit_code), InternalOutputs()
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-", dir=environment.get("RUNNER_TEMP")))
    results = ResultFiles(folder, inputs.shard)
    ran = run_command(inputs, results, {**environment, **cache.use_restored_cache(inputs, environment)})
    if results.annotations.exists():
        print(results.annotations.read_text(encoding="utf-8"), flush=True)
    if results.summary.exists() and "GITHUB_STEP_SUMMARY" in environment:
        with Path(environment["GITHUB_STEP_SUMMARY"]).open("ab") as file:
            file.write(results.summary.read_bytes())
    outcome, report = read_outcome(inputs, results, ran)
    if ran.is_attacked:  # upload and save nothing, and do not run possibly changed code with the token
        return replace(outcome, sarif_file=""), InternalOutputs()
    outcome = replace(outcome, costs=cache.copy_costs(results, environment) if outcome.report else "")
    return outcome, _make_internal_outputs(inputs, results, outcome, report, environment)


def read_outcome(inputs: Inputs, results: ResultFiles, ran: CommandRun) -> tuple[ActionOutputs, Report | None]:
    """Return the outputs of a run of onnxgate.

    A `check` does not pass if its report is missing or contains a different exit status.
    """
    if _path_if_written(results.report):
        report = msgspec.json.decode(results.report.read_bytes(), type=Report)
        agreed = report.exit == ran.status
        outcome = ActionOutputs(
            exit_code=ran.status if agreed else ran.status or EXIT_UNDECIDED,
            verdict=report.verdict if agreed else "undecided",
            errors=str(_count_level(report, "error")),
            warnings=str(_count_level(report, "warning")),
            undecided=str(len(report.undecided)),
            report=str(results.report),
            sarif_file=_path_if_written(results.sarif),
        )
        return outcome, report
    if inputs.command == "plan" and ran.status == 0:
        return _read_planned_outcome(results, ran), None
    if inputs.command not in REPORTING_COMMANDS and ran.status in VERDICT_BY_STATUS:
        return ActionOutputs(ran.status, VERDICT_BY_STATUS[ran.status]), None
    errors = [number for number, line in enumerate(ran.printed) if line.startswith("error:")]
    message_lines = list(ran.printed[errors[-1] :]) if errors else []
    annotate("error", *(message_lines or [f"onnxgate exited with status {ran.status} without a verdict; see the log"]))
    return ActionOutputs(ran.status or EXIT_UNDECIDED), None


def _path_if_written(path: Path) -> str:
    return str(path) if path.exists() and path.stat().st_size else ""


def _count_level(report: Report, level: str) -> int:
    return sum(finding.level == level and not finding.ignored for finding in report.findings)


def _read_planned_outcome(results: ResultFiles, ran: CommandRun) -> ActionOutputs:
    """Write the printed plan to a file, and return outputs with the job matrix as one short line.

    The line is short because GitHub limits the size of outputs.
    """
    text = "\n".join(ran.answered)
    try:
        matrix = msgspec.json.decode(text, type=dict[str, list[dict[str, str | int | list[str]]]])
        shards = matrix["include"]
    except (msgspec.MsgspecError, KeyError) as error:
        annotate("error", f"`onnxgate plan` printed an invalid job matrix: {error}")
        return ActionOutputs(EXIT_UNDECIDED)
    if len(matrix) != 1 or len(shards) > MAX_SHARDS:
        annotate(
            "error", f"`onnxgate plan` printed an invalid job matrix with {len(shards)} jobs (maximum {MAX_SHARDS})"
        )
        return ActionOutputs(EXIT_UNDECIDED)
    results.plan.write_text(text, encoding="utf-8")
    jobs = [{name: value for name, value in shard.items() if name != "paths"} for shard in shards]
    encoded = msgspec.json.encode({"include": jobs}).decode()
    return ActionOutputs(0, "pass", matrix=encoded, count=str(len(shards)), plan=str(results.plan))


def _make_internal_outputs(
    inputs: Inputs, results: ResultFiles, outcome: ActionOutputs, report: Report | None, environment: Mapping[str, str]
) -> InternalOutputs:
    restored = environment.get(cache.FOLDER_VARIABLE, "")
    swept = outcome.exit_code in VERDICT_BY_STATUS and bool(restored) and cache.clean_restored_cache(inputs, restored)
    subject = "" if inputs.directory == "." else inputs.directory
    folder_word = re.sub("[^0-9A-Za-z]", "_", subject)
    return InternalOutputs(
        comment_file=_path_if_written(results.comment),
        comment_subject=" ".join(word for word in (subject, inputs.config) if word),
        silent="true" if report is not None and has_nothing_to_report(report) else "false",
        sarif_category="-".join(filter(None, ("onnxgate", folder_word, shard_suffix(inputs.shard)))),
        keep="true" if swept and cache.has_wheels(restored) else "false",
        results_key=cache.make_results_key(inputs, environment) if swept else "",
    )


def has_nothing_to_report(report: Report) -> bool:
    """Return whether the check passed without errors and warnings, and no model changed."""
    return (
        report.verdict == "pass"
        and not report.changes
        and not (_count_level(report, "error") + _count_level(report, "warning"))
    )


def main() -> None:
    """Run the main step of the action, and exit with the status of the command. An internal error fails the step."""
    use_utf8_output()
    outcome, internal = run_action(os.environ)
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outcome, internal)
    sys.exit(outcome.exit_code)


def use_utf8_output() -> None:
    """Make Python write the log in UTF-8, regardless of the system's encoding."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


if __name__ == "__main__":
    protection.deny_inspection()
    protection.adopt_orphans()
    main()
