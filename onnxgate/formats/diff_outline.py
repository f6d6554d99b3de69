"""What every format says alike of a difference: an outline of sections, their lines and what stands below these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnxgate.formats.diff_lines import NAMED, Line, Sign, listed, two_figures
from onnxgate.formats.diff_nodes import node_lines, node_summary, node_tally, scope_words
from onnxgate.formats.diff_weights import weight_lines, weight_summary, weight_tally
from onnxgate.formats.phrases import count, short
from onnxgate.model.difference import Changed, Difference, InterfaceChange
from onnxgate.model.facts import ValueInfo

MOST = 20
"""So many lines of a section are shown; the rest is counted."""


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
        Section("nodes", node_summary(found), tuple(node_lines(found, most))),
        Section("weights", weight_summary(found), tuple(weight_lines(found, whole=not most))),
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
        return f" but for {listed(about, len(about))}"
    return ", written down otherwise" if found.old.sha256 != found.new.sha256 else ""


def _unread(found: Difference) -> str:
    return count(sum(it.change == "unreadable" for it in found.weights), "weight")


def _counts(found: Difference) -> Iterator[str]:
    if found.interface or found.ends:
        names = [*(f"{it.role} `{it.name}`" for it in found.interface if it.name), *_end_names(found)]
        yield f"{listed(names, NAMED)} changed" if names else "the order of inputs or outputs"
    for stamp in found.stamps:
        if stamp.what.startswith("opset "):
            yield _stamp(stamp)
    if found.functions:
        yield f"{count(len(found.functions), 'local function')} changed"
    if found.nodes:
        yield node_tally(found)
    if found.weights:
        yield weight_tally(found)


def _end_names(found: Difference) -> Iterator[str]:
    told = {it.name for it in found.interface}
    return (f"output `{it.output}`" for it in found.ends if it.output not in told and not it.scope)


def _interface(found: Difference) -> Iterator[Line]:
    for it in found.interface:
        yield Line(*_side(it))
    for end in found.ends:
        within = f"{scope_words(end.scope)}: " if end.scope else ""
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


def _files(found: Difference) -> Iterator[Line]:
    old, new = found.old.size_bytes, found.new.size_bytes
    if old != new:
        yield Line("~", f"the model's file: {new:,} bytes, was {old:,} ({_growth(old, new)})")
    for it in found.files:
        yield _changed(it, quoted=True)


def _growth(old: int, new: int) -> str:
    return f"{'+' * (new > old)}{two_figures(100 * (new - old) / old)} %" if old else "was empty"
