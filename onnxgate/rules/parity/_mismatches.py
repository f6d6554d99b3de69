"""Describe the mismatches of a comparison in words common to all runtimes, and in one runtime's figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, OnRuntime, Relation
from onnxgate.core.text import join_quoted, pluralize
from onnxgate.evidence.parity import Comparison, Difference, find_mismatches, find_worst

BOUND_SOURCES = {
    "config": "by `tolerance`",
    "lock": "as measured from its source",
    "type": "by default for its type",
}
REQUIREMENT_SOURCES = {
    "config": "by `tolerance`",
    "lock": "by what the lock recorded",
    "type": "by default for quantized models",
}


def create_mismatch_hits(
    comparison: Comparison, pair: str, words: str, fix: str, *, note: str = "", relations: tuple[Relation, ...] = ()
) -> Iterator[Hit]:
    """Yield the hit if the comparison is of this pair and its outputs differ; `words` name the reference."""
    mismatches = find_mismatches(comparison)
    if comparison.pair != pair or not mismatches:
        return
    first = comparison.first
    reference = comparison.reference if pair == "source" else ""
    yield Hit(
        (first.place if first else None) or comparison.place,
        f"{describe_outputs(mismatches)} {words}{describe_first_node(comparison)}{note}",
        model=comparison.model,
        node=first.node if first else "",
        fix=f"{fix}, or {suggest_acceptance(mismatches)}",
        on=OnRuntime(comparison.runtime, describe_worst(comparison) + describe_first_values(comparison)),
        identity=f"{pair} {reference} {describe_outputs(mismatches)}",  # without figures and releases
        relations=relations,
    )


def describe_outputs(differences: Sequence[Difference]) -> str:
    """Return "output `y` differs", "outputs `a`, `b` differ" or "the number of outputs differs"."""
    names = list(dict.fromkeys(difference.output for difference in differences))
    if "" in names:
        return "the number of outputs differs"
    return f"output {join_quoted(names)} differs" if len(names) == 1 else f"outputs {join_quoted(names)} differ"


def suggest_acceptance(differences: Sequence[Difference]) -> str:
    """Suggest how the config accepts a difference of this size.

    Integers and booleans need a tolerance for the output by name. Texts have none.
    """
    exact = [difference for difference in differences if difference.metric == "mismatched elements"]
    named = dict.fromkeys(  # a detail quotes words as Python does: "at [0]: 'cat' against 'cut'"
        mismatch.output for mismatch in exact if not mismatch.detail.partition("]: ")[2].startswith(("'", '"'))
    )
    if exact and not named:
        return "ignore the finding if this much is accepted: words have no tolerance"
    if not named:
        return "set `tolerance` for the model if this much is accepted"
    keys = (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False) for name in named)
    form = ", ".join(f"{key} = {{ rtol = 0, atol = 20 }}" for key in keys)
    return f"set `tolerance = {{ {form} }}`, or how far it may be, for the model if this much is accepted"


def describe_worst(comparison: Comparison) -> str:
    """Describe the worst figure of a mismatch, its bound with its origin, the case and the level."""
    mismatches = find_mismatches(comparison)
    mismatch = find_worst(mismatches)
    levels = {mismatch.optimization for mismatch in mismatches}
    others = {difference.optimization for difference in comparison.differences} - levels
    at_level = f" with optimisation `{min(levels)}`, not with `{min(others)}`" if others else ""
    return f"{_describe_difference(mismatch)} in `{mismatch.case}`{at_level}"


def _describe_figures(difference: Difference) -> str:
    """Describe further figures of a difference: " (cosine 0.999, 12 dB, argmax agrees in 3 of 8 rows)"."""
    figures = {figure.metric: figure.value for figure in difference.figures}
    words = []
    if "cosine" in figures and difference.metric != "cosine":
        words.append(f"cosine {_format_ratio(figures['cosine'])}")
    if "sqnr_db" in figures and difference.metric != "sqnr_db":
        words.append(f"{figures['sqnr_db']:.3g} dB")
    rows = int(figures.get("rows", 0))
    if rows and "top1" in figures:
        words.append(f"argmax agrees in {round(figures['top1'] * rows)} of {pluralize(rows, 'row')}")
    if masked := int(figures.get("masked elements", 0)):
        words.append(f"{masked} masked elements left out")
    return f" ({', '.join(words)})" if words else ""


def _format_ratio(value: float) -> str:
    """Return four digits, or as many more as distinguish a ratio from 1."""
    return next(text for digits in (4, 6, 9, 17) if (text := f"{value:.{digits}g}") != "1" or value == 1)


def _describe_difference(difference: Difference) -> str:
    position, _, counted = difference.detail.partition("; ")
    required = f"needed {REQUIREMENT_SOURCES[difference.bound_from]},"
    match difference.metric:
        case "worst_abs":
            allowed = f"{difference.bound:.2g} is allowed {BOUND_SOURCES[difference.bound_from]}"
            return f"is off by {difference.value:.2g}{_describe_figures(difference)}, where {allowed},"
        case "mismatched elements":
            allowed = (
                f", where {difference.bound:g} may {BOUND_SOURCES[difference.bound_from]}" if difference.bound else ""
            )
            return f"is off: {counted or position}{allowed},"
        case "not finite":
            return f"gives {position.partition(': ')[2]}"
        case "sqnr_db":
            figures = f"{difference.value:.3g} dB{_describe_figures(difference)}"
            return f"keeps {figures}, where {difference.bound:.3g} dB are {required}"
        case "cosine":
            figures = f"{_format_ratio(difference.value)}{_describe_figures(difference)}"
            return f"keeps a cosine of {figures}, where {_format_ratio(difference.bound)} is {required}"
        case "top1":
            share = f"{difference.value:.3g}{_describe_figures(difference)}"
            return f"keeps the largest element in a share of {share}, where {difference.bound:.3g} is {required}"
        case _:
            return f"gives {difference.detail}"


def describe_first_node(comparison: Comparison) -> str:
    """Return "; first at node `x` (MatMul)", "" if it is not known."""
    first = comparison.first
    if first is None:
        return f"; {comparison.at_no_node}" if comparison.at_no_node else ""
    node = (
        f"node `{first.node}` ({first.operator})" if first.node else f"the {first.operator} that makes `{first.output}`"
    )
    return f"; first at {node}{f', {first.detail}' if first.detail else ''}"


def describe_first_values(comparison: Comparison) -> str:
    """Return "; at that node the inputs are equal, and the output `v` is off by 0.3", "" if it is not known."""
    first = comparison.first
    if first is None:
        return ""
    inputs = f"agree to {first.before_share:.1g} of their largest value" if first.before else "are equal"
    output = f"is off by {first.value:.2g}, {first.share:.1g} of its largest value"
    if math.isfinite(first.value) and not math.isfinite(first.share):
        output = f"is off by {first.value:.2g} where the other is 0 throughout"
    elif not math.isfinite(first.share):
        output = "cannot be subtracted from the other"
    return f"; at that node the inputs {inputs}, and the output `{first.output}` {output}"
