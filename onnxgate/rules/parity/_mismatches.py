"""Describe the mismatches of a comparison in words common to all runtimes, and in one runtime's figures."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence

from onnxgate.core.findings import Place
from onnxgate.evidence.parity import Comparison, Difference, FirstDifference, find_mismatches, find_worst

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


def describe_outputs(differences: Sequence[Difference]) -> str:
    """ "output `y` differs", "outputs `a`, `b` differ", "the number of outputs differs"."""
    names = list(dict.fromkeys(difference.output for difference in differences))
    if "" in names:
        return "the number of outputs differs"
    listed = ", ".join(f"`{name}`" for name in names)
    return f"output {listed} differs" if len(names) == 1 else f"outputs {listed} differ"


def create_identity(comparison: Comparison) -> str:
    """Return what identifies a mismatch: its outputs and its reference, without figures and releases."""
    reference = comparison.reference if comparison.pair in ("source", "quantized") else ""
    return f"{comparison.pair} {reference} {describe_outputs(find_mismatches(comparison))}"


def suggest_acceptance(differences: Sequence[Difference]) -> str:
    """Suggest how the config accepts a difference of this size.

    Integers and booleans need a tolerance for the output by name. Texts have none.
    """
    exact = [difference for difference in differences if difference.metric == "mismatched elements"]
    named = dict.fromkeys(mismatch.output for mismatch in exact if not _is_text(mismatch))
    if exact and not named:
        return "ignore the finding if this much is accepted: words have no tolerance"
    if not named:
        return "set `tolerance` for the model if this much is accepted"
    form = ", ".join(f"{_toml_key(name)} = {{ rtol = 0, atol = 20 }}" for name in named)
    return f"set `tolerance = {{ {form} }}`, or how far it may be, for the model if this much is accepted"


def _is_text(difference: Difference) -> bool:
    """A detail quotes words as Python does: "at [0]: 'cat' against 'cut'"."""
    return difference.detail.partition("]: ")[2].startswith(("'", '"'))


def _toml_key(name: str) -> str:
    """A name as a key of TOML."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def describe_worst(comparison: Comparison) -> str:
    """Describe the worst figure of a mismatch, its bound with its origin, the case and the level."""
    mismatches = find_mismatches(comparison)
    mismatch = find_worst(mismatches)
    return f"{_describe_difference(mismatch)} in `{mismatch.case}`{_describe_level(mismatches, comparison)}"


def _describe_figures(difference: Difference) -> str:
    """Describe further figures of a difference: " (cosine 0.999, 12 dB, argmax agrees in 3 of 8 rows)"."""
    mismatches = {figure.metric: figure.value for figure in difference.figures}
    said = (
        [f"cosine {_format_ratio(mismatches['cosine'])}"]
        if "cosine" in mismatches and difference.metric != "cosine"
        else []
    )
    if "sqnr_db" in mismatches and difference.metric != "sqnr_db":
        said.append(f"{mismatches['sqnr_db']:.3g} dB")
    rows = int(mismatches.get("rows", 0))
    if rows and "top1" in mismatches:
        said.append(f"argmax agrees in {round(mismatches['top1'] * rows)} of {rows} {'row' if rows == 1 else 'rows'}")
    masked = int(mismatches.get("masked elements", 0))
    said += [f"{masked} masked elements left out"] if masked else []
    return f" ({', '.join(said)})" if said else ""


def _format_ratio(value: float) -> str:
    """Four digits, and as many more as it takes not to say 1 of what is less."""
    return next(text for digits in (4, 6, 9, 17) if (text := f"{value:.{digits}g}") != "1" or value == 1)


def _describe_difference(difference: Difference) -> str:
    where, _, counted = difference.detail.partition("; ")
    match difference.metric:
        case "worst_abs":
            allowed = f"{difference.bound:.2g} is allowed {BOUND_SOURCES[difference.bound_from]}"
            return f"is off by {difference.value:.2g}{_describe_figures(difference)}, where {allowed},"
        case "mismatched elements":
            allowed = (
                f", where {difference.bound:g} may {BOUND_SOURCES[difference.bound_from]}" if difference.bound else ""
            )
            return f"is off: {counted or where}{allowed},"
        case "not finite":
            return f"gives {where.partition(': ')[2]}"
        case "sqnr_db":
            needed = f"{difference.bound:.3g} dB are needed {_requirement_source(difference)}"
            return f"keeps {difference.value:.3g} dB{_describe_figures(difference)}, where {needed},"
        case "cosine":
            needed = f"{_format_ratio(difference.bound)} is needed {_requirement_source(difference)}"
            return (
                f"keeps a cosine of {_format_ratio(difference.value)}{_describe_figures(difference)}, where {needed},"
            )
        case "top1":
            needed = f"{difference.bound:.3g} is needed {_requirement_source(difference)}"
            share = f"{difference.value:.3g}{_describe_figures(difference)}"
            return f"keeps the largest element in a share of {share}, where {needed},"
        case _:
            return f"gives {difference.detail}"


def _requirement_source(difference: Difference) -> str:
    return REQUIREMENT_SOURCES[difference.bound_from]


def _describe_level(mismatches: Sequence[Difference], comparison: Comparison) -> str:
    here = {mismatch.optimization for mismatch in mismatches}
    elsewhere = {difference.optimization for difference in comparison.differences} - here
    return f" with optimisation `{min(here)}`, not with `{min(elsewhere)}`" if elsewhere else ""


def describe_first_node(comparison: Comparison) -> str:
    """ "; first at node `x` (MatMul)", "" if it is not known."""
    first = comparison.first
    if first is None:
        return f"; {comparison.at_no_node}" if comparison.at_no_node else ""
    return f"; first at {_describe_node(first)}{f', {first.detail}' if first.detail else ''}"


def _describe_node(first: FirstDifference) -> str:
    return (
        f"node `{first.node}` ({first.operator})" if first.node else f"the {first.operator} that makes `{first.output}`"
    )


def describe_first_values(comparison: Comparison) -> str:
    """ "; at that node the inputs are equal, and the output `v` is off by 0.3", "" if it is not known."""
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


def find_first_place(comparison: Comparison) -> Place:
    """Return the source line that made the node, or the comparison's place."""
    place = comparison.first.place if comparison.first else None
    return place or comparison.place


def find_first_node(comparison: Comparison) -> str:
    """The node's name, "" if it is not known."""
    return comparison.first.node if comparison.first else ""
