"""Reference page of the action's inputs and outputs, generated from `action.yml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxgate import __version__

ROOT = Path(__file__).resolve().parents[2]
INTRODUCTION = f"""
Inputs and outputs of `uses: onnxgate/onnxgate@v{__version__}`. All inputs are strings. For examples, see [the
guide](../guides/action.md).
"""


def page() -> str:
    """Return the page, with inputs and outputs in the order of the file."""
    action = _read(ROOT / "action.yml")
    comment = _read(ROOT / "comment" / "action.yml")
    lines = ["# The action", "", INTRODUCTION.strip(), "", "## Inputs", "", *_inputs(action["inputs"])]
    lines += ["", "## Outputs", "", "| output | |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(each['description'])} |" for name, each in action["outputs"].items()]
    lines += ["", "## comment", "", f"{comment['description']}: `uses: onnxgate/onnxgate/comment@v{__version__}`.", ""]
    lines += _inputs(comment["inputs"])
    return "\n".join(lines).rstrip() + "\n"


def _inputs(inputs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| input | default | |", "|---|---|---|")
    for name, each in inputs.items():
        default = str(each.get("default", ""))
        shown = "required" if each.get("required") else f"`{default}`" if default and "{{" not in default else ""
        yield f"| `{name}` | {shown} | {_cell(each['description'])} |"


def _read(path: Path) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
