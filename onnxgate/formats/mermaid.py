"""A drawing as a Mermaid flowchart: what GitHub draws in a job summary and in a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.formats.escape import diagram_label
from onnxgate.report import Drawing, DrawnEdge, DrawnNode

MOST = 49
"""Boxes that are drawn; GitHub takes long over more."""
LONGEST = 60
"""Characters of a name in a label."""
SHAPES = {"input": "[/{}/]", "output": r"[\{}\]", "weight": "[({})]", "more": "({})"}
"""How what is no node is outlined; nodes are rectangles."""
STYLES = {
    "failing": "fill:#ffebe9,stroke:#cf222e,stroke-width:3px,color:#82071e",
    "more": "fill:none,stroke:#8c959f,stroke-dasharray:4 3",
}
"""Legible on GitHub's light theme and on its dark one."""


def drawing(drawing: Drawing) -> str:
    """A fenced block of a flowchart, without a newline at its end; at most `MOST` boxes, the failing node marked."""
    kept = _kept(drawing)
    lines = [
        "```mermaid",
        "flowchart TB",
        *(f"  n{index}{_box(drawing.nodes[index])}" for index in kept),
        *(f"  n{edge.source} --> n{edge.target}" for edge in _between(drawing.edges, kept)),
        *_styles(drawing, kept),
        "```",
    ]
    return "\n".join(lines)


def _kept(drawing: Drawing) -> list[int]:
    """The first boxes in their order; of too many always the failing node."""
    numbers = range(len(drawing.nodes))
    first = sorted(numbers, key=lambda index: (drawing.nodes[index].kind != "failing", index))[:MOST]
    return sorted(first)


def _between(edges: Sequence[DrawnEdge], kept: Sequence[int]) -> list[DrawnEdge]:
    """One arrow between two boxes, however many values flow there."""
    unique = {(edge.source, edge.target): edge for edge in edges if {edge.source, edge.target} <= set(kept)}
    return list(unique.values())


def _box(node: DrawnNode) -> str:
    return SHAPES.get(node.kind, "[{}]").format(f'"{diagram_label(_text(node)) or "unnamed"}"')


def _text(node: DrawnNode) -> str:
    """The operator, and the name that it has."""
    parts = (part if len(part) <= LONGEST else f"{part[: LONGEST - 1]}…" for part in (node.operator, node.name))
    return " · ".join(filter(None, parts))


def _styles(drawing: Drawing, kept: Sequence[int]) -> Iterator[str]:
    for kind, style in STYLES.items():
        of_kind = ",".join(f"n{index}" for index in kept if drawing.nodes[index].kind == kind)
        if of_kind:
            yield f"  classDef {kind} {style}"
            yield f"  class {of_kind} {kind}"
