"""Messages about outputs that differ from their reference.

One part is the same for all runtimes; the other states the values measured on one runtime.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, OnRuntime, Relation
from onnxgate.core.text import join_quoted
from onnxgate.evidence.parity import CHOSEN, IN_FLOAT32, SELECTED, Comparison, Difference, find_mismatches, find_worst

BOUND_SOURCES = {
    "config": "set in the config",
    "lock": "measured from the source",
    "type": "default for the data type",
    "measured": "measured in this check",
}
REQUIREMENT_SOURCES = {
    "config": "set in the config",
    "lock": "recorded in the lock",
    "type": "default for quantized models",
    "measured": "measured in this check",
}

UNTOLERATED_METRICS = frozenset({"outputs", "shape", "type", "not finite"})
"""Metrics of differences that no `tolerance` accepts."""


def create_mismatch_hits(
    comparison: Comparison,
    pair: str,
    words: str,
    fix: str = "",
    *,
    note: str = "",
    relations: tuple[Relation, ...] = (),
) -> Iterator[Hit]:
    """Yield a finding if outputs differ, and if `pair` is the kind of the comparison, such as "source".

    `words` follow "differs" in the message, such as "from the source". Differences in float32 are those of the model,
    not of the runtime: only the newest runtime is compared in float32.
    """
    mismatches = find_mismatches(comparison)
    if comparison.pair != pair or not mismatches:
        return
    first = comparison.first
    values = describe_worst(comparison) + describe_first_values(comparison)
    is_widened = any(mismatch.detail == IN_FLOAT32 for mismatch in mismatches)
    shared = f"; the model {values}" if is_widened else ""
    yield Hit(
        (first.place if first else None) or comparison.place,
        f"{describe_outputs(mismatches)} {words}{describe_first_node(comparison)}{note}{shared}",
        model=comparison.model,
        node=first.node if first else "",
        fix=", or ".join(filter(None, (fix, suggest_acceptance(mismatches)))),
        on=None if is_widened else OnRuntime(comparison.runtime, values),
        identity=join_outputs(mismatches),
        relations=relations,
    )


def join_outputs(differences: Sequence[Difference]) -> str:
    """Return the names of the outputs that differ, as text for a fingerprint; "" if the number of outputs differs."""
    return " ".join(sorted({difference.output for difference in differences}))


def describe_outputs(differences: Sequence[Difference]) -> str:
    """Describe which outputs differ, such as "outputs `a`, `b` differ" or "the number of outputs differs"."""
    names = list(dict.fromkeys(difference.output for difference in differences))
    if "" in names:
        return "the number of outputs differs"
    return f"output {join_quoted(names)} differs" if len(names) == 1 else f"outputs {join_quoted(names)} differ"


def suggest_acceptance(differences: Sequence[Difference]) -> str:
    """Suggest a setting in the config that accepts the differences between outputs.

    Integer and boolean outputs need a tolerance that names the output. String outputs have no tolerance, and indices
    no useful one. That of a float16 model must allow the rounding in float16, which may be larger than a difference in
    float32.
    """
    if any(it.metric == "differing items" or it.detail == IN_FLOAT32 or it.note == CHOSEN for it in differences):
        return "accept the finding with an `[[ignore]]` entry"
    exact = [difference for difference in differences if difference.metric == "mismatched elements"]
    named = dict.fromkeys(  # the detail of a string output contains quotes: "at [0]: 'cat' instead of 'cut'"
        mismatch.output for mismatch in exact if not mismatch.detail.partition("]: ")[2].startswith(("'", '"'))
    )
    if exact and not named:
        return "accept the finding with an `[[ignore]]` entry, because strings have no tolerance"
    if {difference.metric for difference in differences} & UNTOLERATED_METRICS:
        return "accept the finding with an `[[ignore]]` entry, because no tolerance allows this difference"
    if not named and any(difference.bound_from == "config" for difference in differences):
        return "raise the model's `tolerance` in the config if the difference is acceptable"
    if not named:
        atol = _round_up(max((it.value for it in differences if it.metric == "worst_abs"), default=1e-3))
        form = f"tolerance = {{ rtol = 0, atol = {atol:g} }}"
        return f"set a tolerance above the difference, such as `{form}`, if the difference is acceptable"
    keys = (name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False) for name in named)
    form = ", ".join(f"{key} = {{ rtol = 0, atol = 20 }}" for key in keys)
    return f"set a tolerance above the difference, such as `tolerance = {{ {form} }}`, if the difference is acceptable"


def _round_up(value: float) -> float:
    """Round up to one significant digit, so that a tolerance of this size allows the difference."""
    unit = 10.0 ** math.floor(math.log10(value)) if 0 < value < math.inf else 0
    return math.ceil(value / unit) * unit if unit else 1e-3


def describe_worst(comparison: Comparison) -> str:
    """Describe the worst difference: value, bound and origin of the bound, input case and optimization level."""
    mismatches = find_mismatches(comparison)
    mismatch = find_worst(mismatches)
    levels = {mismatch.optimization for mismatch in mismatches}
    others = {difference.optimization for difference in comparison.differences} - levels
    at_level = f" (only with optimization `{min(levels)}`)" if others else ""
    use = "by which items are selected" if mismatch.note == SELECTED else "before it saturates"
    before = f" in `{mismatch.compared}`, {use}," if mismatch.compared else ""
    return f"{_describe_difference(mismatch)}{before} with `{mismatch.case}`{at_level}"


def _format_ratio(value: float) -> str:
    """Format a ratio near 1 with 4 digits, or with more digits if it would otherwise be rounded to 1."""
    return next(text for digits in (4, 6, 9, 17) if (text := f"{value:.{digits}g}") != "1" or value == 1)


def _describe_difference(difference: Difference) -> str:
    position, _, counted = difference.detail.partition("; ")
    required = REQUIREMENT_SOURCES.get(difference.bound_from, "")
    match difference.metric:
        case "worst_abs":
            tolerance = f"tolerance {difference.bound:.2g}, {BOUND_SOURCES[difference.bound_from]}"
            return f"differs by {difference.value:.2g} ({tolerance})"
        case "mismatched elements":
            elements = f"in {counted.removesuffix(' differ')}" if counted else position
            allowed = f" (allowed: {difference.bound:g}, {BOUND_SOURCES[difference.bound_from]})"
            return f"differs {elements}{allowed if difference.bound else ''}"
        case "differing items":
            return f"differs in {counted.removesuffix(' differ')}, such as {position}"
        case "not finite":
            return f"returns {position.partition(': ')[2]}"
        case "sqnr_db":
            precision = f" {difference.detail}" if difference.detail == IN_FLOAT32 else ""
            required = "default for float16" if precision and difference.bound_from == "type" else required
            return (
                f"has an SNR of {difference.value:.3g} dB{precision} (required: {difference.bound:.3g} dB, {required})"
            )
        case "cosine":
            cosine, bound = _format_ratio(difference.value), _format_ratio(difference.bound)
            return f"has a cosine similarity of {cosine} (required: {bound}, {required})"
        case "top1":
            return f"has a top-1 agreement of {difference.value:.3g} (required: {difference.bound:.3g}, {required})"
        case _:
            return f"returns {difference.detail}"


def describe_first_node(comparison: Comparison) -> str:
    """Return the node at which outputs start to differ, such as "; first difference at node `x` (MatMul)"."""
    first = comparison.first
    if first is None:
        return f"; {comparison.at_no_node}" if comparison.at_no_node else ""
    node = f"node `{first.node}`" if first.node else f"the node that produces `{first.output}`"
    return f"; first difference at {node} ({first.operator}){f', {first.detail}' if first.detail else ''}"


def describe_first_values(comparison: Comparison) -> str:
    """Describe the values at the node at which outputs start to differ; "" if the node or its values are unknown."""
    first = comparison.first
    if first is None or first.value == 0:
        return ""
    inputs = f"differ by at most {first.before_share:.1g} times their largest value" if first.before else "are equal"
    output = f"differs by {first.value:.2g} (relative to its largest value: {first.share:.1g})"
    if any(it.metric == "differing items" and it.compared == first.output for it in find_mismatches(comparison)):
        return f"; the node's inputs {inputs}, but its output `{first.output}` lists other items"
    if math.isfinite(first.value) and not math.isfinite(first.share):
        output = f"differs from 0 by {first.value:.2g}"
    elif not math.isfinite(first.share):
        output = "cannot be compared with the reference"
    return f"; the node's inputs {inputs}, but its output `{first.output}` {output}"
