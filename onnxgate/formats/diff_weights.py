"""What became of weights, line by line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from onnxgate.formats.diff_lines import NAMED, Line, Sign, listed, two_figures
from onnxgate.formats.phrases import count, short
from onnxgate.model.difference import Difference, WeightChange

_ROUNDED = 1e-6
"""A float weight that moved by less, by its length, is what another machine would have rounded so."""


def weight_tally(found: Difference) -> str:
    """`weights: 3 changed, 1 added`."""
    counts: Counter[str] = Counter(it.change for it in found.weights)
    words = {"changed": "changed", "added": "added", "removed": "removed", "copied": "stored again"}
    said = [f"{counts[change]:,} {word}" for change, word in words.items() if counts[change]]
    if counts["unreadable"]:
        said.append(f"{counts['unreadable']:,} that could not be compared")
    return f"weights: {', '.join(said)}"


def weight_summary(found: Difference) -> str:
    """The same without the word, and how many are as they were."""
    if not found.weights:
        return ""
    there = sum(it.change != "removed" for it in found.weights)
    return f"{weight_tally(found).removeprefix('weights: ')}; {max(found.new.weights - there, 0):,} as they were"


def weight_lines(found: Difference, *, whole: bool) -> Iterator[Line]:
    """Those that moved furthest first; such as are only rounded, and copies, in one line where there are many."""
    order = {"unreadable": 0, "changed": 1, "added": 2, "removed": 3, "copied": 4}
    rounded = [it for it in found.weights if _is_rounded(it)]
    copied = [it for it in found.weights if it.change == "copied"]
    gathered = [*(rounded if len(rounded) > NAMED else ()), *(copied if len(copied) > NAMED else ())]
    for it in sorted(found.weights, key=lambda it: (order[it.change], -_far(it))):
        if whole or it not in gathered:
            yield Line(*_weight(it))
    if not whole and len(rounded) > NAMED:
        text = f"{len(rounded):,} weights moved by less than {_percent(_ROUNDED)} each: {_weight_names(rounded)}"
        yield Line("~", text)
    if not whole and len(copied) > NAMED:
        yield Line("+", f"{len(copied):,} weights hold the same as another one: {_weight_names(copied)}")


def _far(it: WeightChange) -> float:
    """How far it moved; what has no distance, by its shape or by what it holds, went furthest."""
    return math.inf if it.relative is None else it.relative


def _is_rounded(it: WeightChange) -> bool:
    """It differs by no more than another machine's rounding."""
    same_form = (it.type, it.shape) == (it.was_type, it.was_shape)
    return it.change == "changed" and same_form and it.relative is not None and it.relative < _ROUNDED


def _weight_names(weights: Sequence[WeightChange]) -> str:
    return listed([f"`{short(it.name)}`" for it in weights], NAMED)


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
    return f"{two_figures(100 * ratio)} %" if ratio < 1 else f"{ratio:.3g} times its length"
