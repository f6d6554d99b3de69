"""SARIF logs are valid, have locations that GitHub shows, respect GitHub's limits, and contain all findings."""

from __future__ import annotations

import functools
import gzip
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from onnxgate import rules
from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Finding, Report, ReportedModel, ReportedPlace
from onnxgate.formats import sarif, wording
from tests.harness.reports.hostile_reports import ATTACKS, REPORTS
from tests.harness.reports.sample_reports import finding, not_done, report, sample

SCHEMA = Path(__file__).parents[1] / "data" / "sarif-2.1.0.json"
URI = re.compile(r"(file:///$|(file:///)?([A-Za-z0-9._~/-]|%[0-9A-F]{2})+)")  # `file:///` is the root folder
BINARY = ReportedPlace(path="m.onnx")
few = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=25)


@functools.cache
def validator() -> Any:
    """Return a validator for the official schema."""
    return jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def run(judged: Report) -> dict[str, Any]:
    """Return the only run of the formatted report."""
    log = json.loads(sarif.format(judged))
    (only,) = log["runs"]
    return only


def result(one: Finding, **changes: Any) -> dict[str, Any]:
    """Return the result for one finding."""
    (only,) = run(report(findings=(one,), verdict="fail", exit=1, **changes))["results"]
    return only


@pytest.mark.parametrize(
    "judged",
    [sample(), report(), report(verdict="undecided", exit=3, undecided=not_done(), skipped=not_done(["a", "b"]))],
    ids=["the sample", "an empty pass", "undecided"],
)
def test_the_schema_of_the_standard(judged: Report) -> None:
    """The log is valid for the official schema."""
    assert list(validator().iter_errors(json.loads(sarif.format(judged)))) == []


@few
@given(judged=REPORTS)
def test_log_is_valid_for_any_text(judged: Report) -> None:
    """The log and all of its URIs are valid, whatever text the model contains."""
    text = sarif.format(judged)
    uris = re.findall(r'"uri": "([^"]*)"', text)

    assert list(validator().iter_errors(json.loads(text))) == []
    assert [uri for uri in uris if not URI.fullmatch(uri)] == []
    assert not re.search(r'"text": "[^"]*\]\(', text)


@few
@given(judged=REPORTS)
def test_every_finding_is_included(judged: Report) -> None:
    """Every active finding is in a result with its rule and level, and every ignored one in a notification."""
    got = run(judged)
    notes = {notification["message"]["text"] for notification in got["invocations"][0]["toolExecutionNotifications"]}
    for one in judged.findings:
        output = escape_unprintable(wording.render_sentence(one)).replace("](", "] (")
        if one.ignored:
            assert any(output in note for note in notes)
        else:
            assert any(
                output in result["message"]["text"]
                and (result["ruleId"], result["level"]) == (sarif.rule_identifier(one.rule), one.level)
                for result in got["results"]
            )


def test_a_line_of_text_is_the_anchor() -> None:
    """A result is located at the line of the source, relative to the git root; the model and node are additional
    locations.
    """
    got = run(sample())["results"][0]
    where = got["locations"][0]

    assert where["physicalLocation"] == {
        "artifactLocation": {"uri": "ml/export/classifier.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 31, "endLine": 33},
    }
    assert where["logicalLocations"][0]["name"] == "/head/Reshape"
    assert [location["physicalLocation"]["artifactLocation"]["uri"] for location in got["relatedLocations"]] == [
        "ml/models/classifier.onnx"
    ]
    assert got["partialFingerprints"] == {
        "onnxgate/v1": "ad10cc94f177ff90",
        "primaryLocationLineHash": "ad10cc94f177ff90:1",
    }


def hashes(*findings: Finding) -> list[str]:
    """Return the fingerprint that GitHub reads of each result."""
    results = run(report(findings=findings))["results"]
    return [each["partialFingerprints"]["primaryLocationLineHash"] for each in results]


def test_an_alert_survives_a_new_export() -> None:
    """A new export moves the row of a model in the lock and changes its text; GitHub keeps the alert."""
    before = finding(fingerprint="0123456789abcdef", place=ReportedPlace(path="onnxgate.lock", line=7))
    after = replace(before, message="does not load: Gelu(20)", place=ReportedPlace(path="onnxgate.lock", line=93))

    assert hashes(before) == hashes(after) == ["0123456789abcdef:1"]


def test_an_alert_for_several_findings_survives_the_repair_of_one() -> None:
    """Findings of one rule on one line are one alert, which keeps its identity as long as the first finding exists."""
    several = [finding(f"no kernel for {n}", node=f"n{n}", fingerprint=f"{n:016x}") for n in range(3)]

    assert hashes(*several) == hashes(*several[:2]) == ["0000000000000000:1"]


def test_equal_fingerprints_are_numbered() -> None:
    """A report from elsewhere may repeat a fingerprint, or contain one that GitHub does not accept."""
    same = [finding(fingerprint="0123456789abcdef", place=ReportedPlace(path="a.py", line=n)) for n in (1, 2)]
    (invalid,) = hashes(finding(fingerprint="x:1"))

    assert hashes(*same) == ["0123456789abcdef:1", "0123456789abcdef:2"]
    assert re.fullmatch(r"[0-9a-f]{16}:1", invalid)


def test_binary_has_our_fingerprint_and_no_region() -> None:
    """Two findings in one binary file are two alerts."""
    several = (
        finding(place=BINARY, fingerprint="a"),
        finding("is broken", place=BINARY, fingerprint="b"),
    )
    got = run(report(findings=several))["results"]
    hashes = [each["partialFingerprints"]["primaryLocationLineHash"] for each in got]

    assert [each["locations"][0]["physicalLocation"] for each in got] == [
        {"artifactLocation": {"uri": "m.onnx", "uriBaseId": "%SRCROOT%"}}
    ] * 2
    assert len(set(hashes)) == 2
    assert all(re.fullmatch(r"[0-9a-f]{16}:1", digest) for digest in hashes)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (ReportedPlace(path="onnxgate.lock"), {"startLine": 1, "endLine": 1}),
        (ReportedPlace(path="onnxgate.lock", line=7), {"startLine": 7, "endLine": 7}),
        (ReportedPlace(path="onnxgate.lock", line=7, end_line=3), {"startLine": 7, "endLine": 7}),
        (ReportedPlace(path="e.py", line=7, end_line=9), {"startLine": 7, "endLine": 9}),
        (ReportedPlace(path="m.onnx"), None),
        (ReportedPlace(path="other.onnx"), None),
    ],
)
def test_regions(place: ReportedPlace, expected: dict[str, int] | None) -> None:
    """A text file without a line is shown from its start; a model file has no region."""
    models = tuple(ReportedModel(path=name, sha256="") for name in ("m.onnx", "other.onnx"))
    got = result(finding(place=place), models=models)["locations"][0]["physicalLocation"]

    assert got.get("region") == expected


def test_finding_without_a_place_is_at_its_model_or_the_lock() -> None:
    """A finding without a location is assigned to its model or the lock, because GitHub rejects results without one."""
    nowhere = ReportedPlace(path="")

    assert sarif.locate_finding(finding(place=nowhere), report()).uri == "m.onnx"
    assert sarif.locate_finding(finding(place=nowhere, model=""), report()).uri == "onnxgate.lock"


def test_findings_of_one_rule_on_one_line_are_one_result() -> None:
    """GitHub treats these findings as one alert, so its message lists all of them, with their shared fix once."""
    several = tuple(finding(f"no kernel for {n}", node=f"n{n}", fix="cast it", fingerprint=f"{n}") for n in range(3))
    text = result_of(several)["message"]["text"]

    assert text == (
        "m.onnx: no kernel for 0 (node `n0`)\nm.onnx: no kernel for 1 (node `n1`)\n"
        "m.onnx: no kernel for 2 (node `n2`)\nfix: cast it"
    )
    assert [location["message"]["text"] for location in result_of(several)["relatedLocations"]] == [
        "node `n0`",
        "node `n1`",
        "node `n2`",
    ]


def result_of(findings: tuple[Finding, ...]) -> dict[str, Any]:
    """Return the single result for several findings."""
    (only,) = run(report(findings=findings, verdict="fail", exit=1))["results"]
    return only


def test_other_rules_levels_and_lines_are_not_merged() -> None:
    """Only findings with the same rule, level and line are merged."""
    place = ReportedPlace(path="onnxgate.lock", line=8)
    several = (finding(), finding(rule="run-failed"), finding(level="note"), finding(place=place))

    assert len(run(report(findings=several))["results"]) == 4


def test_many_on_one_line_are_counted() -> None:
    """A merged message lists a limited number of findings and counts the others."""
    several = tuple(finding(f"no kernel for {n}") for n in range(50))

    assert result_of(several)["message"]["text"].endswith("… and 30 more `load-failed` findings; see the report")


def test_ignored_finding_is_a_notification() -> None:
    """GitHub opens alerts even for suppressed results, so an ignored finding is only a notification."""
    got = run(report(findings=(finding(ignored="moves in March"),)))
    (note,) = got["invocations"][0]["toolExecutionNotifications"]

    assert got["results"] == []
    assert got["tool"]["driver"]["rules"] == []
    assert note["level"] == "note"
    assert note["message"]["text"] == "load-failed: m.onnx: does not load\nignored: moves in March"


@pytest.mark.parametrize(("status", "level", "success"), [(3, "error", False), (1, "warning", True)])
def test_incomplete_check_is_a_notification(status: int, level: str, success: bool) -> None:
    """An incomplete check is an error notification if it makes the verdict undecided."""
    incomplete = not_done(hint="install one")
    (invocation,) = run(report(verdict="undecided", exit=status, undecided=incomplete))["invocations"]
    (said,) = invocation["toolExecutionNotifications"]

    assert (invocation["executionSuccessful"], invocation["exitCode"], said["level"]) == (success, status, level)
    assert said["message"]["text"] == "runtime: m.onnx: no interpreter was found\nhint: install one"


def numbered(many: int) -> Report:
    """Return a report with that many findings on separate lines; every third one is an error."""
    return report(
        findings=tuple(
            finding(f"{n}", level="note" if n % 3 else "error", place=ReportedPlace(path="onnxgate.lock", line=n + 1))
            for n in range(many)
        )
    )


def test_more_results_than_github_takes() -> None:
    """Beyond GitHub's result limit the most severe findings are kept, and the others are counted."""
    got = run(numbered(30_000))
    levels = [result["level"] for result in got["results"]]
    (said,) = got["invocations"][0]["toolExecutionNotifications"]

    assert levels == ["error"] * 10_000 + ["note"] * 15_000
    assert said["message"]["text"] == "5000 more findings; see the report"
    assert list(validator().iter_errors({"version": "2.1.0", "runs": [{**got, "results": got["results"][:50]}]})) == []


def test_more_bytes_than_github_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are omitted and counted until the compressed file fits GitHub's limit."""
    monkeypatch.setattr(sarif, "MAX_COMPRESSED_BYTES", 6_000)
    text = sarif.format(numbered(3_000))
    (said,) = json.loads(text)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    kept = len(json.loads(text)["runs"][0]["results"])

    assert len(gzip.compress(text.encode())) <= 6_000
    assert kept > 100
    assert said["message"]["text"] == f"{3_000 - kept} more findings; see the report"


def test_rule_descriptions_meet_githubs_limits() -> None:
    """Rule descriptions are within GitHub's limits, and have a help text, a severity, and few tags."""
    for described in sarif.describe_rules(rules.by_id):
        assert 0 < len(described["shortDescription"]["text"]) <= 255
        assert 0 < len(described["fullDescription"]["text"]) <= 1024
        assert described["help"]["markdown"]
        assert "##" not in described["help"]["text"]
        assert described["properties"]["problem.severity"] in ("error", "warning", "recommendation")
        assert len(described["properties"]["tags"]) <= 10


def test_a_rule_that_this_release_does_not_know() -> None:
    """A merged report may contain an unknown rule; it is described as such and not omitted."""
    driver = run(report(findings=(finding(rule="of-tomorrow"),)))["tool"]["driver"]

    assert [rule["id"] for rule in driver["rules"]] == ["of-tomorrow"]
    assert "not a rule of this version" in driver["rules"][0]["help"]["text"]


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each != "\ud800"])
def test_a_uri_names_the_file(attack: str) -> None:
    """The percent-encoded URI decodes to the file's path below the git root, whatever bytes it contains."""
    uri = sarif.path_to_uri(report(folder="a b"), f"x{attack}y.onnx")

    assert URI.fullmatch(uri)
    assert re.sub(rb"/+", b"/", f"a b/x{attack}y.onnx".encode("utf-8", "surrogateescape")) == unquote_to_bytes(uri)


@pytest.mark.parametrize(
    ("folder", "path", "expected"),
    [
        ("", "m.onnx", "m.onnx"),
        ("ml", "../shared/m.onnx", "shared/m.onnx"),
        ("ml", "./m.onnx", "ml/m.onnx"),
        ("", "a:b.onnx", "a%3Ab.onnx"),
        ("", "/data/m 1.onnx", "file:///data/m%201.onnx"),
        ("", "//host/m.onnx", "file:///host/m.onnx"),
    ],
)
def test_uris(folder: str, path: str, expected: str) -> None:
    """Paths are relative to the git root and normalized; a file outside of the working directory is absolute."""
    assert expected == sarif.path_to_uri(report(folder=folder), path)


def test_the_category_is_left_to_the_upload() -> None:
    """An id in the file would override the input `category` of GitHub's upload action."""
    assert "automationDetails" not in run(report(folder="a b/c"))


def test_links_in_messages_are_text() -> None:
    """`[text](target)` would be a link in SARIF, so it is escaped."""
    assert result(finding("see [x](https://example.com)"))["message"]["text"] == "m.onnx: see [x] (https://example.com)"


def test_unknown_rule_is_not_a_link() -> None:
    """A report from another release may contain any rule name, which must not become a link."""
    text = sarif.format(report(findings=(finding(rule="![x](https://example.com)"),)))

    assert not re.search(r'"text": "[^"]*\]\(', text)
