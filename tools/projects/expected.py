"""Expected findings in a project, and the line of each finding."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK = "the model's table in onnxgate.lock"
CONFIG = "the model's table in onnxgate.toml"


@dataclass(frozen=True, slots=True)
class Expected:
    """One finding. `place` is a file of the project, LOCK or CONFIG. `text` is the beginning of the line."""

    rule: str
    model: str  # name of the file in models/, without its suffix; "" if the finding is not about one model
    place: str
    text: str = ""
    level: str = "error"
    runtimes: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """Path of the model in the project."""
        return f"models/{self.model}.onnx" if self.model else ""

    def stands(self) -> tuple[str, str]:
        """Return the file of the finding, and the beginning of the line in this file."""
        if self.place == LOCK:
            return "onnxgate.lock", f'[models."{self.path}"]'
        if self.place == CONFIG:
            return "onnxgate.toml", f'path = "{self.path}"'
        return self.place, self.text


def render(expected: Sequence[Expected], project: Path) -> bytes:
    """Return all findings as sorted JSON."""
    findings = sorted((_finding(one, project) for one in expected), key=lambda one: (one["model"], one["rule"]))
    return (json.dumps(findings, indent=2, ensure_ascii=True) + "\n").encode()


def _finding(expected: Expected, project: Path) -> dict[str, object]:
    file, text = expected.stands()
    return {
        "rule": expected.rule,
        "level": expected.level,
        "model": expected.path,
        "runtimes": [f"onnxruntime {release}" for release in expected.runtimes],
        "place": {"path": file, "line": _line(project / file, text)},
    }


def _line(file: Path, text: str) -> int:
    """Return the number of the line that begins with `text`; 0 if there is none."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() and text else []
    return next((number for number, line in enumerate(lines, 1) if line.strip().startswith(text)), 0)
