"""Write the differences between two models as plain text or Markdown, with the same sections and lines."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from onnxgate.core.escape import escape_markdown, markdown_code, neutralize_commands
from onnxgate.core.text import LONG_LIMIT, join_phrases, pluralize, truncate
from onnxgate.formats.text import Terminal
from onnxgate.model.diff.result import Changed, Difference, InterfaceChange, NodeChange, WeightChange
from onnxgate.model.facts import ValueInfo

Sign = Literal["+", "-", "~", ""]
SIGN_STYLES = {"+": "pass", "-": "fail", "~": "warning"}
SIGN_MARKS = {"+": "➕ ", "-": "➖ ", "~": "✏️ ", "": ""}
MAX_LINES = 20
"""Maximum number of lines in a section of the output of `onnxgate diff`; further lines are only counted."""
MAX_NAMED = 3
"""Maximum number of nodes or weights that a sentence names; the others are only counted."""
NODE_CHANGES = {word: word for word in ("added", "removed", "replaced", "changed")}
WEIGHT_CHANGES = {
    **{word: word for word in ("changed", "added", "removed")},
    "copied": "duplicated",
    "unreadable": "not compared",
}
"""Kind of change to a weight -> word for it, in the order in which a summary lists them."""
ROUNDING_CHANGE = 1e-6
"""Float weights whose relative L2 change is below this value are considered to differ only by rounding."""


@dataclass(frozen=True, slots=True)
class OutlineLine:
    """One line of a list of differences, and the lines that are nested below it. Names in `text` are in backticks."""

    sign: Sign
    text: str
    children: tuple[OutlineLine, ...] = ()


Section = tuple[str, str, tuple[OutlineLine, ...]]
"""A section of the output of `onnxgate diff`: title, summary of the changes, and lines."""


def format_text(
    difference: Difference, *, color: bool = False, width: int = 0, quiet: bool = False, verbose: bool = False
) -> str:
    """Render the differences between two models as plain text.

    `width` is the terminal width in columns; with 0, lines are not wrapped. With `quiet`, render only the
    headline; with `verbose`, render complete lists.
    """
    paper = Terminal(color, width)
    names = f"{truncate(difference.old.name)} -> {truncate(difference.new.name)}"
    lines = list(paper.wrapped(f"{names}: {truncate(render_headline(difference), LONG_LIMIT)}", 0))
    if not quiet:
        for title, summary, outline in list_sections(difference, most=0 if verbose else MAX_LINES):
            lines += ["", paper.ink(title, "heading") + (f": {summary}" if summary else "")]
            for line in outline:
                lines += _render_text_line(line, paper, 2)
    return "\n".join(neutralize_commands(line) for line in [*lines, ""])


def _render_text_line(line: OutlineLine, paper: Terminal, indent: int) -> Iterator[str]:
    sign = f"{line.sign} " if line.sign else ""
    first, *rest = paper.wrapped(line.text, indent + len(sign))
    mark = f"{paper.ink(line.sign, SIGN_STYLES[line.sign])} " if sign else ""
    yield f"{' ' * indent}{mark}{first[indent + len(sign) :]}"
    yield from rest
    for child in line.children:
        yield from _render_text_line(child, paper, indent + 2 + len(sign))


def format_markdown(difference: Difference, *, verbose: bool = False) -> str:
    """Render the differences between two models as Markdown, without a heading. With `verbose`, lists are complete."""
    names = " → ".join(markdown_code(truncate(side.name)) for side in (difference.old, difference.new))
    lines = [f"{names}: **{escape_markdown(truncate(render_headline(difference), LONG_LIMIT))}**"]
    for title, summary, outline in list_sections(difference, most=0 if verbose else MAX_LINES):
        lines += ["", f"**{title.capitalize()}**" + (f": {escape_markdown(summary)}" if summary else ""), ""]
        for line in outline:
            lines += _render_markdown_line(line, 0)
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_line(line: OutlineLine, depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}- {SIGN_MARKS[line.sign]}{escape_markdown(line.text)}"
    for child in line.children:
        yield from _render_markdown_line(child, depth + 1)


def render_headline(difference: Difference) -> str:
    """Return the result of the comparison of two models in one sentence."""
    match difference.verdict:
        case "identical":
            return "identical: the files are byte-identical"
        case "same":
            return f"equivalent{_describe_exceptions(difference)}"
        case "undecided":
            unreadable = pluralize(sum(it.change == "unreadable" for it in difference.weights), "weight")
            rest = _describe_exceptions(difference)
            return f"undecided: {unreadable} could not be compared; the rest is equivalent{rest}"
        case _:
            return f"different: {'; '.join(_describe_counts(difference))}"


def _describe_exceptions(difference: Difference) -> str:
    aspects = {
        "version fields": difference.version_fields,
        "metadata": difference.metadata,
        "names of local functions": difference.functions,
        "data files": difference.files,
        "duplicated weights": any(it.change == "copied" for it in difference.weights),
    }
    exceptions = [*(aspect for aspect, differs in aspects.items() if differs), *difference.harmless]
    if exceptions:
        return f" except for {join_phrases(exceptions)}"
    return ", serialized differently" if difference.old.sha256 != difference.new.sha256 else ""


def _describe_counts(difference: Difference) -> Iterator[str]:
    if difference.interface or difference.ends:
        interface_names = {it.name for it in difference.interface}
        names = [f"{it.role} `{it.name}`" for it in difference.interface if it.name]
        names += [
            f"output `{it.output}`" for it in difference.ends if it.output not in interface_names and not it.scope
        ]
        yield f"{join_phrases(names, MAX_NAMED) if names else 'order of inputs or outputs'} changed"
    yield from (_version_change(it) for it in difference.version_fields if it.what.startswith("opset "))
    if difference.functions:
        yield f"{pluralize(len(difference.functions), 'local function')} changed"
    if difference.nodes:
        yield f"nodes: {_count_changes(difference.nodes, NODE_CHANGES)}"
    if difference.weights:
        yield f"weights: {_count_changes(difference.weights, WEIGHT_CHANGES)}"


def list_sections(difference: Difference, *, most: int) -> Iterator[Section]:
    """Yield the sections that contain changes, each with at most `most` lines; with 0, the number is not limited."""
    node_summary = _summarize_changes(difference.nodes, NODE_CHANGES, difference.new.nodes)
    weight_summary = _summarize_changes(difference.weights, WEIGHT_CHANGES, difference.new.weights)
    sections: tuple[tuple[str, str, Iterable[OutlineLine]], ...] = (
        ("interface", "", _interface_lines(difference)),
        ("version fields", "", (_changed_line(it) for it in difference.version_fields)),
        ("metadata", "", (_changed_line(it, quoted=True) for it in difference.metadata)),
        ("operators", "", _operator_lines(difference)),
        ("local functions", "", _function_lines(difference)),
        ("nodes", node_summary, _node_lines(difference, most)),
        ("weights", weight_summary, _weight_lines(difference, complete=not most)),
        ("files", "", _file_lines(difference)),
        ("differences without effect", "", (OutlineLine("", text) for text in difference.harmless)),
    )
    for title, summary, outline in sections if difference.verdict != "identical" else ():
        lines = tuple(outline)
        if most and len(lines) > most + 1 and title != "nodes":  # nodes are limited separately
            lines = (*lines[:most], OutlineLine("", f"and {len(lines) - most:,} more (use `-v` to show all)"))
        if lines:
            yield title, summary, lines


def _interface_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.interface:
        yield OutlineLine(*_interface_change(it))
    for end in difference.ends:
        within = f"{_describe_scope(end.scope)}: " if end.scope else ""
        origins = f"is computed by {truncate(end.after)}, previously by {truncate(end.before)}"
        yield OutlineLine("~", f"{within}output `{truncate(end.output)}` {origins}")


def _interface_change(it: InterfaceChange) -> tuple[Sign, str]:
    name = f"{it.role} `{truncate(it.name)}`"
    match it.change:
        case "added":
            return "+", f"{name}: {_describe_value(it.after)}"
        case "removed":
            return "-", f"{name}: {_describe_value(it.before)}"
        case "renamed":
            renamed = f"{it.role} `{truncate(it.was)}` renamed to `{truncate(it.name)}`"
            return "~", f"{renamed}: {truncate(it.text)}" if it.text else renamed
        case "reordered":
            return "~", f"{it.role}s: {truncate(it.text)}"
        case _:
            return "~", f"{name}: {truncate(it.text)}"


def _describe_value(value: ValueInfo | None) -> str:
    if value is None:
        return ""
    shape = "unknown rank" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return truncate(f"{value.type or 'unknown type'} {shape}")


def _changed_line(it: Changed, *, quoted: bool = False) -> OutlineLine:
    sign: Sign = "+" if it.before is None else "-" if it.after is None else "~"
    if not quoted:
        return OutlineLine(sign, _version_change(it))
    values = [f"`{truncate(value, 80)}`" for value in (it.before, it.after) if value is not None]
    return OutlineLine(sign, f"`{truncate(it.what)}`: {' → '.join(values)}")


def _version_change(it: Changed) -> str:
    before, after = truncate(it.before or ""), truncate(it.after or "")
    if it.before is None:
        return f"{truncate(it.what)} {after} added"
    return f"{truncate(it.what)} {before} {'removed' if it.after is None else f'→ {after}'}"


def _operator_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.operators:
        sign: Sign = "+" if not it.before else "-" if not it.after else "~"
        yield OutlineLine(sign, f"`{truncate(it.operator)}`: {it.before:,} → {it.after:,}")


def _function_lines(difference: Difference) -> Iterator[OutlineLine]:
    for it in difference.functions:
        sign: Sign = "+" if it.change == "added" else "-" if it.change == "removed" else "~"
        name = f"`{truncate(it.was)}` renamed to `{truncate(it.name)}`" if it.was else f"`{truncate(it.name)}`"
        yield OutlineLine(sign, f"{name}: {truncate(it.text)}" if it.text else name)


def _file_lines(difference: Difference) -> Iterator[OutlineLine]:
    old, new = difference.old.size_bytes, difference.new.size_bytes
    if old != new:
        growth = f"{'+' * (new > old)}{_format_two_digits(100 * (new - old) / old)} %" if old else "previously empty"
        yield OutlineLine("~", f"model file: {old:,} → {new:,} bytes ({growth})")
    yield from (_changed_line(it, quoted=True) for it in difference.files)


def _format_two_digits(number: float) -> str:
    """Format a number with two significant digits. Numbers from 99.5 are rounded to integers, to avoid exponents."""
    return f"{number:,.0f}" if abs(number) >= 99.5 else f"{number:.2g}"


def _count_changes(changes: Sequence[NodeChange | WeightChange], words: Mapping[str, str]) -> str:
    counts: Counter[str] = Counter(it.change for it in changes)
    return ", ".join(f"{counts[change]:,} {word}" for change, word in words.items() if counts[change])


def _summarize_changes(changes: Sequence[NodeChange | WeightChange], words: Mapping[str, str], total: int) -> str:
    """Return a phrase such as `3 added, 1 changed, 38 unchanged`; "" if there are no changes.

    `total` is the number of nodes or weights in the new model.
    """
    unchanged = max(total - sum(it.change != "removed" for it in changes), 0)
    return f"{_count_changes(changes, words)}, {unchanged:,} unchanged" if changes else ""


def _node_lines(difference: Difference, most: int) -> Iterator[OutlineLine]:
    """Yield lines about the changed nodes, grouped by graph.

    If there are more than `most` changed nodes, the first lines state how many nodes of each operator have changed.
    """
    shown = difference.nodes[:most] if most and len(difference.nodes) > most + 1 else difference.nodes
    left_out = len(difference.nodes) - len(shown)
    if left_out:
        yield from _count_by_operator(difference.nodes)
    for scope, nodes in itertools.groupby(shown, key=lambda it: it.scope):
        lines = map(_node_line, nodes)
        yield from [OutlineLine("", f"in {_describe_scope(scope)}", tuple(lines))] if scope else lines
    if left_out:
        yield OutlineLine("", f"and {left_out:,} more (use `-v` to show all)")


def _describe_scope(scope: tuple[str, ...]) -> str:
    return truncate(" / ".join(scope))


def _count_by_operator(nodes: Sequence[NodeChange]) -> Iterator[OutlineLine]:
    for change in NODE_CHANGES:
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
    details = tuple(OutlineLine("", truncate(detail.text)) for detail in it.details)
    match it.change:
        case "added":
            return OutlineLine("+", f"{name}{_describe_neighbors(it)}")
        case "removed":
            return OutlineLine("-", f"{name}{_describe_neighbors(it, was=True)}")
        case "replaced":
            was = _operator_and_name(it.was, it.was_name if it.was_name != it.name else "")
            return OutlineLine("~", f"{name} replaces {was}", details)
        case _:
            line = OutlineLine("~", f"{name} (was `{truncate(it.was_name)}`)" if it.was_name else name, details)
            return replace(line, text=f"{line.text}: {details[0].text}", children=()) if len(details) == 1 else line


def _operator_and_name(operator: str, name: str) -> str:
    return f"`{truncate(operator)}` `{truncate(name)}`" if name else f"`{truncate(operator)}`"


def _describe_neighbors(it: NodeChange, *, was: bool = False) -> str:
    """Describe the nodes before and after a node, such as ` (between Conv and Relu)`; `was` selects the past tense."""
    sources, targets = [truncate(text) for text in it.reads], [truncate(text) for text in it.feeds]
    verb = "was " if was else ""
    if it.inserted and sources and targets:
        if len(targets) == 1:
            return f" ({verb}between {sources[0]} and {targets[0]})"
        return f" ({verb}after {sources[0]}, before {join_phrases(targets, MAX_NAMED)})"
    inputs = join_phrases(sources, MAX_NAMED) if sources else "weights only"
    outputs = join_phrases(targets, MAX_NAMED) if targets else "not used"
    return f" (inputs: {inputs}; output: {outputs})"


def _weight_lines(difference: Difference, *, complete: bool) -> Iterator[OutlineLine]:
    """Yield lines about the changed weights, largest changes first.

    More than MAX_NAMED weights that differ only by rounding share one line, as do copies of other weights.
    """
    order = {"unreadable": 0, "changed": 1, "added": 2, "removed": 3, "copied": 4}
    rounded = [
        it
        for it in difference.weights
        if it.change == "changed" and it.relative is not None and it.relative < ROUNDING_CHANGE
        if (it.type, it.shape) == (it.was_type, it.was_shape)
    ]
    copied = [it for it in difference.weights if it.change == "copied"]
    groups = [group for group in (rounded, copied) if len(group) > MAX_NAMED and not complete]
    gathered = [it for group in groups for it in group]

    def largest_first(it: WeightChange) -> tuple[int, float]:
        return order[it.change], -math.inf if it.relative is None else -it.relative

    for it in sorted(difference.weights, key=largest_first):
        if it not in gathered:
            yield OutlineLine(*_describe_weight(it))
    for group in groups:
        names = join_phrases([f"`{truncate(it.name)}`" for it in group], MAX_NAMED)
        if group is rounded:
            limit = _format_ratio(ROUNDING_CHANGE)
            yield OutlineLine("~", f"{len(group):,} weights with a relative L2 change below {limit}: {names}")
        else:
            yield OutlineLine("+", f"{len(group):,} copies of other weights: {names}")


def _describe_weight(it: WeightChange) -> tuple[Sign, str]:
    name = f"`{truncate(it.name)}`"
    form, was_form = _describe_form(it.type, it.shape), _describe_form(it.was_type, it.was_shape)
    match it.change:
        case "added":
            return "+", f"{name} {form}{_describe_content(it.values, it.sha256)}"
        case "removed":
            return "-", f"{name} {was_form}{_describe_content(it.was_values, it.was_sha256)}"
        case "copied":
            return "+", f"{name} {form} is a copy of `{truncate(it.was)}`"
        case _:
            was = f" (was `{truncate(it.was)}`)" if it.was else ""
            forms = f"{was_form} → {form}" if form != was_form else form
            return "~", f"{name}{was} {forms}: {'; '.join(_describe_weight_change(it))}"


def _describe_form(kind: str, shape: tuple[int, ...]) -> str:
    return f"{kind} [{', '.join(map(str, shape))}]" if shape else kind


def _describe_content(values: str, sha256: str) -> str:
    return f" = {truncate(values)}" if values else f", sha256 {sha256[:12]}" if sha256 else ""


def _describe_weight_change(it: WeightChange) -> Iterator[str]:
    if it.text:
        yield truncate(it.text)
    if it.values and it.was_values and it.values != it.was_values:
        yield f"{truncate(it.was_values)} → {truncate(it.values)}"
    elif it.total and not it.elements:
        yield "all elements are equal" if it.type == it.was_type else "all elements are equal after type conversion"
    elif it.total:
        relative = f"relative L2 change {_format_ratio(it.relative)}, " if it.relative is not None else ""
        largest = f", max difference {it.largest:.3g}" if it.largest is not None else ""
        total = f"{it.total:,} element{'s' * (it.total != 1)}"
        yield f"{relative}{it.elements:,} of {total} changed{largest}"
    elif it.change == "changed" and not it.text:
        yield f"sha256 {it.was_sha256[:12]} → {it.sha256[:12]}"


def _format_ratio(ratio: float) -> str:
    return f"{ratio:.2g}"
