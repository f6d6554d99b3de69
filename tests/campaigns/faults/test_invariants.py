"""The fault checker detects each violation and accepts correct results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaigns.faults.invariants import FaultOutcome, find_violations
from campaigns.faults.termination import find_leftovers
from tests.conftest import ROOT

LOCK = (ROOT / "fixtures" / "projects" / "broken" / "onnxgate.lock").read_text(encoding="utf-8")
CELL = {"model": "m.onnx", "runtime": "onnxruntime 1.18.1", "state": "pass"}
TRUTH: dict[str, Any] = {
    "exit": 0,
    "verdict": "pass",
    "cells": [CELL],
    "findings": [],
    "counts": {"ran": 1},
    "undecided": [],
}
UNDONE = {"model": "m.onnx", "runtime": "onnxruntime 1.18.1", "reason": "no index answers"}
UNDECIDED = {
    **TRUTH,
    "exit": 3,
    "verdict": "undecided",
    "cells": [{**CELL, "state": "undecided"}],
    "undecided": [UNDONE],
}
WELL = FaultOutcome(0, "pass\n", "", frozenset((0, 3)), report=TRUTH, truth=TRUTH, lock=(LOCK, LOCK))
OPEN = replace(WELL, status=3, report=UNDECIDED)
ERROR = FaultOutcome(2, "", "error: no config\nhint: run `onnxgate init`\n", frozenset((2,)))


@pytest.mark.parametrize("seen", [WELL, OPEN, ERROR, replace(WELL, status=-9, expected=frozenset((-9,)), killed=True)])
def test_allowed_outcomes(seen: FaultOutcome) -> None:
    """A pass, an undecided result with a reason, an error with a hint and an intended kill are accepted."""
    assert find_violations(seen) == []


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (replace(WELL, expected=frozenset((3,))), "status 0, expected [3]"),
        (replace(WELL, status=-11, expected=frozenset((-11,))), "status -11 is not an exit status of onnxgate"),
        (replace(WELL, late=True), "the command did not end"),
        (replace(WELL, report=None), "passed without a report"),
        (replace(WELL, report={**TRUTH, "counts": {"ran": 0}}), "passed with different counts"),
        (replace(WELL, report={**TRUTH, "cells": []}), "passed with different cells"),
        (replace(OPEN, report={**UNDECIDED, "exit": 0}), "the exit status is 3, but 0 in the report"),
        (replace(OPEN, report={**UNDECIDED, "undecided": []}), "the verdict is undecided, but no check is"),
        (replace(OPEN, report={**UNDECIDED, "undecided": [{**UNDONE, "reason": " "}]}), "1 undecided checks without"),
        (
            replace(OPEN, report={**UNDECIDED, "undecided": [{**UNDONE, "runtime": "onnxruntime 1.19.2"}]}),
            "undecided checks that are not listed",
        ),
        (replace(WELL, err="Traceback (most recent call last):\n"), "a traceback"),
        (replace(WELL, err="Exception ignored in: <x>\n"), "a traceback"),
        (replace(ERROR, err="error: this is a bug in onnxgate: x\nhint: y\n"), "the message reports a bug in onnxgate"),
        (replace(ERROR, err="error: one\nerror: two\nhint: three\n"), "2 errors"),
        (replace(ERROR, err=""), "without a message"),
        (replace(ERROR, err="error: no config\n"), "an error without a hint"),
        (replace(ERROR, err=f"error: {'x' * 500}\nhint: y\n"), "longer than 400 characters"),
        (replace(WELL, lock=(LOCK, LOCK.replace("sha256", "sha257"))), "the lock is neither"),
        (replace(WELL, lock=(LOCK, LOCK[:200])), "the lock is neither"),
        (replace(WELL, lock=(LOCK, "version = ["), locks=("version = [",)), "the lock is damaged"),
        (replace(WELL, lock=(LOCK, None)), "the lock was deleted"),
        (replace(WELL, left=("python worker",)), "processes that are still running"),
        (replace(WELL, scratch=("onnxgate-1",)), "in the folder for temporary files"),
        (replace(WELL, strays=(".onnxgate.lock.1.tmp",)), "next to the user's files"),
        (replace(WELL, unread=("report.json",)), "incomplete outputs"),
    ],
)
def test_violations_are_detected(seen: FaultOutcome, expected: str) -> None:
    """Each violation is detected and named."""
    assert any(expected in problem for problem in find_violations(seen)), find_violations(seen)


def test_probe_of_tempfile_is_not_a_leftover(tmp_path: Path) -> None:
    """SIGKILL between two lines of `tempfile` leaves a file of 4 bytes, which onnxgate did not create."""
    contents = {"x29wpufs": b"blat", "a_b_c_d_": b"", "x29wpuft": b"blat\n", "x29": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "abcdefgh").mkdir()

    assert sorted(find_leftovers(tmp_path)) == ["abcdefgh", "x29", "x29wpuft"]
