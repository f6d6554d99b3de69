"""Write the report in the format SARIF 2.1.0 for GitHub code scanning.

If possible, the location of a result is a line of a text file, and the model and its node are related locations. GitHub
shows a result without a line, for example about a `.onnx` file, as an alert for the whole file.

GitHub recognizes an alert by its rule and by the fingerprint `primaryLocationLineHash`. GitHub's upload action would
compute this fingerprint from the text of the line, which changes with each export if the line contains the SHA-256 of a
model in the lock. Source: github/codeql-action, src/fingerprints.ts.

The category of a run is not included, because it would override the input `category` of GitHub's upload action.
"""

from __future__ import annotations

import gzip
import itertools
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.findings import Stage
from onnxgate.core.report import Finding, NotDone, Report
from onnxgate.core.report_json import encode_json
from onnxgate.core.text import LONG_LIMIT, pluralize, truncate
from onnxgate.formats import wording
from onnxgate.rules import by_id
from onnxgate.rules.definition import AnyRule

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ResultLocation:
    """Location of a SARIF result: the URI of a file, and a range of lines in the file. Line 0 means the whole file."""

    uri: str
    line: int
    end_line: int = 0

    def location(self, finding: Finding) -> JsonObject:
        """Return the location as SARIF data, including the node that the finding is about."""
        physical: JsonObject = {"artifactLocation": _artifact_location(self.uri)}
        if self.line:
            physical["region"] = {"startLine": self.line, "endLine": max(self.line, self.end_line)}
        return {"physicalLocation": physical, **_logical_location(finding.model, finding.node)}


def locate_finding(finding: Finding, report: Report) -> ResultLocation:
    """Return the location of a finding. In a text file, it is the first line if the finding has no line."""
    place = finding.place
    path = place.path or finding.model or wording.DEFAULT_PATH
    binary = path == finding.model or path in {model.path for model in report.models}
    return ResultLocation(path_to_uri(report, path), place.line or (0 if binary else 1), place.end_line)


def related_locations(findings: Iterable[Finding], place: ResultLocation, report: Report) -> list[JsonObject]:
    """Return the models and nodes that the findings are about as SARIF locations.

    A single model is omitted if its file is already the location of the result.
    """
    subjects = dict.fromkeys((finding.model, finding.node) for finding in findings if finding.model)
    named = [(path_to_uri(report, model), model, node) for model, node in subjects]
    return [
        {
            "id": number,
            "physicalLocation": {"artifactLocation": _artifact_location(name)},
            "message": render_text([f"node `{truncate(node)}`" if node else "model"]),
            **_logical_location(model, node),
        }
        for number, (name, model, node) in enumerate(named, 1)
        if name != place.uri or len(named) > 1
    ]


def _logical_location(model: str, node: str) -> JsonObject:
    if not node:
        return {}
    name = escape_unprintable(truncate(node))
    return {
        "logicalLocations": [{"name": name, "fullyQualifiedName": f"{escape_unprintable(truncate(model))}::{name}"}]
    }


def render_text(lines: Iterable[str]) -> JsonObject:
    """Return lines of text as a SARIF message. `[a](b)` is changed so that it is not rendered as a link."""
    return {"text": "\n".join(escape_unprintable(line) for line in lines).replace("](", "] (")}


def _artifact_location(name: str) -> JsonObject:
    return {"uri": name} if name.startswith("file:") else {"uri": name, "uriBaseId": "%SRCROOT%"}


def path_to_uri(report: Report, path: str) -> str:
    """Return the URI of a path relative to the root of the git repository. Absolute paths become `file:` URIs."""
    if path.startswith("/"):
        return f"file://{_percent_encode(posixpath.normpath('/' + path.lstrip('/')))}"
    return _percent_encode(posixpath.normpath(wording.path_from_root(report, path)).lstrip("/"))


def _percent_encode(path: str) -> str:
    try:
        data = path.encode("utf-8", "surrogateescape")  # the bytes of the file name
    except UnicodeEncodeError:
        data = path.encode("utf-8", "backslashreplace")
    return quote(data)


MAX_DESCRIPTION = 1024
"""Maximum length of the description of a rule in characters. Source: GitHub's SARIF documentation for code scanning."""
MAX_RULE_ID = 255
SEVERITIES = {"error": "error", "warning": "warning", "note": "recommendation"}


def rule_identifier(rule: str) -> str:
    """Return the name of a rule as a SARIF rule ID, escaped and limited in length."""
    return escape_unprintable(rule)[:MAX_RULE_ID]


def describe_rules(rules: Iterable[str]) -> list[JsonObject]:
    """Return the SARIF descriptions of rules. Rules that this release of onnxgate does not know are included."""
    return [_describe_known_rule(by_id[name]) if name in by_id else _describe_unknown_rule(name) for name in rules]


def _describe_known_rule(rule: AnyRule) -> JsonObject:
    before, _, _ = rule.page.partition("\n## ")
    return {
        "id": rule.id,
        "shortDescription": {"text": " ".join(rule.summary.split())[:MAX_DESCRIPTION]},
        "fullDescription": {"text": " ".join(before.split())[:MAX_DESCRIPTION]},
        "helpUri": wording.rule_url(rule.id),
        "help": {"text": rule.page.replace("## ", ""), "markdown": rule.page},
        "defaultConfiguration": {"level": rule.level.value},
        "properties": {
            "precision": "high" if rule.stage is Stage.SUPPORT else "very-high",  # predictions are less precise
            "problem.severity": SEVERITIES[rule.level.value],
            "tags": ["compatibility", "onnx", rule.stage.value],
        },
    }


def _describe_unknown_rule(name: str) -> JsonObject:
    description = render_text([f"`{truncate(escape_unprintable(name))}` is not a rule of this version of onnxgate"])
    return {
        "id": rule_identifier(name),
        "shortDescription": description,
        "fullDescription": description,
        "help": description,
        "properties": {"precision": "high", "problem.severity": "warning", "tags": ["compatibility", "onnx"]},
    }


SCHEMA_URL = "https://json.schemastore.org/sarif-2.1.0.json"
MAX_RESULTS = 25_000
"""Maximum number of results in a SARIF file. Source: GitHub's SARIF documentation for code scanning."""
MAX_COMPRESSED_BYTES = 10_000_000
"""Maximum size of a compressed SARIF file in bytes. Source: GitHub's SARIF documentation for code scanning."""
MAX_FINDINGS_PER_RESULT = 20
"""Maximum number of findings that a SARIF result lists; further findings of the rule on the line are only counted."""
MAX_NOTIFICATIONS = 1000
"""Maximum number of SARIF notifications of one kind, such as `skipped`; further notifications are only counted."""
NOTIFICATION_KINDS = {
    "undecided": "A selected check that could not be completed",
    "skipped": "A check that was skipped",
    "ignored": "A finding that the config ignores",
    "left-out": "Findings omitted because of GitHub's size limits",
    "remark": "Additional information",
}

_FINGERPRINT = re.compile(r"[0-9a-f]{16}")

FindingGroup = tuple[ResultLocation, list[Finding]]


def format(report: Report) -> str:
    """Render the report as SARIF, with the worst results first.

    Results beyond GitHub's limits are omitted; a notification states their number.
    """
    by_result: dict[object, FindingGroup] = {}
    for finding in wording.list_active_findings(report):
        place = locate_finding(finding, report)
        alone = (finding.fingerprint, finding.message) if place.line == 0 else ()
        by_result.setdefault((finding.rule, finding.level, place, *alone), (place, []))[1].append(finding)
    groups = list(by_result.values())
    most = min(len(groups), MAX_RESULTS)
    while True:
        text = encode_json(_render_log(report, groups, most))
        data = text.encode()
        fits = len(data) <= MAX_COMPRESSED_BYTES or len(gzip.compress(data, mtime=0)) <= MAX_COMPRESSED_BYTES
        if fits or not most:
            return text
        most //= 2


def _render_log(report: Report, groups: Sequence[FindingGroup], most: int) -> JsonObject:
    shown = groups[:most]
    rules = sorted({findings[0].rule for _, findings in shown})
    meanings = {kind: {"text": meaning} for kind, meaning in NOTIFICATION_KINDS.items()}
    driver = {
        "name": "onnxgate",
        "version": escape_unprintable(report.onnxgate) or "0",
        "informationUri": wording.HOME_URL,
        "rules": describe_rules(rules),
        "notifications": [
            {"id": kind, "shortDescription": meaning, "fullDescription": meaning, "help": meaning}
            for kind, meaning in meanings.items()
        ],
    }
    artifacts = [
        {
            "location": _artifact_location(path_to_uri(report, model.path)),
            "roles": ["analysisTarget"],
            **({"hashes": {"sha-256": escape_unprintable(model.sha256)}} if model.sha256 else {}),
        }
        for model in dict.fromkeys(report.models)
    ]
    counts: Counter[str] = Counter()
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [_describe_invocation(report, sum(len(findings) for _, findings in groups[most:]))],
        "artifacts": artifacts,
        "results": [_render_result(report, place, findings, rules, counts) for place, findings in shown],
    }
    return {"$schema": SCHEMA_URL, "version": "2.1.0", "runs": [run]}


def _describe_invocation(report: Report, left_out: int) -> JsonObject:
    notifications = [_notification("left-out", "warning", [f"{pluralize(left_out, 'more finding')}; see the report"])]
    level = "error" if report.exit == 3 else "warning"
    accepted = [
        [
            f"{finding.rule}: {wording.render_sentence(finding)}",
            f"{'newly ' if finding.newly_ignored else ''}ignored: {truncate(finding.ignored)}",
        ]
        for finding in wording.list_ignored_findings(report)
    ]
    remarks = [[truncate(remark, LONG_LIMIT)] for remark in report.remarks]
    return {
        "executionSuccessful": report.exit in (0, 1),
        "exitCode": report.exit,
        "exitCodeDescription": escape_unprintable(wording.render_verdict(report)),
        "toolExecutionNotifications": [
            *(notifications if left_out else []),
            *_limit_notifications("undecided", level, _describe_gaps(report.undecided, report)),
            *_limit_notifications("skipped", "note", _describe_gaps(report.skipped, report)),
            *_limit_notifications("ignored", "note", accepted),
            *_limit_notifications("remark", "note", remarks),
        ],
    }


def _describe_gaps(items: Iterable[NotDone], report: Report) -> list[list[str]]:
    return [
        [f"{gap.about(report)}: {truncate(gap.reason, LONG_LIMIT)}", *([f"hint: {gap.hint}"] if gap.hint else [])]
        for gap in wording.merge_gaps(items)
    ]


def _limit_notifications(kind: str, level: str, messages: Sequence[Sequence[str]]) -> Iterator[JsonObject]:
    yield from (_notification(kind, level, lines) for lines in messages[:MAX_NOTIFICATIONS])
    if len(messages) > MAX_NOTIFICATIONS:
        yield _notification(kind, level, [f"{len(messages) - MAX_NOTIFICATIONS} more {kind}; see the report"])


def _notification(kind: str, level: str, lines: Sequence[str]) -> JsonObject:
    number = list(NOTIFICATION_KINDS).index(kind)
    return {"descriptor": {"id": kind, "index": number}, "level": level, "message": render_text(lines)}


def _render_result(
    report: Report,
    place: ResultLocation,
    findings: Sequence[Finding],
    rules: Sequence[str],
    counts: Counter[str],
) -> JsonObject:
    first = findings[0]
    runtimes = list(dict.fromkeys(escape_unprintable(name) for finding in findings for name in finding.runtimes))
    return {
        "ruleId": rule_identifier(first.rule),
        "ruleIndex": rules.index(first.rule),
        "level": first.level,
        "message": render_text(_result_lines(findings)),
        "locations": [place.location(first)],
        "relatedLocations": related_locations(findings[:MAX_FINDINGS_PER_RESULT], place, report),
        "partialFingerprints": _fingerprints(findings, counts),
        "properties": {"stage": escape_unprintable(first.stage), **({"runtimes": runtimes} if runtimes else {})},
    }


def _result_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield a line for each finding, followed by its fix. A fix that consecutive findings share is given once."""
    shown = findings[:MAX_FINDINGS_PER_RESULT]
    for fix, group in itertools.groupby(shown, key=lambda finding: finding.fix):
        yield from map(wording.render_sentence, group)
        if fix:
            yield f"fix: {truncate(fix, LONG_LIMIT)}"
    if len(findings) > len(shown):
        more = pluralize(len(findings) - len(shown), f"more `{findings[0].rule}` finding")
        yield f"… and {more}; see the report"


def _fingerprints(findings: Sequence[Finding], counts: Counter[str]) -> JsonObject:
    """Return the fingerprints of a SARIF result, which are onnxgate's fingerprint of its first finding.

    GitHub reads only `primaryLocationLineHash`, which has the form `<hex>:<n>`. Results with the same digest are
    numbered; `counts` contains the number of earlier results for each digest.
    """
    first = findings[0]
    digest = first.fingerprint
    if not _FINGERPRINT.fullmatch(digest):
        identity = "\0".join((first.rule, first.model, first.node, digest))
        digest = sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    counts[digest] += 1
    return {"onnxgate/v1": digest, "primaryLocationLineHash": f"{digest}:{counts[digest]}"}
