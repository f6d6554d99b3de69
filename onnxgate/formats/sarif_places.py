"""Where results stand: on a line of text wherever there is one, with the model and the node beside it.

A `.onnx` file has no lines. Of a result without a line GitHub makes an alert of the file, and the fingerprint that the
upload would compute is missing (Source: github/codeql-action, src/fingerprints.ts).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from onnxgate.formats import phrases
from onnxgate.formats.escape import visible
from onnxgate.report import Finding, Report, ReportedModel

LOCK = "onnxgate.lock"
"""Where a finding stands that names neither a place nor a model: GitHub refuses results without any."""

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Anchor:
    """A file as a URI, and lines of it; a line of 0 is no line."""

    uri: str
    line: int
    end_line: int = 0

    def location(self, finding: Finding) -> Object:
        """As SARIF has it, with the node that the finding is about."""
        physical: Object = {"artifactLocation": _file(self.uri)}
        if self.line:
            end = max(self.line, self.end_line)
            physical["region"] = {"startLine": self.line, "endLine": end}
        return {"physicalLocation": physical, **_logical(finding.model, finding.node)}


def anchor(finding: Finding, report: Report) -> Anchor:
    """Its place; a text file without a line is shown from its start."""
    place = finding.place
    path = place.path or finding.model or LOCK
    binary = path == finding.model or path in {model.path for model in report.models}
    return Anchor(uri(report, path), place.line or (0 if binary else 1), place.end_line)


def related(findings: Iterable[Finding], where: Anchor, report: Report) -> list[Object]:
    """The models with their nodes, where a finding stands somewhere else or several stand together."""
    about = dict.fromkeys((finding.model, finding.node) for finding in findings if finding.model)
    named = [(uri(report, model), model, node) for model, node in about]
    return [
        {
            "id": number,
            "physicalLocation": {"artifactLocation": _file(name)},
            "message": message([f"the node `{phrases.short(node)}`" if node else "the model"]),
            **_logical(model, node),
        }
        for number, (name, model, node) in enumerate(named, 1)
        if name != where.uri or len(named) > 1
    ]


def _logical(model: str, node: str) -> Object:
    if not node:
        return {}
    name = visible(phrases.short(node))
    return {"logicalLocations": [{"name": name, "fullyQualifiedName": f"{visible(phrases.short(model))}::{name}"}]}


def artifact(report: Report, model: ReportedModel) -> Object:
    """A judged model with its hash."""
    hashes = {"hashes": {"sha-256": visible(model.sha256)}} if model.sha256 else {}
    return {"location": _file(uri(report, model.path)), "roles": ["analysisTarget"], **hashes}


def category(report: Report) -> str:
    """Which of several analyses of a repository this is: projects in different folders do not replace each other's."""
    return f"onnxgate/{_quoted(report.folder)}/" if report.folder else "onnxgate/"


def message(lines: Iterable[str]) -> Object:
    """Plain text on lines of ours; `[a](b)` would be a link in it."""
    return {"text": "\n".join(visible(line) for line in lines).replace("](", "] (")}


def _file(name: str) -> Object:
    return {"uri": name} if name.startswith("file:") else {"uri": name, "uriBaseId": "%SRCROOT%"}


def uri(report: Report, path: str) -> str:
    """Relative to git's root, percent-encoded (RFC 3986); of a file outside of the working directory absolute."""
    if path.startswith("/"):
        return f"file://{_quoted(posixpath.normpath('/' + path.lstrip('/')))}"
    return _quoted(posixpath.normpath(phrases.from_root(report, path)).lstrip("/"))


def _quoted(path: str) -> str:
    try:
        data = path.encode("utf-8", "surrogateescape")  # the bytes that the file's name has
    except UnicodeEncodeError:
        data = path.encode("utf-8", "backslashreplace")
    return quote(data)
