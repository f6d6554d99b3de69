"""The report as GitLab's code quality: a JSON array that a merge request compares with that of its target branch.

What the config ignores is left out, since GitLab knows no suppression; what could not be done is an issue of its own.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Finding, Report
from onnxgate.core.report_json import encode_json
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats import wording

SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}
UNDECIDED_SEVERITY = "major"
DEFAULT_PATH = "onnxgate.lock"
"""Where an issue stands that names no file."""

JsonObject = dict[str, Any]


def format(report: Report) -> str:
    """An array, the worst first; every fingerprint in it is unique, as GitLab drops what has none of its own."""
    issues: dict[str, JsonObject] = {}
    for seed, issue in (*_finding_issues(report), *_undecided_issues(report)):
        fingerprint, again = _fingerprint(seed), 1
        while fingerprint in issues:
            again += 1
            fingerprint = _fingerprint(f"{seed}|{again}")
        issues[fingerprint] = {**issue, "fingerprint": fingerprint}
    return encode_json(list(issues.values()))


def _fingerprint(seed: str) -> str:
    from hashlib import sha256

    return sha256(seed.encode("utf-8", "backslashreplace")).hexdigest()[:32]


def _finding_issues(report: Report) -> Iterator[tuple[str, JsonObject]]:
    for finding in wording.list_active_findings(report):
        path = finding.place.path or finding.model or DEFAULT_PATH
        said = f"{wording.render_sentence(finding)}{_fix_suffix(finding)}"
        issue = _render_issue(report, said, finding.rule, SEVERITIES[finding.level], path, finding.place.line)
        yield f"{finding.rule}|{finding.model}|{finding.node}|{finding.fingerprint}", issue


def _fix_suffix(finding: Finding) -> str:
    return f"; fix: {truncate(finding.fix, LONG_LIMIT)}" if finding.fix else ""


def _undecided_issues(report: Report) -> Iterator[tuple[str, JsonObject]]:
    for gap in wording.merge_gaps(report.undecided):
        hint = f"; hint: {gap.hint}" if gap.hint else ""
        said = f"{gap.about(report)}: {truncate(gap.reason, LONG_LIMIT)}{hint}"
        path = gap.models[0] if gap.models else DEFAULT_PATH
        seed = "|".join(("undecided", *gap.stages, *gap.models, *gap.runtimes, gap.reason))
        yield seed, _render_issue(report, said, "undecided", UNDECIDED_SEVERITY, path, 0)


def _render_issue(report: Report, said: str, name: str, severity: str, path: str, line: int) -> JsonObject:
    """A file without lines is shown from its start."""
    return {
        "description": escape_unprintable(said),
        "check_name": escape_unprintable(name),
        "severity": severity,
        "location": {
            "path": posixpath.normpath(wording.path_from_root(report, path)),
            "lines": {"begin": max(1, line)},
        },
    }
