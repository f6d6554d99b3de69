"""The rule `quantization-drift`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, Level, OnRuntime, follows_from
from onnxgate.core.text import join_phrases, quote_path
from onnxgate.evidence.parity import Comparison, Layer, MissingActivation, WrongWeight, find_mismatches
from onnxgate.rules.definition import rule
from onnxgate.rules.parity._mismatches import describe_outputs, describe_worst, join_outputs

MAX_NAMED = 5
"""Maximum number of weights or activations in a message."""


@rule(Comparison, "quantization-drift", level=Level.ERROR, since="0.1.0")
def quantization_drift(subject: Comparison) -> Iterator[Hit]:
    """
    A quantized model differs too much from its float model.

    ## Why it matters
    Quantization tools report success even if they clip values that occur in practice. The signal-to-noise ratio, cosine
    similarity and top-1 agreement must reach the values recorded in the lock. If the lock contains no such values, they
    must reach 20 dB, 0.99 and 98 %. In addition, the stored weights must be the weights of the float model, except for
    rounding. Weights are not compared if the quantization tool changed most of them. Quantization tools remove a `Relu`
    or `Clip` if all quantized values are in its range; this rule reports removed activations that would change values.

    ## What to do
    - Configure real `inputs` in `onnxgate.toml`, and calibrate clipped layers with realistic data.
    - Quantize per channel, or do not quantize the layers shown in the finding.
    - To accept the loss, record the current values in the lock: `onnxgate lock --measure MODEL`.
    """
    mismatches = find_mismatches(subject)
    if subject.pair != "quantized":
        return
    yield from _find_wrong_weights(subject)
    yield from _find_missing_activations(subject)
    if not mismatches:
        return
    worst = []
    for layer in subject.layers:
        clipped = f", {layer.clipped * 100:.0f} % clipped" if layer.clipped >= 0.01 else ""
        worst.append(f"{_name_layer(layer)} ({layer.lost_here_db:.3g} dB{clipped})")
    largest = f"; largest loss at {join_phrases(worst)}" if worst else ""
    yield Hit(
        (subject.layers[0].place if subject.layers else None) or subject.place,
        f"{describe_outputs(mismatches).replace('differ', 'drift')} from `{subject.reference}`{largest}",
        model=subject.model,
        node=subject.layers[0].node if subject.layers else "",
        fix=_suggest_fix(subject),
        on=OnRuntime(subject.runtime, describe_worst(subject)),
        relations=follows_from("quantization-invalid", "runtime-mismatch", *_optimization_rules(subject)),
        identity=f"{subject.reference} {join_outputs(mismatches)}",
    )


def _find_wrong_weights(subject: Comparison) -> Iterator[Hit]:
    """Yield one finding if stored weights differ from the float model by more than rounding."""
    wrong = subject.wrong_weights
    if not wrong:
        return
    yield Hit(
        subject.place,
        f"stored weights differ from `{subject.reference}` by more than rounding: "
        f"{_join_first(list(map(_describe_weight, wrong)))}",
        model=subject.model,
        fix=f"quantize or convert `{subject.reference}` again",
        on=OnRuntime(subject.runtime),
        identity=f"{subject.reference} weights {' '.join(sorted({weight.weight for weight in wrong}))}",
    )


def _find_missing_activations(subject: Comparison) -> Iterator[Hit]:
    """Yield one finding if the quantized model lacks activations of the float model."""
    missing = subject.missing_activations
    if not missing:
        return
    yield Hit(
        subject.place,
        f"activations of `{subject.reference}` were removed, but the scale or zero point does not replace them: "
        f"{_join_first(list(map(_describe_activation, missing)))}",
        model=subject.model,
        fix=f"quantize `{subject.reference}` again",
        on=OnRuntime(subject.runtime),
        identity=f"{subject.reference} activations {' '.join(sorted(activation.tensor for activation in missing))}",
    )


def _join_first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return f"{', '.join(texts[:MAX_NAMED])}{more}"


def _describe_activation(activation: MissingActivation) -> str:
    node = f"`{activation.operator}` node `{activation.node}`" if activation.node else f"a `{activation.operator}`"
    bound = "at least" if activation.value < activation.limit else "at most"
    return f"`{activation.tensor}` contains {activation.value:.3g} ({node} returns {bound} {activation.limit:.3g})"


def _describe_weight(weight: WrongWeight) -> str:
    name = f"`{weight.weight}`" if weight.channel is None else f"channel {weight.channel} of `{weight.weight}`"
    if weight.shift:
        return f"{name} is shifted by {weight.shift:.2g} quantization steps, as by a wrong zero point"
    ratio = f"{weight.factor:.3g}"
    return f"{name} is {ratio} times as large" if ratio != "1" else f"{name} has other values"


def _optimization_rules(subject: Comparison) -> tuple[str, ...]:
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
            return f"the output of {node}" if layer.node else f"`{layer.tensor}`, computed by {node}"


def _suggest_fix(subject: Comparison) -> str:
    accept = f"`onnxgate lock --measure {quote_path(subject.model)}` to accept the loss"
    if subject.layers and subject.layers[0].clipped >= 0.01:
        return f"calibrate the model with realistic inputs, or run {accept}"
    if subject.layers:
        return f"quantize the model per channel, do not quantize the layers with the largest loss, or run {accept}"
    return f"quantize the model per channel, or run {accept}"
