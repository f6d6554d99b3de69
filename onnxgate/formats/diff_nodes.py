"""What became of nodes, line by line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from onnxgate.formats.diff_lines import NAMED, Line, listed
from onnxgate.formats.phrases import short
from onnxgate.model.difference import Difference, NodeChange


def node_tally(found: Difference) -> str:
    """`nodes: 3 added, 1 changed`."""
    counts = Counter(it.change for it in found.nodes)
    said = [f"{counts[word]:,} {word}" for word in ("added", "removed", "replaced", "changed") if counts[word]]
    return f"nodes: {', '.join(said)}"


def node_summary(found: Difference) -> str:
    """The same without the word, and how many are as they were."""
    there = sum(it.change != "removed" for it in found.nodes)
    return (
        f"{node_tally(found).removeprefix('nodes: ')}; {found.new.nodes - there:,} as they were" if found.nodes else ""
    )


def node_lines(found: Difference, most: int) -> Iterator[Line]:
    """By the graph that they are in; where there are many, first which operators."""
    shown = found.nodes[:most] if most and len(found.nodes) > most + 1 else found.nodes
    if len(shown) < len(found.nodes):
        yield from _by_operator(found.nodes)
    scope: tuple[str, ...] = ()
    held: list[Line] = []
    for it in (*shown, None):
        if it is None or it.scope != scope:
            yield from _within(scope, held)
            held = []
        if it is not None:
            scope = it.scope
            held.append(_node(it))
    if len(shown) < len(found.nodes):
        yield Line("", f"and {len(found.nodes) - len(shown):,} more; `-v` shows all")


def _within(scope: tuple[str, ...], lines: list[Line]) -> Iterator[Line]:
    if scope and lines:
        yield Line("", f"in {scope_words(scope)}", tuple(lines))
    else:
        yield from lines


def scope_words(scope: tuple[str, ...]) -> str:
    """Where a node is, from the outside in."""
    return short(" / ".join(scope))


def _by_operator(nodes: Sequence[NodeChange]) -> Iterator[Line]:
    for change in ("added", "removed", "replaced", "changed"):
        counts = Counter(
            f"`{short(it.was)}` by `{short(it.operator)}`" if it.was else f"`{short(it.operator)}`"
            for it in nodes
            if it.change == change
        )
        said = [f"{number:,} {what}" for what, number in counts.most_common()]
        if said:
            yield Line("", f"{change}: {listed(said, 8)}")


def _node(it: NodeChange) -> Line:
    name = _named(it.operator, it.name)
    match it.change:
        case "added":
            return Line("+", f"{name}{_where(it, 'reads', 'feeds', '')}")
        case "removed":
            return Line("-", f"{name}{_where(it, 'read', 'fed', 'which stood ')}")
        case "replaced":
            was = _named(it.was, it.was_name if it.was_name != it.name else "")
            return Line("~", f"{name} in place of {was}", _details(it))
        case _:
            was = f" (was `{short(it.was_name)}`)" if it.was_name else ""
            details = _details(it)
            if len(details) == 1:
                return Line("~", f"{name}{was}: {details[0].text}")
            return Line("~", f"{name}{was}", details)


def _details(it: NodeChange) -> tuple[Line, ...]:
    return tuple(Line("", short(detail.text)) for detail in it.details)


def _named(operator: str, name: str) -> str:
    return f"`{short(operator)}` `{short(name)}`" if name else f"`{short(operator)}`"


def _where(it: NodeChange, reads: str, feeds: str, stood: str) -> str:
    taken, given = [short(text) for text in it.reads], [short(text) for text in it.feeds]
    if it.inserted and taken and given:
        stood = f", {stood}" if stood else " "
        if len(given) == 1:
            return f"{stood}between {taken[0]} and {given[0]}"
        return f"{stood}after {taken[0]}, before {listed(given, NAMED)}"
    which = "which " if stood else ""
    parts = [f"{reads} {listed(taken, NAMED)}" if taken else f"{reads} weights alone"]
    parts.append(f"{feeds} {listed(given, NAMED)}" if given else f"{feeds} nothing")
    return f", {which}{' and '.join(parts)}"
