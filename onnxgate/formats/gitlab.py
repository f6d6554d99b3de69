"""The report as GitLab's code quality: a JSON array that a merge request compares with that of its target branch.

What the config ignores is left out, since GitLab knows no suppression; what could not be done is an issue of its own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from onnxgate.formats import phrases
from onnxgate.formats.escape import visible
from onnxgate.formats.json import encoded
from onnxgate.report import Finding, Report

SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}
UNDECIDED = "major"
LOCK = "onnxgate.lock"
"""Where an issue stands that names no file."""

Object = dict[str, Any]


def format(report: Report) -> str:
    """An array, the worst first; every fingerprint in it is unique, as GitLab drops what has none of its own."""
    issues: dict[str, Object] = {}
    for seed, issue in (*_findings(report), *_undecided(report)):
        fingerprint, again = _digest(seed), 1
        while fingerprint in issues:
            again += 1
            fingerprint = _digest(f"{seed}|{again}")
        issues[fingerprint] = {**issue, "fingerprint": fingerprint}
    return encoded(list(issues.values()))


def _digest(seed: str) -> str:
    from hashlib import sha256

    return sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _findings(report: Report) -> Iterator[tuple[str, Object]]:
    for finding in phrases.spoken(report):
        path = finding.place.path or finding.model or LOCK
        said = f"{phrases.sentence(finding)}{_fix(finding)}"
        issue = _issue(report, said, finding.rule, SEVERITIES[finding.level], path, finding.place.line)
        yield f"{finding.rule}|{finding.model}|{finding.node}|{finding.fingerprint}", issue


def _fix(finding: Finding) -> str:
    return f"; fix: {phrases.short(finding.fix, phrases.LONG)}" if finding.fix else ""


def _undecided(report: Report) -> Iterator[tuple[str, Object]]:
    for gap in phrases.gaps(report.undecided):
        hint = f"; hint: {gap.hint}" if gap.hint else ""
        said = f"{gap.about(report)}: {phrases.short(gap.reason, phrases.LONG)}{hint}"
        path = gap.models[0] if gap.models else LOCK
        seed = "|".join(("undecided", *gap.stages, *gap.models, *gap.runtimes, gap.reason))
        yield seed, _issue(report, said, "undecided", UNDECIDED, path, 0)


def _issue(report: Report, said: str, name: str, severity: str, path: str, line: int) -> Object:
    """A file without lines is shown from its start."""
    return {
        "description": visible(said),
        "check_name": visible(name),
        "severity": severity,
        "location": {"path": posixpath.normpath(phrases.from_root(report, path)), "lines": {"begin": max(1, line)}},
    }
