"""Draw the nodes around a failing node as a Mermaid flowchart."""

from __future__ import annotations

from onnxgate.core.escape import escape_mermaid_label
from onnxgate.core.report import Drawing, DrawnNode

MAX_BOXES = 49
"""Maximum number of nodes in a Mermaid diagram, because GitHub renders larger diagrams slowly."""


MAX_LABEL_NAME = 60
"""Maximum length of the name of a node or value in a Mermaid diagram, in characters."""


BOX_SHAPES = {"input": "[/{}/]", "output": r"[\{}\]", "weight": "[({})]", "more": "({})"}
"""Kind of node -> its shape in a Mermaid diagram. Other kinds of nodes are rectangles."""


BOX_STYLES = {
    "failing": "fill:#ffebe9,stroke:#cf222e,stroke-width:3px,color:#82071e",
    "more": "fill:none,stroke:#8c959f,stroke-dasharray:4 3",
}
"""Styles of nodes in Mermaid diagrams. The colors are legible in both the light and the dark theme of GitHub."""


def render_mermaid(drawing: Drawing) -> str:
    """Render a diagram of nodes as a Mermaid flowchart in a Markdown code block, without a final newline.

    It has at most MAX_BOXES nodes, including the failing node. Several values between two nodes share one arrow.
    """
    numbers = range(len(drawing.nodes))
    shown = sorted(sorted(numbers, key=lambda index: (drawing.nodes[index].kind != "failing", index))[:MAX_BOXES])
    arrows = dict.fromkeys((edge.source, edge.target) for edge in drawing.edges)
    lines = [
        *("```mermaid", "flowchart TB"),
        *(f"  n{index}{_render_box(drawing.nodes[index])}" for index in shown),
        *(f"  n{source} --> n{target}" for source, target in arrows if {source, target} <= set(shown)),
    ]
    for kind, style in BOX_STYLES.items():
        if of_kind := ",".join(f"n{index}" for index in shown if drawing.nodes[index].kind == kind):
            lines += [f"  classDef {kind} {style}", f"  class {of_kind} {kind}"]
    return "\n".join([*lines, "```"])


def _render_box(node: DrawnNode) -> str:
    parts = (
        part if len(part) <= MAX_LABEL_NAME else f"{part[: MAX_LABEL_NAME - 1]}…" for part in (node.operator, node.name)
    )
    label = escape_mermaid_label(" · ".join(filter(None, parts))) or "unnamed"
    return BOX_SHAPES.get(node.kind, "[{}]").format(f'"{label}"')
