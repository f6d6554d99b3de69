"""The report as SARIF 2.1.0, as GitHub's code scanning wants it; other readers of SARIF take it too.

GitHub opens an alert for every result, also for one with a suppression (Source: github/codeql-action issue 1230): what
the config ignores is no result, and is told as a note of the run. Results on one line of one file that come from one
rule are one alert there, so that they are one result here, and nothing gets lost.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from typing import Any

from onnxgate.formats import phrases
from onnxgate.formats.escape import visible
from onnxgate.formats.json import encoded
from onnxgate.formats.sarif_places import Anchor, anchor, artifact, category, message, related
from onnxgate.formats.sarif_rules import described, identifier
from onnxgate.report import Finding, Report

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
HOME = "https://github.com/onnxgate/onnxgate"
RESULTS = 25_000
"""Of one run (Source: GitHub's documentation of SARIF for code scanning)."""
SIZE = 10_000_000
"""Bytes of the compressed file (same source)."""
TOGETHER = 20
"""Findings of one rule on one line that are said in full; the rest is counted."""
NOTIFIED = 1000
"""Notifications of one kind; the rest is counted."""
KINDS = {
    "undecided": "what was asked for and could not be done",
    "skipped": "what need not be done",
    "ignored": "a finding that the config accepts",
    "left-out": "results that do not fit",
    "remark": "what is no finding, and is to be known",
}

Object = dict[str, Any]
Group = tuple[Anchor, list[Finding]]


def format(report: Report) -> str:
    """At most as many results and bytes as GitHub takes, the worst first; what is left out is counted."""
    groups = _groups(report)
    most = min(len(groups), RESULTS)
    text = encoded(_log(report, groups, most))
    while most and _too_large(text):
        most //= 2
        text = encoded(_log(report, groups, most))
    return text


def _too_large(text: str) -> bool:
    data = text.encode()
    return len(data) > SIZE and len(gzip.compress(data, mtime=0)) > SIZE


def _groups(report: Report) -> list[Group]:
    """Findings that are one result, the worst first."""
    groups: dict[object, Group] = {}
    for finding in phrases.spoken(report):
        where = anchor(finding, report)
        alone = (finding.fingerprint, finding.message) if where.line == 0 else ()
        groups.setdefault((finding.rule, finding.level, where, *alone), (where, []))[1].append(finding)
    return list(groups.values())


def _log(report: Report, groups: Sequence[Group], most: int) -> Object:
    shown = groups[:most]
    rules = sorted({findings[0].rule for _, findings in shown})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": _driver(report, rules)},
                "automationDetails": {"id": category(report)},
                "columnKind": "unicodeCodePoints",
                "invocations": [_invocation(report, sum(len(findings) for _, findings in groups[most:]))],
                "artifacts": [artifact(report, model) for model in dict.fromkeys(report.models)],
                "results": list(_results(report, shown, rules)),
            }
        ],
    }


def _driver(report: Report, rules: Sequence[str]) -> Object:
    return {
        "name": "onnxgate",
        "version": visible(report.onnxgate) or "0",
        "informationUri": HOME,
        "rules": described(rules),
        "notifications": [_kind(kind, said) for kind, said in KINDS.items()],
    }


def _kind(kind: str, said: str) -> Object:
    text = {"text": said}
    return {"id": kind, "shortDescription": text, "fullDescription": text, "help": text}


def _invocation(report: Report, left_out: int) -> Object:
    """A closed gate is a success of the tool; no verdict is none."""
    remarks = _capped("remark", "note", [[phrases.short(each, phrases.LONG)] for each in report.remarks])
    notifications = [*_left_out(left_out), *_undone(report), *_ignored(report), *remarks]
    return {
        "executionSuccessful": report.exit in (0, 1),
        "exitCode": report.exit,
        "exitCodeDescription": visible(phrases.verdict(report)),
        "toolExecutionNotifications": notifications,
    }


def _left_out(number: int) -> Iterator[Object]:
    if number:
        yield _notification("left-out", "warning", [f"{number} more findings: the report has all"])


def _undone(report: Report) -> Iterator[Object]:
    """What was asked for and not done; an error where that is why there is no verdict."""
    level = "error" if report.exit == 3 else "warning"
    for kind, items, weight in (("undecided", report.undecided, level), ("skipped", report.skipped, "note")):
        yield from _capped(kind, weight, [list(_gap(gap, report)) for gap in phrases.gaps(items)])


def _gap(gap: phrases.Gap, report: Report) -> Iterator[str]:
    yield f"{gap.about(report)}: {phrases.short(gap.reason, phrases.LONG)}"
    if gap.hint:
        yield f"hint: {gap.hint}"


def _ignored(report: Report) -> Iterator[Object]:
    accepted = [
        [f"{one.rule}: {phrases.sentence(one)}", f"ignored: {phrases.short(one.ignored)}"]
        for one in phrases.ignored(report)
    ]
    yield from _capped("ignored", "note", accepted)


def _capped(kind: str, level: str, said: Sequence[Sequence[str]]) -> Iterator[Object]:
    yield from (_notification(kind, level, lines) for lines in said[:NOTIFIED])
    if len(said) > NOTIFIED:
        yield _notification(kind, level, [f"{len(said) - NOTIFIED} more {kind}: the report has all"])


def _notification(kind: str, level: str, lines: Sequence[str]) -> Object:
    number = list(KINDS).index(kind)
    return {"descriptor": {"id": kind, "index": number}, "level": level, "message": message(lines)}


def _results(report: Report, groups: Sequence[Group], rules: Sequence[str]) -> Iterator[Object]:
    index = {rule: number for number, rule in enumerate(rules)}
    for where, findings in groups:
        first = findings[0]
        yield {
            "ruleId": identifier(first.rule),
            "ruleIndex": index[first.rule],
            "level": first.level,
            "message": message(_said(findings)),
            "locations": [where.location(first)],
            "relatedLocations": related(findings[:TOGETHER], where, report),
            "partialFingerprints": _fingerprints(where, findings),
            "properties": {"stage": visible(first.stage), **_runtimes(findings)},
        }


def _said(findings: Sequence[Finding]) -> Iterator[str]:
    """Each in one line, with its fix below, which is said once where it is the same."""
    for finding, after in zip(findings[:TOGETHER], [*findings[1:TOGETHER], None], strict=False):
        yield phrases.sentence(finding)
        if finding.fix and (after is None or after.fix != finding.fix):
            yield f"fix: {phrases.short(finding.fix, phrases.LONG)}"
    if len(findings) > TOGETHER:
        yield f"… and {len(findings) - TOGETHER} more of `{findings[0].rule}` here: the report has all"


def _runtimes(findings: Sequence[Finding]) -> Object:
    names = dict.fromkeys(visible(name) for finding in findings for name in finding.runtimes)
    return {"runtimes": list(names)} if names else {}


def _fingerprints(where: Anchor, findings: Sequence[Finding]) -> Object:
    """GitHub's own is made by the upload of what stands on the line, and by us only where there is no line."""
    from hashlib import sha256

    identity = "\0".join(sorted(f"{one.rule}|{one.model}|{one.node}|{one.fingerprint}" for one in findings))
    digest = sha256(identity.encode("utf-8", "backslashreplace")).hexdigest()[:16]
    own = findings[0].fingerprint if len(findings) == 1 else ""
    prints = {"onnxgate/v1": visible(own) or digest}
    return prints if where.line else {**prints, "primaryLocationLineHash": f"{digest}:1"}
