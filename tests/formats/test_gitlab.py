"""GitLab code quality report: a JSON array of valid issues with unique fingerprints."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from onnxgate.core.report import Report, ReportedPlace
from onnxgate.formats import gitlab
from tests.harness.reports.hostile_reports import REPORTS
from tests.harness.reports.sample_reports import finding, not_done, report, sample

# Source: GitLab's documentation of code quality, "Code Quality report format".
TEXT = {"type": "string", "minLength": 1}
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "additionalProperties": False,
        "properties": {
            "description": TEXT,
            "check_name": TEXT,
            "fingerprint": TEXT,
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "minLength": 1, "not": {"pattern": r"^\./"}},
                    "lines": {"type": "object", "properties": {"begin": {"type": "integer", "minimum": 1}}},
                },
            },
        },
    },
}


def issues(judged: Report) -> list[dict[str, Any]]:
    """Return the issues in the formatted report."""
    read: list[dict[str, Any]] = json.loads(gitlab.format(judged))
    return read


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
@given(judged=REPORTS)
def test_any_text_is_valid(judged: Report) -> None:
    """Every active finding is an issue with its own fingerprint, whatever text the model contains."""
    got = issues(judged)
    spoken = [finding for finding in judged.findings if not finding.ignored]
    jsonschema.validate(got, SCHEMA)

    assert len({each["fingerprint"] for each in got}) == len(got)
    assert len(spoken) <= len(got) <= len(spoken) + len(judged.undecided)
    assert bool(judged.undecided) <= any(each["check_name"] == "undecided" for each in got)


def test_the_sample_from_the_root_of_git() -> None:
    """Paths are relative to the git root, severe issues come first, and ignored findings are omitted."""
    got = issues(sample())

    assert got[0]["location"] == {"path": "ml/export/classifier.py", "lines": {"begin": 31}}
    assert [each["severity"] for each in got] == ["critical"] * 4 + ["minor", "minor", "info", "major", "major"]
    assert "input-passthrough" not in {each["check_name"] for each in got}


@pytest.mark.parametrize(
    ("place", "model", "expected"),
    [
        (ReportedPlace(path="m.onnx"), "m.onnx", {"path": "m.onnx", "lines": {"begin": 1}}),
        (ReportedPlace(path=""), "m.onnx", {"path": "m.onnx", "lines": {"begin": 1}}),
        (ReportedPlace(path=""), "", {"path": "onnxgate.lock", "lines": {"begin": 1}}),
        (ReportedPlace(path="./e.py", line=3), "m.onnx", {"path": "e.py", "lines": {"begin": 3}}),
    ],
)
def test_places(place: ReportedPlace, model: str, expected: dict[str, Any]) -> None:
    """Every issue has a file and a line."""
    assert [expected] == [issue["location"] for issue in issues(report(findings=(finding(place=place, model=model),)))]


def test_the_same_finding_keeps_its_fingerprint() -> None:
    """A different message, line or runtime is the same issue in the next merge request; a different node is another
    one.
    """
    place = ReportedPlace(path="onnxgate.lock", line=99)
    same = [finding(fingerprint="f"), finding("other words", fingerprint="f", place=place)]
    prints = [
        issues(report(findings=(each,)))[0]["fingerprint"] for each in (*same, finding(fingerprint="f", node="n"))
    ]

    assert prints[0] == prints[1] != prints[2]


def test_two_findings_of_one_fingerprint_are_two_issues() -> None:
    """GitLab shows only one of several issues with the same fingerprint."""
    got = issues(report(findings=(finding("a", fingerprint="f"), finding("b", fingerprint="f"))))

    assert [each["description"] for each in got] == ["m.onnx: a", "m.onnx: b"]
    assert got[0]["fingerprint"] != got[1]["fingerprint"]


def test_incomplete_check_is_an_issue() -> None:
    """An incomplete check is an issue, so that the merge request does not look clean."""
    (got,) = issues(report(verdict="undecided", exit=3, undecided=not_done(hint="install one")))

    assert got["description"] == "runtime: m.onnx: no interpreter was found; hint: install one"
    assert (got["check_name"], got["severity"]) == ("undecided", "major")
