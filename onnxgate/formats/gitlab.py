"""Write the report as GitLab Code Quality JSON. GitLab shows how a merge request changes the listed issues.

Undecided checks are also reported as issues. Ignored findings are omitted, because GitLab has no ignored issues.
"""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Report
from onnxgate.core.report_json import encode_json
from onnxgate.core.text import LONG_LIMIT, truncate
from onnxgate.formats import wording

SEVERITIES = {"error": "critical", "warning": "minor", "note": "info"}
UNDECIDED_SEVERITY = "major"
JsonObject = dict[str, Any]


def format(report: Report) -> str:
    """Render the issues as a JSON array, worst first. Their fingerprints differ, because GitLab drops duplicates."""
    issues: dict[str, JsonObject] = {}
    for seed, issue in _list_issues(report):
        suffixes = itertools.chain([""], (f"|{number}" for number in itertools.count(2)))
        digests = (
            sha256(f"{seed}{suffix}".encode("utf-8", "backslashreplace")).hexdigest()[:32] for suffix in suffixes
        )
        fingerprint = next(digest for digest in digests if digest not in issues)
        issues[fingerprint] = {**issue, "fingerprint": fingerprint}
    return encode_json(list(issues.values()))


def _list_issues(report: Report) -> Iterator[tuple[str, JsonObject]]:
    """Yield an issue for each finding and each undecided check, with the text that its fingerprint is computed from."""
    for finding in wording.list_active_findings(report):
        path = finding.place.path or finding.model or wording.DEFAULT_PATH
        fix = f"; fix: {truncate(finding.fix, LONG_LIMIT)}" if finding.fix else ""
        seed = f"{finding.rule}|{finding.model}|{finding.node}|{finding.fingerprint}"
        description = f"{wording.render_sentence(finding)}{fix}"
        yield (
            seed,
            _render_issue(report, description, finding.rule, SEVERITIES[finding.level], path, finding.place.line),
        )
    for gap in wording.merge_gaps(report.undecided):
        hint = f"; hint: {gap.hint}" if gap.hint else ""
        description = f"{gap.about(report)}: {truncate(gap.reason, LONG_LIMIT)}{hint}"
        path = gap.models[0] if gap.models else wording.DEFAULT_PATH
        seed = "|".join(("undecided", *gap.stages, *gap.models, *gap.runtimes, gap.reason))
        yield seed, _render_issue(report, description, "undecided", UNDECIDED_SEVERITY, path)


def _render_issue(report: Report, description: str, name: str, severity: str, path: str, line: int = 0) -> JsonObject:
    """Return a Code Quality issue as JSON data. If `line` is 0, the issue is placed on line 1."""
    file = posixpath.normpath(wording.path_from_root(report, path))
    return {
        "description": escape_unprintable(description),
        "check_name": escape_unprintable(name),
        "severity": severity,
        "location": {"path": file, "lines": {"begin": max(1, line)}},
    }
