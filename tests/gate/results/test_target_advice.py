"""Releases in the fixes of findings that concern only some releases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from onnxgate.core.report import Finding
from onnxgate.gate.results.target_advice import name_working_releases
from tests.harness.reports.sample_reports import finding

LOCKED = tuple(f"onnxruntime {release}" for release in ("1.18.1", "1.20.1", "1.21.1", "1.22.0"))
OLD, NEW = LOCKED[:2], LOCKED[2:]
REPLACE = "change the part of the model that the runtime rejects"


def fixes(*findings: Finding, locked: Sequence[str] = LOCKED) -> list[str]:
    """Return the fixes of findings about one model after the releases were named."""
    return [it.fix for it in name_working_releases(findings, {"m.onnx": locked})]


@pytest.mark.parametrize(
    ("fix", "runtimes", "expected"),
    [
        ("cast the input", OLD, "cast the input, or narrow the target to >=1.21"),
        ("raise the target to 1.19.0", OLD, "raise the target to 1.21"),
        ("raise the target to 1.30.0", OLD, "raise the target to 1.30.0"),
        ("export again, or raise `runtime` of the target", OLD, "export again, or raise the target to 1.21"),
        (
            f"{REPLACE}, or narrow the target to releases that load the model",
            OLD,
            f"{REPLACE}, or narrow the target to >=1.21",
        ),
        (
            "narrow the target to releases without this difference, or set `tolerance`",
            OLD,
            "narrow the target to >=1.21, or set `tolerance`",
        ),
        (f"{REPLACE}, or narrow the target to releases that load the model", LOCKED, REPLACE),
        ("narrow the target to releases without this difference, or set `tolerance`", LOCKED, "set `tolerance`"),
        (
            f"{REPLACE}, or narrow the target to releases that load the model",
            NEW,
            f"{REPLACE}, or narrow the target to <=1.20.1",
        ),
        ("cast the input", NEW, "cast the input"),
        ("cast the input", LOCKED, "cast the input"),
        ("cast the input", (), "cast the input"),
    ],
)
def test_fixes_name_the_releases_without_the_fault(fix: str, runtimes: tuple[str, ...], expected: str) -> None:
    """A target that cannot be narrowed is not offered, and one that can is offered with its first release."""
    assert fixes(finding(fix=fix, runtimes=runtimes)) == [expected]


def test_the_release_has_no_other_error() -> None:
    """Following one fix does not lead to the next error of the same model."""
    first = finding(fix="raise the target to 1.19.0", runtimes=OLD[:1], works_since="1.19.0")
    second = finding(fix="raise the target to 1.21.0", runtimes=OLD, works_since="1.21.0")
    everywhere = finding(fix="export again", runtimes=())

    assert fixes(first, second) == ["raise the target to 1.21.0"] * 2
    assert fixes(first, second, everywhere) == [first.fix, second.fix, everywhere.fix]
    assert fixes(first, finding(fix="x", runtimes=OLD, ignored="known"))[0] == "raise the target to 1.19.0"


def test_findings_that_do_not_depend_on_releases_stay() -> None:
    """Notes, findings about several engines, and findings of other stages name no release."""
    note = finding(fix="cast the input", runtimes=OLD, level="note")
    both = finding(fix="cast the input", runtimes=(*OLD, "openvino 2024.1.0"))
    budget = finding(fix="cast the input", runtimes=OLD, stage="budget")

    assert fixes(note, both, budget) == ["cast the input"] * 3
    assert fixes(finding(fix="cast the input", runtimes=OLD), locked=()) == ["cast the input"]
