"""The neighbourhood of a failing node as a picture: boxes in layers, arrows from above to below."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxgate.core.escape import escape_unprintable
from onnxgate.core.report import Drawing, DrawnNode
from onnxgate.formats.report.html.markup import Markup, format_number, join_markup, tag

MAX_BOXES = 49
"""Boxes that are drawn of a drawing that another program wrote; ours have fewer."""
MAX_NAME_LENGTH = 22
"""Characters of a name in a box; a reader who points at it sees all."""
BOX_HEIGHT, MARGIN, ARROW_TIP = 44.0, 14.0, 7.0
"""Pixels: a box, the margin around the picture, and an arrow's tip."""


def render_drawing(drawing: Drawing) -> Markup:
    """The drawing as inline SVG in a box that scrolls where the page is narrower."""
    nodes = drawing.nodes[:MAX_BOXES]
    numbers = range(len(nodes))
    edges = [each for each in drawing.edges if each.source in numbers and each.target in numbers]
    placed = layout_boxes([_box_width(node) for node in nodes], [(each.source, each.target) for each in edges])
    values: dict[tuple[int, int], list[str]] = {}
    for edge in edges:
        values.setdefault((edge.source, edge.target), []).append(edge.value)
    width, height = placed.width + 2 * MARGIN, placed.height + BOX_HEIGHT + 2 * MARGIN
    svg = tag(
        "svg",
        tag("title", f"the neighbourhood of {drawing.node}"),
        tag("desc", _describe_drawing(drawing, nodes, list(values))),
        tag(
            "g",
            (_render_arrow(route, ", ".join(filter(None, values[pair]))) for pair, route in placed.routes.items()),
            (_render_box(node, placed, index) for index, node in enumerate(nodes)),
            transform=f"translate({format_number(MARGIN)} {format_number(MARGIN + BOX_HEIGHT / 2)})",
        ),
        viewBox=f"0 0 {format_number(width)} {format_number(height)}",
        width=width,
        height=height,
        role="img",
    )
    return tag("div", svg, class_="drawing", tabindex=0, role="group", aria_label="drawing")


def _describe_drawing(drawing: Drawing, nodes: Sequence[DrawnNode], pairs: Iterable[tuple[int, int]]) -> str:
    """What the picture shows, for who does not see it."""
    feeds = [nodes[source] for source, target in pairs if nodes[target].kind == "failing"]
    fed = [nodes[target] for source, target in pairs if nodes[source].kind == "failing"]
    said = [f"{drawing.node} in {drawing.model}"]
    said += [f"fed by {', '.join(map(_node_label, feeds))}"] if feeds else []
    said += [f"feeds {', '.join(map(_node_label, fed))}"] if fed else []
    return "; ".join(said)


def _node_label(node: DrawnNode) -> str:
    return " ".join(part for part in (node.operator or node.kind.replace("more", ""), node.name) if part)


def _box_texts(node: DrawnNode) -> list[str]:
    """What a box says, above and below: the operator, or what kind of value it is, and its name."""
    kinds = {"input": "input", "output": "output", "weight": "weight"}
    return [_shorten_name(part) for part in (node.operator or kinds.get(node.kind, ""), node.name) if part] or [
        "unnamed"
    ]


def _shorten_name(text: str) -> str:
    return (
        text
        if len(text) <= MAX_NAME_LENGTH
        else f"{text[: MAX_NAME_LENGTH // 2]}…{text[-(MAX_NAME_LENGTH // 2 - 1) :]}"
    )


def _box_width(node: DrawnNode) -> float:
    first, *second = _box_texts(node)
    bold = _text_columns(first) * (7.8 if second else 6.9)
    return max(64.0, bold, *(_text_columns(text) * 6.9 for text in second)) + 20.0


def _text_columns(text: str) -> int:
    """By which a box is measured: each wide character counts twice."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in escape_unprintable(text))


def _render_box(node: DrawnNode, placed: DrawingLayout, index: int) -> Markup:
    x, y = placed.centres[index]
    width = _box_width(node)
    round_ = BOX_HEIGHT / 2 if node.kind in ("input", "output") else 3.0
    texts = _box_texts(node)
    places = [-3.0, 13.0] if len(texts) > 1 else [4.0]
    return tag(
        "g",
        tag("title", _node_label(node)),
        tag("rect", x=x - width / 2, y=y - BOX_HEIGHT / 2, width=width, height=BOX_HEIGHT, rx=round_),
        (
            tag("text", text, x=x, y=y + down, class_="op" if len(texts) > 1 and not number_ else "name")
            for number_, (text, down) in enumerate(zip(texts, places, strict=True))
        ),
        class_=f"box {node.kind}",
    )


def _render_arrow(route: Sequence[tuple[float, float]], value: str) -> Markup:
    """A line that leaves a box below and comes to another from above, or the other way round in a circle."""
    down = 1.0 if route[-1][1] >= route[0][1] else -1.0
    (x, y), *bends, (end_x, end_y) = route
    through = [(bend_x, bend_y + side * down * BOX_HEIGHT / 2) for bend_x, bend_y in bends for side in (-1, 1)]
    points = [(x, y + down * BOX_HEIGHT / 2), *through, (end_x, end_y - down * (BOX_HEIGHT / 2 + ARROW_TIP))]
    tip_y = end_y - down * BOX_HEIGHT / 2
    tip = [(end_x - 4, tip_y - down * ARROW_TIP), (end_x + 4, tip_y - down * ARROW_TIP), (end_x, tip_y)]
    return tag(
        "g",
        tag("title", value) if value else None,
        tag("path", d=join_markup(_curve_commands(points), " "), class_="line"),
        tag("path", d=f"M{' L'.join(f'{format_number(px)} {format_number(py)}' for px, py in tip)}Z", class_="tip"),
        class_="arrow",
    )


def _curve_commands(points: Sequence[tuple[float, float]]) -> Iterator[str]:
    yield f"M{format_number(points[0][0])} {format_number(points[0][1])}"
    for (x, y), (next_x, next_y) in itertools.pairwise(points):
        middle = format_number((y + next_y) / 2)
        yield f"C{format_number(x)} {middle} {format_number(next_x)} {middle} {format_number(next_x)} {format_number(next_y)}"


BOX_GAP, LAYER_HEIGHT = 20.0, 84.0
"""Pixels between boxes of a layer, and from one layer to the next."""
SWEEPS = 8

BoxPair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DrawingLayout:
    """Centres of boxes and the points that each arrow goes through, in pixels."""

    centres: tuple[tuple[float, float], ...]
    routes: Mapping[BoxPair, tuple[tuple[float, float], ...]]  # from an arrow's source to its target
    width: float
    height: float


@dataclass(slots=True)
class _LayerRows:
    """Boxes, and bends of arrows that pass a layer, in the order in which they stand."""

    rows: list[list[int]]
    links: list[BoxPair]  # from one layer to the next
    widths: dict[int, float]
    above: dict[int, list[int]] = field(default_factory=dict)
    below: dict[int, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for source, target in self.links:
            self.above.setdefault(target, []).append(source)
            self.below.setdefault(source, []).append(target)


def layout_boxes(widths: Sequence[float], edges: Iterable[BoxPair]) -> DrawingLayout:
    """A place for each box; the same for the same drawing, also where its arrows run in a circle."""
    pairs = sorted({(source, target) for source, target in edges if source != target})
    order = _order_boxes(len(widths), pairs)
    forward = {pair: pair if order[pair[0]] < order[pair[1]] else (pair[1], pair[0]) for pair in pairs}
    ranks = _rank_boxes(len(widths), sorted(set(forward.values())), order)
    layers, bends = _build_layers(widths, sorted(set(forward.values())), ranks)
    _reduce_crossings(layers)
    xs = _position_boxes(layers)
    left = min((xs[box] - width / 2 for box, width in layers.widths.items()), default=0.0)
    right = max((xs[box] + width / 2 for box, width in layers.widths.items()), default=0.0)
    at = {box: (xs[box] - left, row * LAYER_HEIGHT) for row, boxes in enumerate(layers.rows) for box in boxes}
    routes = {pair: _route_arrow(pair, forward[pair], bends, at) for pair in pairs}
    centres = tuple(at[box] for box in range(len(widths)))
    return DrawingLayout(centres, routes, right - left, max(len(layers.rows) - 1, 0) * LAYER_HEIGHT)


def _order_boxes(count: int, pairs: Sequence[BoxPair]) -> dict[int, int]:
    """Sources before targets; where arrows run in a circle, the box with the smallest number is taken first."""
    waiting = {box: {source for source, target in pairs if target == box} for box in range(count)}
    order: dict[int, int] = {}
    while waiting:
        free = [box for box, sources in waiting.items() if not sources & waiting.keys()]
        box = min(free or waiting)
        order[box] = len(order)
        del waiting[box]
    return order


def _rank_boxes(count: int, pairs: Sequence[BoxPair], order: Mapping[int, int]) -> list[int]:
    """Each box below all that feed it; what nothing feeds stands right above what it feeds."""
    ranks = [0] * count
    fed = {target for _, target in pairs}
    for box in sorted(range(count), key=lambda each: order[each]):
        ranks[box] = max((ranks[source] + 1 for source, target in pairs if target == box), default=0)
    for box in set(range(count)) - fed:
        ranks[box] = min((ranks[target] - 1 for source, target in pairs if source == box), default=0)
    return ranks


def _build_layers(
    widths: Sequence[float], pairs: Sequence[BoxPair], ranks: Sequence[int]
) -> tuple[_LayerRows, dict[BoxPair, list[int]]]:
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    all_widths = dict(enumerate(map(float, widths)))
    for box, rank in enumerate(ranks):
        rows[rank].append(box)
    links: list[BoxPair] = []
    bends: dict[BoxPair, list[int]] = {}
    for source, target in pairs:
        chain = [source]
        for rank in range(ranks[source] + 1, ranks[target]):
            bend = len(all_widths)
            all_widths[bend] = 8.0
            rows[rank].append(bend)
            chain.append(bend)
        bends[source, target] = chain[1:]
        links += zip(chain, [*chain[1:], target], strict=True)
    return _LayerRows(rows, links, all_widths), bends


def _reduce_crossings(layers: _LayerRows) -> None:
    """Sort each layer by where its neighbours stand, downwards and upwards; the order with the fewest crossings."""
    best, fewest = [list(row) for row in layers.rows], _count_crossings(layers)
    for sweep in range(SWEEPS):
        rows = layers.rows if sweep % 2 == 0 else layers.rows[::-1]
        beside = layers.above if sweep % 2 == 0 else layers.below
        for fixed, row in itertools.pairwise(rows):
            at = {box: index for index, box in enumerate(fixed)}
            here = {box: float(index) for index, box in enumerate(row)}
            row.sort(key=lambda box: _mean_or([at[each] for each in beside.get(box, ())], here[box]))
        crossings = _count_crossings(layers)
        if crossings < fewest:
            best, fewest = [list(row) for row in layers.rows], crossings
    layers.rows[:] = best


def _count_crossings(layers: _LayerRows) -> int:
    at = {box: index for row in layers.rows for index, box in enumerate(row)}
    count = 0
    for row in layers.rows:
        links = [(at[box], at[below]) for box in row for below in layers.below.get(box, ())]
        count += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for index, a in enumerate(links) for b in links[index + 1 :])
    return count


def _mean_or(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _position_boxes(layers: _LayerRows) -> dict[int, float]:
    """Each box near the middle of its neighbours, none on another."""
    xs: dict[int, float] = {}
    for row in layers.rows:
        _position_row(row, [0.0] * len(row), layers.widths, xs)
    for sweep in range(SWEEPS):
        rows = layers.rows if sweep % 2 == 0 else layers.rows[::-1]
        for row in rows:
            wanted = [
                _mean_or([xs[each] for each in (*layers.above.get(box, ()), *layers.below.get(box, ()))], xs[box])
                for box in row
            ]
            _position_row(row, wanted, layers.widths, xs)
    return xs


def _position_row(
    row: Sequence[int], wanted: Sequence[float], widths: Mapping[int, float], xs: dict[int, float]
) -> None:
    """Boxes that want the same place are moved apart around it, as blocks that keep their middle."""
    blocks: list[tuple[list[int], list[float], float]] = []  # boxes, their offsets from the first, where the first is
    for box, want in zip(row, wanted, strict=True):
        boxes, offsets, start = [box], [0.0], want
        while blocks and _block_end(blocks[-1], widths) + BOX_GAP > start - widths[boxes[0]] / 2:
            others, before, first = blocks.pop()
            step = before[-1] + widths[others[-1]] / 2 + BOX_GAP + widths[boxes[0]] / 2
            middle = (len(others) * first + len(boxes) * (start - step)) / (len(others) + len(boxes))
            boxes, offsets, start = [*others, *boxes], [*before, *(step + offset for offset in offsets)], middle
        blocks.append((boxes, offsets, start))
    for boxes, offsets, start in blocks:
        xs.update((box, start + offset) for box, offset in zip(boxes, offsets, strict=True))


def _block_end(block: tuple[list[int], list[float], float], widths: Mapping[int, float]) -> float:
    boxes, offsets, start = block
    return start + offsets[-1] + widths[boxes[-1]] / 2


def _route_arrow(
    pair: BoxPair, forward: BoxPair, bends: Mapping[BoxPair, list[int]], at: Mapping[int, tuple[float, float]]
) -> tuple[tuple[float, float], ...]:
    points = [at[box] for box in (forward[0], *bends[forward], forward[1])]
    return tuple(points if pair == forward else reversed(points))
