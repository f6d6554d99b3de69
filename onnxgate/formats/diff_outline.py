"""What every format says alike of a difference: an outline of sections, their lines and what stands below these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from onnxgate.formats.phrases import count, short
from onnxgate.model.difference import Changed, Difference, InterfaceChange, NodeChange, WeightChange
from onnxgate.model.facts import ValueInfo

MOST = 20
"""So many lines of a section are shown; the rest is counted."""
_NAMED = 3
_ROUNDED = 1e-6
"""A float weight that moved by less, by its length, is what another machine would have rounded so."""
_MEBIBYTE = 1024 * 1024

Sign = Literal["+", "-", "~", ""]


@dataclass(frozen=True, slots=True)
class Line:
    """One line; literals in it stand in back-ticks. `children` stand below it."""

    sign: Sign
    text: str
    children: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """One aspect of the models, with how much of it changed."""

    title: str
    summary: str
    lines: tuple[Line, ...]


def headline(found: Difference) -> str:
    """The difference in one sentence."""
    match found.verdict:
        case "identical":
            return "the same model: the files are equal, byte for byte"
        case "same":
            return f"the same model{_but_for(found)}"
        case "undecided":
            return f"no difference was found, but {_unread(found)} could not be compared{_but_for(found)}"
        case _:
            return f"different: {'; '.join(_counts(found))}"


def sections(found: Difference, *, most: int = MOST) -> Iterator[Section]:
    """The outline; sections without anything to say are left out. `most` is 0 for all lines."""
    made = (
        Section("interface", "", tuple(_interface(found))),
        Section("stamps", "", tuple(_changed(it) for it in found.stamps)),
        Section("metadata", "", tuple(_changed(it, quoted=True) for it in found.metadata)),
        Section("operators", "", tuple(_operators(found))),
        Section("local functions", "", tuple(_functions(found))),
        Section("nodes", _node_summary(found), tuple(_nodes(found, most))),
        Section("weights", _weight_summary(found), tuple(_weights(found, whole=not most))),
        Section("files", "", tuple(_files(found))),
        Section("and makes no difference", "", tuple(Line("", text) for text in found.beside)),
    )
    for section in made:
        if section.lines:
            limited = section.lines if section.title == "nodes" else _limited(section.lines, most)
            yield Section(section.title, section.summary, limited)


def _limited(lines: tuple[Line, ...], most: int) -> tuple[Line, ...]:
    if not most or len(lines) <= most + 1:
        return lines
    return (*lines[:most], Line("", f"and {len(lines) - most:,} more; `-v` shows all"))


def _but_for(found: Difference) -> str:
    about = [
        *(["stamps"] if found.stamps else []),
        *(["metadata"] if found.metadata else []),
        *(["names of local functions"] if found.functions else []),
        *(["data files"] if found.files else []),
        *(["weights that are stored twice"] if any(it.change == "copied" for it in found.weights) else []),
        *found.beside,
    ]
    if about:
        return f" but for {_listed(about, len(about))}"
    return ", written down otherwise" if found.old.sha256 != found.new.sha256 else ""


def _unread(found: Difference) -> str:
    return count(sum(it.change == "unreadable" for it in found.weights), "weight")


def _counts(found: Difference) -> Iterator[str]:
    if found.interface or found.ends:
        names = [*(f"{it.role} `{it.name}`" for it in found.interface if it.name), *_end_names(found)]
        yield f"{_listed(names, _NAMED)} changed" if names else "the order of inputs or outputs"
    for stamp in found.stamps:
        if stamp.what.startswith("opset "):
            yield _stamp(stamp)
    if found.functions:
        yield f"{count(len(found.functions), 'local function')} changed"
    if found.nodes:
        yield _node_tally(found)
    if found.weights:
        yield _weight_tally(found)


def _end_names(found: Difference) -> Iterator[str]:
    told = {it.name for it in found.interface}
    return (f"output `{it.output}`" for it in found.ends if it.output not in told and not it.scope)


def _listed(names: Sequence[str], most: int) -> str:
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _interface(found: Difference) -> Iterator[Line]:
    for it in found.interface:
        yield Line(*_side(it))
    for end in found.ends:
        within = f"{_scope(end.scope)}: " if end.scope else ""
        text = f"{within}output `{short(end.output)}` comes from {short(end.after)}, came from {short(end.before)}"
        yield Line("~", text)


def _side(it: InterfaceChange) -> tuple[Sign, str]:
    name = f"{it.role} `{short(it.name)}`"
    match it.change:
        case "added":
            return "+", f"{name}: {value_text(it.after)}"
        case "removed":
            return "-", f"{name}: {value_text(it.before)}"
        case "renamed":
            return "~", f"{name}, was `{short(it.was)}`{f': {short(it.text)}' if it.text else ''}"
        case "reordered":
            return "~", f"{it.role}s: {short(it.text)}"
        case _:
            return "~", f"{name}: {short(it.text)}"


def value_text(value: ValueInfo | None) -> str:
    """Its type and shape: `tensor(float) [batch, 3]`."""
    if value is None:
        return ""
    shape = "of unknown rank" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    return short(f"{value.type or 'of no type'} {shape}")


def _stamp(it: Changed) -> str:
    if it.before is None:
        return f"{short(it.what)} {short(it.after or '')}, was not there"
    return f"{short(it.what)} is gone, was {short(it.before)}" if it.after is None else _is_was(it)


def _is_was(it: Changed) -> str:
    return f"{short(it.what)} {short(it.after or '')}, was {short(it.before or '')}"


def _changed(it: Changed, *, quoted: bool = False) -> Line:
    sign: Sign = "+" if it.before is None else "-" if it.after is None else "~"
    if not quoted:
        return Line(sign, _stamp(it))
    values = [f"`{short(value, 80)}`" for value in (it.after, it.before) if value is not None]
    return Line(sign, f"`{short(it.what)}`: {', was '.join(values)}")


def _operators(found: Difference) -> Iterator[Line]:
    for it in found.operators:
        sign: Sign = "+" if not it.before else "-" if not it.after else "~"
        yield Line(sign, f"`{short(it.operator)}`: {it.after:,}, was {it.before:,}")


def _functions(found: Difference) -> Iterator[Line]:
    for it in found.functions:
        sign: Sign = "+" if it.change == "added" else "-" if it.change == "removed" else "~"
        more = f", was `{short(it.was)}`" if it.was else f": {short(it.text)}" if it.text else ""
        yield Line(sign, f"`{short(it.name)}`{more}")


def _node_tally(found: Difference) -> str:
    counts = Counter(it.change for it in found.nodes)
    said = [f"{counts[word]:,} {word}" for word in ("added", "removed", "replaced", "changed") if counts[word]]
    return f"nodes: {', '.join(said)}"


def _node_summary(found: Difference) -> str:
    there = sum(it.change != "removed" for it in found.nodes)
    return (
        f"{_node_tally(found).removeprefix('nodes: ')}; {found.new.nodes - there:,} as they were" if found.nodes else ""
    )


def _nodes(found: Difference, most: int) -> Iterator[Line]:
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
        yield Line("", f"in {_scope(scope)}", tuple(lines))
    else:
        yield from lines


def _scope(scope: tuple[str, ...]) -> str:
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
            yield Line("", f"{change}: {_listed(said, 8)}")


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
        return f"{stood}after {taken[0]}, before {_listed(given, _NAMED)}"
    which = "which " if stood else ""
    parts = [f"{reads} {_listed(taken, _NAMED)}" if taken else f"{reads} weights alone"]
    parts.append(f"{feeds} {_listed(given, _NAMED)}" if given else f"{feeds} nothing")
    return f", {which}{' and '.join(parts)}"


def _weight_tally(found: Difference) -> str:
    counts: Counter[str] = Counter(it.change for it in found.weights)
    words = {"changed": "changed", "added": "added", "removed": "removed", "copied": "stored again"}
    said = [f"{counts[change]:,} {word}" for change, word in words.items() if counts[change]]
    if counts["unreadable"]:
        said.append(f"{counts['unreadable']:,} that could not be compared")
    return f"weights: {', '.join(said)}"


def _weight_summary(found: Difference) -> str:
    if not found.weights:
        return ""
    there = sum(it.change != "removed" for it in found.weights)
    return f"{_weight_tally(found).removeprefix('weights: ')}; {max(found.new.weights - there, 0):,} as they were"


def _weights(found: Difference, *, whole: bool) -> Iterator[Line]:
    """Those that moved furthest first; such as are only rounded, and copies, in one line where there are many."""
    order = {"unreadable": 0, "changed": 1, "added": 2, "removed": 3, "copied": 4}
    rounded = [it for it in found.weights if _is_rounded(it)]
    copied = [it for it in found.weights if it.change == "copied"]
    gathered = [*(rounded if len(rounded) > _NAMED else ()), *(copied if len(copied) > _NAMED else ())]
    for it in sorted(found.weights, key=lambda it: (order[it.change], -(it.relative or 0))):
        if whole or it not in gathered:
            yield Line(*_weight(it))
    if not whole and len(rounded) > _NAMED:
        text = f"{len(rounded):,} weights moved by less than {_percent(_ROUNDED)} each: {_weight_names(rounded)}"
        yield Line("~", text)
    if not whole and len(copied) > _NAMED:
        yield Line("+", f"{len(copied):,} weights hold the same as another one: {_weight_names(copied)}")


def _is_rounded(it: WeightChange) -> bool:
    """It differs by no more than another machine's rounding."""
    same_form = (it.type, it.shape) == (it.was_type, it.was_shape)
    return it.change == "changed" and same_form and it.relative is not None and it.relative < _ROUNDED


def _weight_names(weights: Sequence[WeightChange]) -> str:
    return _listed([f"`{short(it.name)}`" for it in weights], _NAMED)


def _weight(it: WeightChange) -> tuple[Sign, str]:
    name = f"`{short(it.name)}`"
    form, was_form = _form(it.type, it.shape), _form(it.was_type, it.was_shape)
    match it.change:
        case "added":
            return "+", f"{name} {form}{_holding(it.values, it.sha256)}"
        case "removed":
            return "-", f"{name} {was_form}{_holding(it.was_values, it.was_sha256)}"
        case "copied":
            return "+", f"{name} {form} holds the same as `{short(it.was)}`"
        case _:
            was = f" (was `{short(it.was)}`)" if it.was else ""
            other = f"{form}, was {was_form}" if form != was_form else form
            return "~", f"{name}{was} {other}: {'; '.join(_moved(it))}"


def _form(kind: str, shape: tuple[int, ...]) -> str:
    return f"{kind} [{', '.join(map(str, shape))}]" if shape else kind


def _holding(values: str, sha256: str) -> str:
    return f" = {short(values)}" if values else f", sha256 {sha256[:12]}" if sha256 else ""


def _moved(it: WeightChange) -> Iterator[str]:
    if it.text:
        yield short(it.text)
    if it.values and it.was_values and it.values != it.was_values:
        yield f"{short(it.values)}, was {short(it.was_values)}"
    elif it.total:
        yield _distance(it)
    elif it.change == "changed" and not it.text:
        yield f"sha256 {it.sha256[:12]}, was {it.was_sha256[:12]}"


def _distance(it: WeightChange) -> str:
    if not it.elements:
        return "no element differs" if it.type == it.was_type else "no element moved by the other type"
    moved = f"moved by {_percent(it.relative)}, " if it.relative is not None else ""
    largest = f", by at most {it.largest:.3g}" if it.largest is not None else ""
    return f"{moved}{it.elements:,} of {count(it.total, 'element')}{largest}".replace(
        f"of {it.total} ", f"of {it.total:,} "
    )


def _percent(ratio: float) -> str:
    return f"{_two_figures(100 * ratio)} %" if ratio < 1 else f"{ratio:.3g} times its length"


def _two_figures(number: float) -> str:
    """Of a hundred and more all figures before the point: `1.1e+02` is none that is read."""
    return f"{number:,.0f}" if abs(number) >= 99.5 else f"{number:.2g}"


def _files(found: Difference) -> Iterator[Line]:
    old, new = found.old.size_bytes, found.new.size_bytes
    if old != new:
        yield Line("~", f"the model's file: {new:,} bytes, was {old:,} ({_growth(old, new)})")
    for it in found.files:
        yield _changed(it, quoted=True)


def _growth(old: int, new: int) -> str:
    return f"{'+' * (new > old)}{_two_figures(100 * (new - old) / old)} %" if old else "was empty"
