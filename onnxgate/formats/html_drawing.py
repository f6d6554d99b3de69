"""The neighbourhood of a failing node as a picture: boxes in layers, arrows from above to below."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

from onnxgate.formats.escape import visible
from onnxgate.formats.html_layout import Placed, place
from onnxgate.formats.html_markup import Markup, joined, number, tag
from onnxgate.report import Drawing, DrawnNode

MOST = 49
"""Boxes that are drawn of a drawing that another program wrote; ours have fewer."""
SHOWN = 22
"""Characters of a name in a box; a reader who points at it sees all."""
HEIGHT, EDGE, TIP = 44.0, 14.0, 7.0
"""Pixels: a box, the margin around the picture, and an arrow's tip."""


def picture(drawing: Drawing) -> Markup:
    """The drawing as inline SVG in a box that scrolls where the page is narrower."""
    nodes = drawing.nodes[:MOST]
    numbers = range(len(nodes))
    edges = [each for each in drawing.edges if each.source in numbers and each.target in numbers]
    placed = place([_width(node) for node in nodes], [(each.source, each.target) for each in edges])
    values: dict[tuple[int, int], list[str]] = {}
    for each in edges:
        values.setdefault((each.source, each.target), []).append(each.value)
    width, height = placed.width + 2 * EDGE, placed.height + HEIGHT + 2 * EDGE
    svg = tag(
        "svg",
        tag("title", f"the neighbourhood of {drawing.node}"),
        tag("desc", _described(drawing, nodes, list(values))),
        tag(
            "g",
            (_arrow(route, ", ".join(filter(None, values[pair]))) for pair, route in placed.routes.items()),
            (_box(node, placed, index) for index, node in enumerate(nodes)),
            transform=f"translate({number(EDGE)} {number(EDGE + HEIGHT / 2)})",
        ),
        viewBox=f"0 0 {number(width)} {number(height)}",
        width=width,
        height=height,
        role="img",
    )
    return tag("div", svg, class_="drawing", tabindex=0, role="group", aria_label="drawing")


def _described(drawing: Drawing, nodes: Sequence[DrawnNode], pairs: Iterable[tuple[int, int]]) -> str:
    """What the picture shows, for who does not see it."""
    feeds = [nodes[source] for source, target in pairs if nodes[target].kind == "failing"]
    fed = [nodes[target] for source, target in pairs if nodes[source].kind == "failing"]
    said = [f"{drawing.node} in {drawing.model}"]
    said += [f"fed by {', '.join(map(_called, feeds))}"] if feeds else []
    said += [f"feeds {', '.join(map(_called, fed))}"] if fed else []
    return "; ".join(said)


def _called(node: DrawnNode) -> str:
    return " ".join(part for part in (node.operator or node.kind.replace("more", ""), node.name) if part)


def _texts(node: DrawnNode) -> list[str]:
    """What a box says, above and below: the operator, or what kind of value it is, and its name."""
    kinds = {"input": "input", "output": "output", "weight": "weight"}
    return [_cut(part) for part in (node.operator or kinds.get(node.kind, ""), node.name) if part] or ["unnamed"]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]}…{text[-(SHOWN // 2 - 1) :]}"


def _width(node: DrawnNode) -> float:
    first, *second = _texts(node)
    bold = _columns(first) * (7.8 if second else 6.9)
    return max(64.0, bold, *(_columns(text) * 6.9 for text in second)) + 20.0


def _columns(text: str) -> int:
    """By which a box is measured: each wide character counts twice."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in visible(text))


def _box(node: DrawnNode, placed: Placed, index: int) -> Markup:
    x, y = placed.centres[index]
    width = _width(node)
    round_ = HEIGHT / 2 if node.kind in ("input", "output") else 3.0
    texts = _texts(node)
    places = [-3.0, 13.0] if len(texts) > 1 else [4.0]
    return tag(
        "g",
        tag("title", _called(node)),
        tag("rect", x=x - width / 2, y=y - HEIGHT / 2, width=width, height=HEIGHT, rx=round_),
        (
            tag("text", text, x=x, y=y + down, class_="op" if len(texts) > 1 and not number_ else "name")
            for number_, (text, down) in enumerate(zip(texts, places, strict=True))
        ),
        class_=f"box {node.kind}",
    )


def _arrow(route: Sequence[tuple[float, float]], value: str) -> Markup:
    """A line that leaves a box below and comes to another from above, or the other way round in a circle."""
    down = 1.0 if route[-1][1] >= route[0][1] else -1.0
    (x, y), *bends, (end_x, end_y) = route
    through = [(bend_x, bend_y + side * down * HEIGHT / 2) for bend_x, bend_y in bends for side in (-1, 1)]
    points = [(x, y + down * HEIGHT / 2), *through, (end_x, end_y - down * (HEIGHT / 2 + TIP))]
    tip_y = end_y - down * HEIGHT / 2
    tip = [(end_x - 4, tip_y - down * TIP), (end_x + 4, tip_y - down * TIP), (end_x, tip_y)]
    return tag(
        "g",
        tag("title", value) if value else None,
        tag("path", d=joined(_curve(points), " "), class_="line"),
        tag("path", d=f"M{' L'.join(f'{number(px)} {number(py)}' for px, py in tip)}Z", class_="tip"),
        class_="arrow",
    )


def _curve(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    yield f"M{number(points[0][0])} {number(points[0][1])}"
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        middle = number((y + next_y) / 2)
        yield f"C{number(x)} {middle} {number(next_x)} {middle} {number(next_x)} {number(next_y)}"
