"""The step of `action.yml` that runs the command: reads the inputs from the environment and writes the outputs.

It exits with the status of the command, so that the step fails unless the command passes.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from onnxgate.core.errors import ErrorRecord, FileProblem, OnnxgateError
from onnxgate.core.files import cache_dir
from onnxgate.core.report import Report
from onnxgate.core.subprocesses import deny_inspection
from onnxgate.formats.wording import count_weakenings
from onnxgate.gate.sharding.plan import MAX_SHARDS
from onnxgate.github import cache, protection
from onnxgate.github.error_report import describe_error, print_bug_reports, render_summary, report_error
from onnxgate.github.runner import use_utf8_output, write_outputs
from onnxgate.github.step import (
    EXIT_UNDECIDED,
    REPORTING_COMMANDS,
    UPGRADE,
    CommandRun,
    CommentMode,
    Inputs,
    ResultFiles,
    read_inputs,
    run_command,
    shard_suffix,
)

EXIT_KILLED = 137
UNCHECKED_COMMANDS = ("lock", "export")
UNCHECKED_SUMMARY = (
    "## onnxgate {0}\n\n⚠️ **Limited check:** no model was checked, because the workflow sets `command: {0}`.\n"
)
ATTACK = "code of the repository interfered with this step, so that its report may be forged"
ATTACK_HINT = "check the sources, input functions and interpreters that the config names"
VERDICT_BY_STATUS = {0: "pass", 1: "fail"}  # for commands that do not write a report
PREVIEW_VERDICTS = {**VERDICT_BY_STATUS, EXIT_UNDECIDED: "undecided"}


@dataclass(frozen=True, slots=True)
class ActionOutputs:
    """Outputs of the action. Those that do not apply to the command are empty."""

    exit_code: int
    verdict: str = "undecided"
    errors: str = ""
    warnings: str = ""
    undecided: str = ""
    policy_weakened: str = ""
    changed_models: str = ""
    baseline: str = ""
    report: str = ""
    html_file: str = ""
    junit_file: str = ""
    costs: str = ""
    sarif_file: str = ""
    matrix: str = ""
    count: str = ""
    plan: str = ""
    proposal: str = ""


@dataclass(frozen=True, slots=True)
class InternalOutputs:
    """Outputs that only the later steps of the action use."""

    comment_file: str = ""
    comment_subject: str = ""  # distinguishes the comments of several projects in one job
    silent: str = ""  # "true" if an existing comment is updated, but no comment is created
    sarif_category: str = ""
    keep: str = ""  # "true" if wheels should be saved
    results_key: str = ""  # the key for results and costs; "" if they are not saved


def run_action(environment: Mapping[str, str]) -> tuple[ActionOutputs, InternalOutputs]:
    """Run the selected command. Write its results to the log, annotations and summary, and return the outputs.

    Raises:
        OnnxgateError: an input is invalid, or the output of the command is.
    """
    inputs = read_inputs(environment)
    folder = Path(tempfile.mkdtemp(prefix="onnxgate-", dir=environment.get("RUNNER_TEMP")))
    results = ResultFiles(folder, inputs.shard)
    variables = {**environment, **cache.use_restored_cache(inputs, environment)}
    bug_reports = Path(variables.get("ONNXGATE_CACHE_DIR") or cache_dir()) / "bugs"
    start_ns = time.time_ns()
    ran = run_command(inputs, results, variables)
    printed = print_bug_reports(bug_reports, start_ns)
    if results.annotations.exists():
        print(results.annotations.read_text(encoding="utf-8"), flush=True)
    outcome, report = read_outcome(inputs, results, ran)
    if ran.attacks:  # write no summary, upload and save nothing, and do not run possibly changed code with the token
        attack = ErrorRecord(ATTACK, ATTACK_HINT, problems=tuple(map(FileProblem, ran.attacks)))
        report_error(attack, outcome.exit_code, environment)
        return replace(outcome, sarif_file=""), InternalOutputs()
    if inputs.summary and inputs.command in UNCHECKED_COMMANDS:
        results.summary.write_text(UNCHECKED_SUMMARY.format(inputs.command), encoding="utf-8")
    if results.summary.exists() and "GITHUB_STEP_SUMMARY" in environment:
        heading = b"## onnxgate upgrade\n\n" if outcome.proposal else b""
        with Path(environment["GITHUB_STEP_SUMMARY"]).open("ab") as file:
            file.write(heading + results.summary.read_bytes())
    if record := _find_error(results, ran, outcome):
        if any(record.traceback in text for text in printed):
            record = record._replace(traceback="")
        report_error(record, outcome.exit_code, environment)
        if (
            inputs.comment != "never" and not outcome.report
        ):  # an earlier comment must not look like the current verdict
            results.comment.write_text("\n".join(render_summary(record, outcome.exit_code)), encoding="utf-8")
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
            policy_weakened=str(count_weakenings(report)),
            changed_models=str(len(report.changes)),
            baseline=report.against.commit if report.against is not None else "",
            report=str(results.report),
            html_file=_path_if_written(results.html),
            junit_file=_path_if_written(results.junit),
            sarif_file=_path_if_written(results.sarif),
        )
        return outcome, report
    if inputs.command == UPGRADE:
        return _read_upgrade_outcome(results, ran), None
    if inputs.command == "plan" and ran.status == 0:
        return _read_planned_outcome(results, ran), None
    if inputs.command not in REPORTING_COMMANDS and ran.status in VERDICT_BY_STATUS:
        return ActionOutputs(ran.status, VERDICT_BY_STATUS[ran.status]), None
    return ActionOutputs(ran.status or EXIT_UNDECIDED), None


def _read_upgrade_outcome(results: ResultFiles, ran: CommandRun) -> ActionOutputs:
    """Return the outputs of a preview. The step passes if there is a preview, whatever the upgrade would change."""
    is_complete = ran.status in PREVIEW_VERDICTS and _path_if_written(results.proposal) and not results.error.exists()
    if ran.attacks or not is_complete:
        return ActionOutputs(ran.status or EXIT_UNDECIDED)
    return ActionOutputs(0, PREVIEW_VERDICTS[ran.status], proposal=str(results.proposal))


def _find_error(results: ResultFiles, ran: CommandRun, outcome: ActionOutputs) -> ErrorRecord | None:
    """Return the error that ended the command; None if it has a verdict and did not report an error."""
    record = _read_record(results.error)
    if record is not None or outcome.report or outcome.proposal or outcome.verdict != "undecided":
        return record
    hint = "the runner may have run out of memory" if ran.status == EXIT_KILLED else "see the log of this step"
    return ErrorRecord(f"onnxgate exited with status {ran.status} without a verdict", hint)


def _read_record(path: Path) -> ErrorRecord | None:
    """Return the record that the command wrote, or None if it did not write a valid one."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ErrorRecord)
    except (OSError, msgspec.MsgspecError):
        return None


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
        raise OnnxgateError(f"`onnxgate plan` printed an invalid job matrix: {error}") from error
    if len(matrix) != 1 or len(shards) > MAX_SHARDS:
        raise OnnxgateError(
            f"`onnxgate plan` printed an invalid job matrix with {len(shards)} jobs (maximum {MAX_SHARDS})"
        )
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
    category = inputs.sarif_category or "-".join(filter(None, ("onnxgate", folder_word)))
    return InternalOutputs(
        comment_file=_path_if_written(results.comment),
        comment_subject=" ".join(word for word in (subject, inputs.config) if word),
        silent="true" if report is not None and is_silent(inputs.comment, report) else "false",
        sarif_category="-".join(filter(None, (category, shard_suffix(inputs.shard)))),
        keep="true" if swept and cache.has_wheels(restored) else "false",
        results_key=cache.make_results_key(inputs, environment) if swept else "",
    )


def is_silent(mode: CommentMode, report: Report) -> bool:
    """Return whether a comment is only updated: with `on-failure`, if the check passed and no policy was weakened."""
    return mode == "on-failure" and report.verdict == "pass" and not count_weakenings(report)


def main() -> None:
    """Run the main step of the action, and exit with its status. Errors are reported, and are outputs as well."""
    use_utf8_output()
    try:
        outcome, internal = run_action(os.environ)
    except Exception as error:  # noqa: BLE001 - reported as a bug
        status = error.exit_code if isinstance(error, OnnxgateError) else EXIT_UNDECIDED
        report_error(describe_error(error), status, os.environ)
        outcome, internal = ActionOutputs(status), InternalOutputs()
    write_outputs(Path(os.environ["GITHUB_OUTPUT"]), outcome, internal)
    sys.exit(outcome.exit_code)


if __name__ == "__main__":
    deny_inspection()
    protection.adopt_orphans()
    main()
