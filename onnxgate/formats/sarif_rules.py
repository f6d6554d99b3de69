"""Rules as SARIF describes them: what GitHub shows beside an alert."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from onnxgate.formats.escape import visible
from onnxgate.formats.phrases import short
from onnxgate.rules import by_id
from onnxgate.rules.registry import AnyRule

LONGEST = 1024
"""Characters of a description (Source: GitHub's documentation of SARIF for code scanning)."""
LONGEST_ID = 255
SEVERITIES = {"error": "error", "warning": "warning", "note": "recommendation"}
PREDICTED = "support"
"""The stage that runs nothing: what it says is checked by a real run only where one was asked for."""


def identifier(rule: str) -> str:
    """A rule's id, as results name it."""
    return visible(rule)[:LONGEST_ID]


def described(rules: Iterable[str]) -> list[dict[str, Any]]:
    """The rules of that name; of one that this release does not know, that it is so."""
    return [_of_catalogue(by_id[name]) if name in by_id else _unknown(name) for name in rules]


def _of_catalogue(rule: AnyRule) -> dict[str, Any]:
    before, _, _ = rule.page.partition("\n## ")
    return {
        "id": rule.id,
        "shortDescription": {"text": _joined(rule.summary)[:LONGEST]},
        "fullDescription": {"text": _joined(before)[:LONGEST]},
        "help": {"text": rule.page.replace("## ", ""), "markdown": rule.page},
        "defaultConfiguration": {"level": rule.level.value},
        "properties": {
            "precision": "high" if rule.stage.value == PREDICTED else "very-high",
            "problem.severity": SEVERITIES[rule.level.value],
            "tags": ["compatibility", "onnx", rule.stage.value],
        },
    }


def _joined(text: str) -> str:
    """Wrapped lines as one."""
    return " ".join(text.split())


def _unknown(name: str) -> dict[str, Any]:
    named = short(visible(name)).replace("](", "] (")  # `[a](b)` would be a link
    said = {"text": f"`{named}`, a rule of another release of onnxgate"}
    return {
        "id": identifier(name),
        "shortDescription": said,
        "fullDescription": said,
        "help": said,
        "properties": {"precision": "high", "problem.severity": "warning", "tags": ["compatibility", "onnx"]},
    }
