"""Invariants that every command must satisfy under any fault."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onnxgate.core.errors import OnnxgateError
from onnxgate.project.lock.lock_file import parse_lock

STATUSES = frozenset((0, 1, 2, 3, 130, 141))
PASSED = ("cells", "findings", "counts", "verdict")
SILENT = frozenset((0, 1, 141))  # statuses without an error: the report was written, or the pipe is closed
BLAME = re.compile(r"correct (?:the source|that line)|fix the source")
UNFINISHED = re.compile(r"Traceback \(most recent call last\)|^Exception ignored|Fatal Python error", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """Result of one command under a fault, and the state before and after it."""

    status: int
    out: str
    err: str
    expected: frozenset[int]
    report: Mapping[str, Any] | None = None
    truth: Mapping[str, Any] | None = None  # the report of the same command without a fault; None for other commands
    lock: tuple[str, str | None] = ("", "")  # content before and after
    locks: tuple[str, ...] = ()  # other allowed contents afterwards
    left: tuple[str, ...] = ()  # processes that outlived the command
    scratch: tuple[str, ...] = ()  # files left in the temporary folder
    strays: tuple[str, ...] = ()  # files left in the user's project
    killed: bool = False  # by the fault itself
    bug: bool = False  # the fault is a bug in onnxgate
    mute: bool = False  # its output cannot be read
    late: bool = False  # it exceeded the time limit and was killed
    about: str = ""  # description of the variant, for messages
    unread: tuple[str, ...] = field(default=())  # outputs that are neither complete nor empty


def find_violations(seen: FaultOutcome) -> list[str]:
    """Return the violated invariants; none if the fault was handled."""
    return [f"{seen.about}: {problem}" if seen.about else problem for problem in _find_violations(seen)]


def _find_violations(seen: FaultOutcome) -> Iterator[str]:
    yield from _of_the_end(seen)
    yield from _of_the_verdict(seen)
    yield from _of_the_words(seen)
    yield from _of_what_is_left(seen)


def _of_the_end(seen: FaultOutcome) -> Iterator[str]:
    if seen.late:
        yield "the command did not end"
    elif seen.status not in seen.expected:
        yield f"status {seen.status}, expected {sorted(seen.expected)}; standard error: {seen.err[-600:]!r}"
    if not seen.killed and not seen.late and seen.status not in STATUSES:
        yield f"status {seen.status} is not an exit status of onnxgate"


def _of_the_verdict(seen: FaultOutcome) -> Iterator[str]:
    """A passing report must equal the report without the fault, and every undecided check must have a reason."""
    if seen.truth is None:
        return
    if seen.status == 0 and not seen.mute:
        if seen.report is None:
            yield "passed without a report"
        else:
            yield from (
                f"passed with different {name}" for name in PASSED if _of(seen.report, name) != _of(seen.truth, name)
            )
    if seen.report is not None and seen.status in STATUSES:
        yield from _of_the_report(seen.report, seen)


def _of(report: Mapping[str, Any], name: str) -> Any:
    """Return a part of the report, without values that differ from run to run."""
    if name != "counts":
        return report[name]
    return {what: number for what, number in report["counts"].items() if what != "reused"}


def _of_the_report(report: Mapping[str, Any], seen: FaultOutcome) -> Iterator[str]:
    if report["exit"] != seen.status and seen.status not in (130, 141) and "cannot be written" not in seen.err:
        yield f"the exit status is {seen.status}, but {report['exit']} in the report"
    if report["verdict"] == "undecided" and not report["undecided"]:
        yield "the verdict is undecided, but no check is"
    if silent := [entry for entry in report["undecided"] if not entry["reason"].strip()]:
        yield f"{len(silent)} undecided checks without a reason"
    missed = {(cell["model"], cell["runtime"]) for cell in report["cells"] if cell["state"] == "undecided"}
    told = {(entry["model"], entry["runtime"]) for entry in report["undecided"]}
    models = {model for model, runtime in told if not runtime}
    if lost := sorted(each for each in missed - told if each[0] not in models):
        yield f"undecided checks that are not listed: {lost}"


def _of_the_words(seen: FaultOutcome) -> Iterator[str]:
    """The output must contain one short message with a hint, and no traceback."""
    both = f"{seen.out}\n{seen.err}"
    if UNFINISHED.search(both):
        yield f"a traceback: {both[-800:]!r}"
    if BLAME.search(both) and not seen.bug:
        yield f"the message blames the source: {both[-400:]!r}"
    if "this is a bug in onnxgate" in both and not seen.bug:
        yield f"the message reports a bug in onnxgate: {seen.err[-400:]!r}"
    errors = [line for line in seen.err.splitlines() if line.startswith("error:")]
    if len(errors) > 1:
        yield f"{len(errors)} errors: {errors}"
    if seen.mute or seen.killed or seen.late:
        return
    named = "  hint: " in seen.out  # for a command that reports each model on standard output
    reported = (seen.report or {}).get("undecided")
    output = bool(errors or named or reported or "interrupted" in seen.err or "Usage:" in seen.err)
    if seen.status not in SILENT and not output:
        yield f"status {seen.status} without a message: {both[-400:]!r}"
    if any(len(line) > 400 for line in errors):
        yield "an error message is longer than 400 characters"
    if errors and "hint:" not in seen.err and "expected" not in seen.err:
        yield f"an error without a hint: {seen.err[-400:]!r}"


def _of_what_is_left(seen: FaultOutcome) -> Iterator[str]:
    before, after = seen.lock
    if before and after != before and after not in seen.locks:
        yield "the lock is neither the old nor the expected new lock"
    if after and (why := _damage(after)):
        yield f"the lock is damaged: {why}"
    if before and after is None:
        yield "the lock was deleted"
    if seen.left:
        yield f"processes that are still running: {', '.join(seen.left)}"
    if seen.scratch and not seen.killed:
        yield f"leftovers in the folder for temporary files: {', '.join(seen.scratch[:5])}"
    if seen.strays and not seen.killed:
        yield f"leftovers next to the user's files: {', '.join(seen.strays[:5])}"
    if seen.unread:
        yield f"incomplete outputs: {', '.join(seen.unread)}"


def _damage(text: str) -> str:
    try:
        parse_lock(text, "onnxgate.lock")
    except OnnxgateError as error:
        return error.message
    return ""


def main_message(seen: FaultOutcome) -> str:
    """Return the main message: the error with its hint, or the reason of an undecided check, or the last line."""
    lines = [line.strip() for line in seen.err.splitlines() if line.strip()]
    error = next((line for line in lines if line.startswith(("error:", "interrupted"))), "")
    hint = next((line for line in lines if line.startswith("hint:")), "")
    if error:
        return " · ".join(filter(None, (error, hint)))
    report = seen.report or {}
    if report.get("findings"):
        first = report["findings"][0]
        return f"{first['level']}: {first['rule']}: {first['message']}"
    if report.get("undecided"):
        first = report["undecided"][0]
        return " · ".join(filter(None, (f"undecided: {first['reason']}", first["hint"] and f"hint: {first['hint']}")))
    told = [line.strip() for line in seen.out.splitlines() if line.strip()]
    return told[-1] if told else (lines[-1] if lines else "")


def masked(text: str, *folders: Path) -> str:
    """Remove machine-specific parts."""
    for folder in folders:
        text = text.replace(str(folder), "…")
    text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:PORT", text)
    return re.sub(r"/tmp/[\w./ -]*", "/tmp/…", text)
