"""Findings and fixes that the rules about unsupported operators have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxgate.core.advice import Advice
from onnxgate.core.findings import Hit, OnRuntime, follows_from
from onnxgate.core.text import join_phrases
from onnxgate.evidence.support import RefusedOperation
from onnxgate.support.matching.operations import (
    AttributeAddition,
    AttributeRemoval,
    DomainImport,
    FeatureChange,
    FunctionExpansion,
    NodeChange,
    OperatorReplacement,
    OpsetChange,
    Suggestion,
    TypeCast,
)
from onnxgate.support.matching.probed.node_matching import LOCAL_FUNCTION
from onnxgate.support.matching.probed.tract_dynamic_sizes import BOUNDS, DYNAMIC_SIZE

RECURRENT_OPERATORS = ("GRU", "LSTM", "RNN")
_FIXES: Mapping[str, Advice] = {
    "float8 fusion": "set `session.disable_quant_qdq` to `1` in the session options, so that nodes are not fused",
    "no bias": "add a bias of zeros to `LayerNormalization`",
    BOUNDS: "set the input `axes` of `Slice` to a constant",
    DYNAMIC_SIZE: "export the model with a fixed value of this size",
    LOCAL_FUNCTION: "inline the local functions, for example with `onnx.inliner.inline_local_functions`",
}
"""What a support gap is about (`SupportGap.about`) -> its fix, whatever rule reports it."""
_FUSED_FOR_FLOATS = frozenset({"FusedGemm", "FusedMatMul", "QuickGelu", "Relu"})
"""Operators that nodes are fused into, and that accept floats, but not the type of these nodes."""

_CHANGES: Mapping[str, str] = {
    "value": "use another value of {name}",
    "given": "set the input {name} of {operator}",
    "set": "set the attribute {name}",
    "rank": "declare the shape of the input {name} of {operator}",
    "not model input": "use tensors as inputs of the model instead of {name}",
    "not model output": "return tensors from the model instead of {name}",
    "unused": "do not use the output {name} of {operator}",
    "omitted": "remove the input {name} of {operator} if the result stays the same",
    "unset": "remove {name} if the result stays the same",
}
"""Kind of `FeatureChange` -> the change in words."""


def create_refusal_hits(
    subject: RefusedOperation, rule: str, default_fix: Advice, *, causes: Sequence[str] = ()
) -> Iterator[Hit]:
    """Yield a finding if `rule` is the rule that reports the unsupported operation.

    `default_fix` is its fix if there is no better suggestion.
    """
    if subject.rule != rule:
        return
    if subject.about in _FUSED_FOR_FLOATS:
        operator = subject.operator
        default_fix = f"cast the inputs of `{operator}` to `float`, and cast the result back (may lose precision)"
    yield Hit(
        subject.place,
        f"{subject.problem}: {subject.nodes.words}" if subject.operator else subject.problem,
        model=subject.model,
        node=subject.nodes.name,
        fix=", or ".join(_describe_way(way, subject) for way in subject.ways.suggestions)
        or _FIXES.get(subject.about, default_fix),
        on=OnRuntime(
            subject.runtimes[0],
            subject.detail,
            works_since=subject.ways.works_since,
            works_until=subject.ways.works_until,
            others=subject.runtimes[1:],
        ),
        topic=subject.problem,
        relations=follows_from(*causes) if subject.opset_too_new else (),
        identity=f"{subject.operator} {subject.about}",
    )


def _describe_way(way: Suggestion, subject: RefusedOperation) -> str:
    match way:
        case OpsetChange(domain, version, whole):
            scope = "the whole model" if whole else "this operator"
            limits = "" if subject.ways.everywhere else " (ignoring runtimes without support data)"
            of_domain = "" if domain == "ai.onnx" else f" of `{domain}`"
            return f"export at opset {version}{of_domain}, at which {subject.ways.required} {scope}{limits}"
        case TypeCast(_, to, exact, back, inputs):
            remark = "" if exact else " (may lose precision)"
            if not inputs:
                return f"compute the result as `{to}` and cast it back{remark}"
            names = join_phrases([f"`{name}`" for name in dict.fromkeys(inputs)])
            result = ", and cast the result back" if back else ""
            noun = "input" if len(inputs) == 1 else "inputs"
            return f"cast the {noun} {names} of `{subject.operator}` to `{to}`{result}{remark}"
        case FunctionExpansion():
            return f"replace `{subject.operator}` with the operators of its ONNX function definition"
        case OperatorReplacement(domain, name, inputs, attributes):
            words = ", ".join(f'`{attribute}` = "{value}"' for attribute, value in attributes)
            operator = name if domain == "ai.onnx" else f"{domain}.{name}"
            order = ", ".join("empty" if place is None else str(place + 1) for place in inputs or ())
            with_inputs = f"; its inputs are the current inputs ({order})" if order else ""
            return f"use `{operator}` instead{f', with {words}' if words else ''}{with_inputs}"
        case DomainImport(domain, version):
            scope = "the local function" if subject.nodes.function else "the model"
            return f"import version {version} of domain `{domain}` in {scope}"
        case AttributeAddition(attributes):
            return " and ".join(f"set attribute `{name}` ({kind})" for name, kind in attributes)
        case NodeChange(changes):
            return join_phrases([*_describe_changes(changes, subject.operator)])
        case AttributeRemoval(attribute):
            if subject.operator in RECURRENT_OPERATORS and attribute == "layout":
                return "remove `layout`, and transpose inputs and outputs so that the time axis comes first"
            if (subject.operator, attribute) == ("Resize", "axes"):
                return "add the rank of the input to negative `axes`"
            return f"remove `{attribute}` if the result stays the same"


def _describe_changes(changes: Sequence[FeatureChange], operator: str) -> Iterator[str]:
    if constant := [f"`{change.name}`" for change in changes if change.kind == "constant"]:
        inputs, constants = ("input", "a constant") if len(constant) == 1 else ("inputs", "constants")
        yield f"make the {inputs} {join_phrases(constant)} of `{operator}` {constants}"
    for change in changes:
        if change.kind != "constant":
            yield _CHANGES[change.kind].format(name=f"`{change.name}`", operator=f"`{operator}`")
