"""The project with one fault of each kind has exactly the expected findings, each at its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.repositories.user_repository import Repository

pytestmark = [pytest.mark.index, pytest.mark.torch]


def select_fields(findings: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the fields that `expected.json` contains, in its order."""
    kept = [
        {key: finding[key] for key in ("rule", "level", "model", "runtimes")} | _place(finding) for finding in findings
    ]
    return sorted(kept, key=lambda each: (each["model"], each["rule"]))


def _concerns(finding: dict[str, Any], runtime: str) -> bool:
    """Return whether a finding applies to a runtime. Without runtimes, it applies to all."""
    return not finding["runtimes"] or runtime in finding["runtimes"]


def _place(finding: dict[str, Any]) -> dict[str, Any]:
    return {"place": {key: finding["place"][key] for key in ("path", "line")}}


def test_broken(project: Callable[[str], Repository], toolchain: Path) -> None:
    """Each fault is one finding, regardless of how many runtimes it affects; only unfetched content is undecided."""
    broken = project("broken").with_environment(VIRTUAL_ENV=toolchain.parent.parent)
    report = broken.report(status=1)

    assert select_fields(report["findings"]) == json.loads(broken.read("expected.json"))
    assert (report["verdict"], report["skipped"]) == ("fail", [])
    assert {entry["model"] for entry in report["undecided"]} == {
        "models/data-not-fetched.onnx",
        "models/lfs-not-fetched.onnx",
    }
    healthy = [cell["state"] for cell in report["cells"] if cell["model"] == "models/classifier.onnx"]
    assert healthy == ["pass"] * 4
    errors = [finding for finding in report["findings"] if finding["level"] == "error"]
    cells = {(cell["model"], cell["runtime"]): cell["state"] for cell in report["cells"]}
    concerned = {pair for pair in cells for error in errors if error["model"] == pair[0] and _concerns(error, pair[1])}
    assert {cells[pair] for pair in concerned} == {"fail"}
