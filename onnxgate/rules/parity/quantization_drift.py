"""The rule `quantization-drift`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, follows_from
from onnxgate.core.text import join_phrases
from onnxgate.evidence.parity import Comparison, Layer, find_mismatches
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import describe_outputs, describe_worst


@rule(Comparison, "quantization-drift", level=Level.ERROR, since="0.1.0")
def quantization_drift(subject: Comparison) -> Iterator[Hit]:
    """
    A quantized model lost more of the float model than it may.

    Both are run on the same inputs. What is held is the ratio of signal to noise, the cosine, and the share of rows in
    which both agree on the largest element; never single elements, which are off by a step without harm. The bounds are
    what `onnxgate lock --measure` recorded, less a margin; without a record 20 dB, 0.99 and 98 %.

    ## Why it matters
    Calibration data that do not reach the values of use clip them; a scale for a whole tensor can hide the channels
    that matter. Every tool reports success, and the model answers.

    ## What to do
    The message names the layers that add most noise by themselves. A layer whose values are clipped needs calibration
    data like those of use; one that keeps few decibels without being clipped needs a scale for each channel, or has to
    stay in float. If the loss is accepted, `onnxgate lock --measure` records it, and only a further loss is a finding.
    Give real inputs with `inputs`: generated ones lie where calibration data may not.
    """
    mismatches = find_mismatches(subject)
    if subject.pair != "quantized" or not mismatches:
        return
    worst = []
    for layer in subject.layers:
        clipped = f", {layer.clipped:.0%} of it clipped" if layer.clipped >= 0.01 else ""
        worst.append(f"{_name_layer(layer)} ({layer.lost_here_db:.3g} dB kept there{clipped})")
    most = f"; most is lost at {join_phrases(worst)}" if worst else ""
    yield Hit(
        (subject.layers[0].place if subject.layers else None) or subject.place,
        f"{describe_outputs(mismatches).replace('differ', 'drift')} from that of `{subject.reference}`{most}",
        model=subject.model,
        node=subject.layers[0].node if subject.layers else "",
        fix=_suggest_fix(subject),
        on=OnRuntime(subject.runtime, describe_worst(subject)),
        relations=follows_from("quantization-invalid", "runtime-mismatch", *_optimization_rules(subject)),
        identity=f"quantized {subject.reference} {describe_outputs(mismatches)}",
    )


def _optimization_rules(subject: Comparison) -> tuple[str, ...]:
    """Return the rule about the optimiser if not every level loses."""
    failing = {mismatch.optimization for mismatch in find_mismatches(subject)}
    levels = {difference.optimization for difference in subject.differences}
    return ("optimization-mismatch",) if failing < levels else ()


def _name_layer(layer: Layer) -> str:
    node = f"`{layer.operator}` node `{layer.node}`" if layer.node else f"the `{layer.operator}`"
    match layer.kind:
        case "input":
            return f"the input `{layer.tensor}` of {node}" if layer.operator else f"the input `{layer.tensor}`"
        case "weight":
            return f"the weight `{layer.tensor}` of {node}"
        case _:
            return f"the output of {node}" if layer.node else f"`{layer.tensor}`, made by {node}"


def _suggest_fix(subject: Comparison) -> str:
    accept = f"`onnxgate lock --measure {shlex.quote(subject.model)}` if this much is accepted"
    if subject.layers and subject.layers[0].clipped >= 0.01:
        return f"calibrate it with inputs like those of use, or run {accept}"
    return f"quantize it by channel, leave the named layers in float, or run {accept}"
