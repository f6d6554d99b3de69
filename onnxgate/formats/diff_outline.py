"""Outline of a model difference: sections and lines that text and Markdown render."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxgate.core.text import join_phrases, pluralize, truncate
from onnxgate.model.diff.result import Changed, Difference, InterfaceChange, NodeChange, WeightChange
from onnxgate.model.facts import ValueInfo

MAX_NAMED = 3
"""Names in a sentence; the others are counted."""

Sign = Literal["+", "-", "~", ""]


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One line, with literals in back-ticks, and the lines below it."""

    sign: Sign
    text: str
    children: tuple[OutlineLine, ...] = ()


def format_two_digits(number: float) -> str:
    """Return two significant digits, and all digits before the point of larger numbers, never `1.1e+02`."""
    return f"{number:,.0f}" if abs(number) >= 99.5 else f"{number:.2g}"


def count_node_changes(difference: Difference) -> str:
    """Return `nodes: 3 added, 1 changed`."""
    counts = Counter(it.change for it in difference.nodes)
    phrases = [f"{counts[word]:,} {word}" for word in ("added", "removed", "replaced", "changed") if counts[word]]
    return f"nodes: {', '.join(phrases)}"


def summarize_nodes(difference: Difference) -> str:
    """Return the counts without the title, and the number of unchanged ones."""
    there = sum(it.change != "removed" for it in difference.nodes)
    return (
        f"{count_node_changes(difference).removeprefix('nodes: ')}; {difference.new.nodes - there:,} as they were"
        if difference.nodes
        else ""
    )


def list_node_lines(difference: Difference, most: int) -> Iterator[OutlineLine]:
    """Yield the nodes by their graph; of many, first the counts by operator."""
    shown = difference.nodes[:most] if most and len(difference.nodes) > most + 1 else difference.nodes
    if len(shown) < len(difference.nodes):
        yield from _count_by_operator(difference.nodes)
    scope: tuple[str, ...] = ()
    lines: list[OutlineLine] = []
    for it in (*shown, None):
        if it is None or it.scope != scope:
            yield from _nest_in_scope(scope, lines)
            lines = []
        if it is not None:
            scope = it.scope
            lines.append(_node_line(it))
    if len(shown) < len(difference.nodes):
        yield OutlineLine("", f"and {len(difference.nodes) - len(shown):,} more; `-v` shows all")


def _nest_in_scope(scope: tuple[str, ...], lines: list[OutlineLine]) -> Iterator[OutlineLine]:
    if scope and lines:
        yield OutlineLine("", f"in {describe_scope(scope)}", tuple(lines))
    else:
        yield from lines


def describe_scope(scope: tuple[str, ...]) -> str:
    """Return the path of graphs that contain a node, outermost first."""
    return truncate(" / ".join(scope))


def _count_by_operator(nodes: Sequence[NodeChange]) -> Iterator[OutlineLine]:
    for change in ("added", "removed", "replaced", "changed"):
        counts = Counter(
            f"`{truncate(it.was)}` by `{truncate(it.operator)}`" if it.was else f"`{truncate(it.operator)}`"
            for it in nodes
            if it.change == change
        )
        phrases = [f"{number:,} {what}" for what, number in counts.most_common()]
        if phrases:
            yield OutlineLine("", f"{change}: {join_phrases(phrases, 8)}")


def _node_line(it: NodeChange) -> OutlineLine:
    name = _operator_and_name(it.operator, it.name)
    match it.change:
        case "added":
            return OutlineLine("+", f"{name}{_describe_neighbors(it, 'reads', 'feeds', '')}")
        case "removed":
            return OutlineLine("-", f"{name}{_describe_neighbors(it, 'read', 'fed', 'which stood ')}")
        case "replaced":
            was = _operator_and_name(it.was, it.was_name if it.was_name != it.name else "")
            return OutlineLine("~", f"{name} in place of {was}", _detail_lines(it))
        case _:
            was = f" (was `{truncate(it.was_name)}`)" if it.was_name else ""
            details = _detail_lines(it)
            if len(details) == 1:
                return OutlineLine("~", f"{name}{was}: {details[0].text}")
            return OutlineLine("~", f"{name}{was}", details)


def _detail_lines(it: NodeChange) -> tuple[OutlineLine, ...]:
    return tuple(OutlineLine("", truncate(detail.text)) for detail in it.details)


def _operator_and_name(operator: str, name: str) -> str:
    return f"`{truncate(operator)}` `{truncate(name)}`" if name else f"`{truncate(operator)}`"


def _describe_neighbors(it: NodeChange, reads: str, feeds: str, stood: str) -> str:
    sources, targets = [truncate(text) for text in it.reads], [truncate(text) for text in it.feeds]
    if it.inserted and sources and targets:
        stood = f", {stood}" if stood else " "
        if len(targets) == 1:
            return f"{stood}between {sources[0]} and {targets[0]}"
        return f"{stood}after {sources[0]}, before {join_phrases(targets, MAX_NAMED)}"
    which = "which " if stood else ""
    parts = [f"{reads} {join_phrases(sources, MAX_NAMED)}" if sources else f"{reads} weights alone"]
    parts.append(f"{feeds} {join_phrases(targets, MAX_NAMED)}" if targets else f"{feeds} nothing")
    return f", {which}{' and '.join(parts)}"


_ROUNDING_CHANGE = 1e-6
"""Relative change below which a float weight differs only by the rounding of another machine."""


def count_weight_changes(difference: Difference) -> str:
    """Return `weights: 3 changed, 1 added`."""
    counts: Counter[str] = Counter(it.change for it in difference.weights)
    words = {"changed": "changed", "added": "added", "removed": "removed", "copied": "stored again"}
    phrases = [f"{counts[change]:,} {word}" for change, word in words.items() if counts[change]]
    if counts["unreadable"]:
        phrases.append(f"{counts['unreadable']:,} that could not be compared")
    return f"weights: {', '.join(phrases)}"


def summarize_weights(difference: Difference) -> str:
    """Return the counts without the title, and the number of unchanged ones."""
    if not difference.weights:
        return ""
    there = sum(it.change != "removed" for it in difference.weights)
    unchanged = max(difference.new.weights - there, 0)
    return f"{count_weight_changes(difference).removeprefix('weights: ')}; {unchanged:,} as they were"


def list_weight_lines(difference: Difference, *, complete: bool) -> Iterator[OutlineLine]:
    """Yield the weights, largest changes first; many rounded ones or copies share a line."""
    order = {"unreadable": 0, "changed": 1, "added": 2, "removed": 3, "copied": 4}
    rounded = [it for it in difference.weights if _is_rounded(it)]
    copied = [it for it in difference.weights if it.change == "copied"]
    gathered = [*(rounded if len(rounded) > MAX_NAMED else ()), *(copied if len(copied) > MAX_NAMED else ())]
    for it in sorted(difference.weights, key=lambda it: (order[it.change], -_change_size(it))):
        if complete or it not in gathered:
            yield OutlineLine(*_describe_weight(it))
    if not complete and len(rounded) > MAX_NAMED:
        limit = f"less than {_format_ratio(_ROUNDING_CHANGE)} each"
        yield OutlineLine("~", f"{len(rounded):,} weights moved by {limit}: {_join_weight_names(rounded)}")
    if not complete and len(copied) > MAX_NAMED:
        yield OutlineLine("+", f"{len(copied):,} weights hold the same as another one: {_join_weight_names(copied)}")


def _change_size(it: WeightChange) -> float:
    """Return the relative change; infinity if its shape or type has no distance."""
    return math.inf if it.relative is None else it.relative


def _is_rounded(it: WeightChange) -> bool:
    """Return True for a difference no larger than another machine's rounding."""
    same_form = (it.type, it.shape) == (it.was_type, it.was_shape)
    return it.change == "changed" and same_form and it.relative is not None and it.relative < _ROUNDING_CHANGE


def _join_weight_names(weights: Sequence[WeightChange]) -> str:
    return join_phrases([f"`{truncate(it.name)}`" for it in weights], MAX_NAMED)


def _describe_weight(it: WeightChange) -> tuple[Sign, str]:
    name = f"`{truncate(it.name)}`"
    form, was_form = _describe_form(it.type, it.shape), _describe_form(it.was_type, it.was_shape)
    match it.change:
        case "added":
            return "+", f"{name} {form}{_describe_content(it.values, it.sha256)}"
        case "removed":
            return "-", f"{name} {was_form}{_describe_content(it.was_values, it.was_sha256)}"
        case "copied":
            return "+", f"{name} {form} holds the same as `{truncate(it.was)}`"
        case _:
            was = f" (was `{truncate(it.was)}`)" if it.was else ""
            other = f"{form}, was {was_form}" if form != was_form else form
            return "~", f"{name}{was} {other}: {'; '.join(_describe_weight_change(it))}"


def _describe_form(kind: str, shape: tuple[int, ...]) -> str:
    return f"{kind} [{', '.join(map(str, shape))}]" if shape else kind


def _describe_content(values: str, sha256: str) -> str:
    return f" = {truncate(values)}" if values else f", sha256 {sha256[:12]}" if sha256 else ""


def _describe_weight_change(it: WeightChange) -> Iterator[str]:
    if it.text:
        yield truncate(it.text)
    if it.values and it.was_values and it.values != it.was_values:
        yield f"{truncate(it.values)}, was {truncate(it.was_values)}"
    elif it.total:
        yield _describe_distance(it)
    elif it.change == "changed" and not it.text:
        yield f"sha256 {it.sha256[:12]}, was {it.was_sha256[:12]}"


def _describe_distance(it: WeightChange) -> str:
    if not it.elements:
        return "no element differs" if it.type == it.was_type else "no element moved by the other type"
    moved = f"moved by {_format_ratio(it.relative)}, " if it.relative is not None else ""
    largest = f", by at most {it.largest:.3g}" if it.largest is not None else ""
    return f"{moved}{it.elements:,} of {pluralize(it.total, 'element')}{largest}".replace(
        f"of {it.total} ", f"of {it.total:,} "
    )


def _format_ratio(ratio: float) -> str:
    return f"{format_two_digits(100 * ratio)} %" if ratio < 1 else f"{ratio:.3g} times its length"


MAX_LINES = 20
"""Lines of a section; the others are counted."""


@dataclass(frozen=True, slots=True)
class Section:
    """One aspect of the models, a summary of its changes and the lines of the outline."""

    title: str
    summary: str
    lines: tuple[OutlineLine, ...]


def render_headline(difference: Difference) -> str:
    """Return the difference in one sentence."""
    match difference.verdict:
        case "identical":
            return "the same model: the files are equal, byte for byte"
        case "same":
            return f"the same model{_describe_exceptions(difference)}"
        case "undecided":
            unreadable = f"{_count_unreadable(difference)} could not be compared"
            return f"no difference was found, but {unreadable}{_describe_exceptions(difference)}"
        case _:
            return f"different: {'; '.join(_describe_counts(difference))}"


def list_sections(difference: Difference, *, most: int = MAX_LINES) -> Iterator[Section]:
    """Yield the sections with changes, each with at most `most` lines; 0 for all."""
    sections = (
        Section("interface", "", tuple(_interface_lines(difference))),
        Section("stamps", "", tuple(_changed_line(it) for it in difference.stamps)),
        Section("metadata", "", tuple(_changed_line(it, quoted=True) for it in difference.metadata)),
        Section("operators", "", tuple(_operator_lines(difference))),
        Section("local functions", "", tuple(_function_lines(difference))),
        Section("nodes", summarize_nodes(difference), tuple(list_node_lines(difference, most))),
        Section("weights", summarize_weights(difference), tuple(list_weight_lines(difference, complete=not most))),
        Section("files", "", tuple(_file_lines(difference))),
        Section("and makes no difference", "", tuple(OutlineLine("", text) for text in difference.beside)),
    )
    for section in sections:
        if section.lines:
            limited = section.lines if section.title == "nodes" else _limit_lines(section.lines, most)
            yield Section(section.title, section.summary, limited)


def _limit_lines(lines: tuple[OutlineLine, ...], most: int) -> tuple[OutlineLine, ...]:
    if not most or len(lines) <= most + 1:
        return lines
    return (*lines[:most], OutlineLine("", f"and {len(lines) - most:,} more; `-v` shows all"))


def _describe_exceptions(difference: Difference) -> str:
    about = [
        *(["stamps"] if difference.stamps else []),
        *(["metadata"] if difference.metadata else []),
        *(["names of local functions"] if difference.functions else []),
        *(["data files"] if difference.files else []),
        *(["weights that are stored twice"] if any(it.change == "copied" for it in difference.weights) else []),
        *difference.beside,
    ]
    if about:
        return f" but for {join_phrases(about)}"
    return ", written down otherwise" if difference.old.sha256 != difference.new.sha256 else ""


def _count_unreadable(difference: Difference) -> str:
    return pluralize(sum(it.change == "unreadable" for it in difference.weights), "weight")


def _describe_counts(difference: Difference) -> Iterator[str]:
    if difference.interface or difference.ends:
        names = [
            *(f"{it.role} `{it.name}`" for it in difference.interface if it.name),
            *_changed_output_names(difference),
        ]
        yield f"{join_phrases(names, MAX_NAMED)} changed" if names else "the order of inputs or outputs"
    for stamp in difference.stamps:
        if stamp.what.startswith("opset "):
            yield _version_change(stamp)
    if difference.functions:
        yield f"{pluralize(len(difference.functions), 'local function')} changed"
    if difference.nodes:
        yield count_node_changes(difference)
    if difference.weights:
        yield count_weight_changes(difference)


def _changed_output_names(difference: Difference) -> Iterator[str]:
    interface_names = {it.name for it in difference.interface}
    return (f"output `{it.output}`" for it in difference.ends if it.output not in interface_names and not it.scope)


def _interface_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.interface:
        yield OutlineLine(*_interface_change(it))
    for end in difference.ends:
        within = f"{describe_scope(end.scope)}: " if end.scope else ""
        origins = f"comes from {truncate(end.after)}, came from {truncate(end.before)}"
        yield OutlineLine("~", f"{within}output `{truncate(end.output)}` {origins}")


def _interface_change(it: InterfaceChange) -> tuple[Sign, str]:
    name = f"{it.role} `{truncate(it.name)}`"
    match it.change:
        case "added":
            return "+", f"{name}: {describe_value(it.after)}"
        case "removed":
            return "-", f"{name}: {describe_value(it.before)}"
        case "renamed":
            return "~", f"{name}, was `{truncate(it.was)}`{f': {truncate(it.text)}' if it.text else ''}"
        case "reordered":
            return "~", f"{it.role}s: {truncate(it.text)}"
        case _:
            return "~", f"{name}: {truncate(it.text)}"


def describe_value(value: ValueInfo | None) -> str:
    """Return type and shape: `tensor(float) [batch, 3]`."""
    if value is None:
        return ""
    shape = "of unknown rank" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return truncate(f"{value.type or 'of no type'} {shape}")


def _version_change(it: Changed) -> str:
    if it.before is None:
        return f"{truncate(it.what)} {truncate(it.after or '')}, was not there"
    return f"{truncate(it.what)} is gone, was {truncate(it.before)}" if it.after is None else _value_change(it)


def _value_change(it: Changed) -> str:
    return f"{truncate(it.what)} {truncate(it.after or '')}, was {truncate(it.before or '')}"


def _changed_line(it: Changed, *, quoted: bool = False) -> OutlineLine:
    sign: Sign = "+" if it.before is None else "-" if it.after is None else "~"
    if not quoted:
        return OutlineLine(sign, _version_change(it))
    values = [f"`{truncate(value, 80)}`" for value in (it.after, it.before) if value is not None]
    return OutlineLine(sign, f"`{truncate(it.what)}`: {', was '.join(values)}")


def _operator_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.operators:
        sign: Sign = "+" if not it.before else "-" if not it.after else "~"
        yield OutlineLine(sign, f"`{truncate(it.operator)}`: {it.after:,}, was {it.before:,}")


def _function_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.functions:
        sign: Sign = "+" if it.change == "added" else "-" if it.change == "removed" else "~"
        more = f", was `{truncate(it.was)}`" if it.was else f": {truncate(it.text)}" if it.text else ""
        yield OutlineLine(sign, f"`{truncate(it.name)}`{more}")


def _file_lines(difference: Difference) -> Iterator[OutlineLine]:
    old, new = difference.old.size_bytes, difference.new.size_bytes
    if old != new:
        yield OutlineLine("~", f"the model's file: {new:,} bytes, was {old:,} ({_size_growth(old, new)})")
    for it in difference.files:
        yield _changed_line(it, quoted=True)


def _size_growth(old: int, new: int) -> str:
    return f"{'+' * (new > old)}{format_two_digits(100 * (new - old) / old)} %" if old else "was empty"
