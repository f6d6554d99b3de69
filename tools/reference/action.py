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
    lines = ["# The actions", "", INTRODUCTION.strip(), "", "## Inputs", "", *_inputs(action["inputs"])]
    lines += ["", "## Outputs", "", *_outputs(action["outputs"])]
    for name in ("comment", "pull-request"):
        other = _read(ROOT / name / "action.yml")
        use = f"`uses: onnxgate/onnxgate/{name}@v{__version__}`"
        lines += ["", f"## {name}", "", f"{other['description']}: {use}.", "", *_inputs(other["inputs"])]
        lines += ["", *_outputs(other["outputs"])] if "outputs" in other else []
    return "\n".join(lines).rstrip() + "\n"


def _inputs(inputs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| input | default | |", "|---|---|---|")
    for name, each in inputs.items():
        default = str(each.get("default", ""))
        shown = "required" if each.get("required") else f"`{default}`" if default and "{{" not in default else ""
        yield f"| `{name}` | {shown} | {_cell(each['description'])} |"


def _outputs(outputs: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield from ("| output | |", "|---|---|")
    yield from (f"| `{name}` | {_cell(each['description'])} |" for name, each in outputs.items())


def _read(path: Path) -> dict[str, Any]:
    import yaml

    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
