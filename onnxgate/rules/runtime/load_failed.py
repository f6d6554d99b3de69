"""The rule `load-failed`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from onnxgate.core.findings import (
    Hit,
    HitReference,
    Level,
    OnRuntime,
    confirms,
    explained_by,
    follows_from,
    mask_numbers,
)
from onnxgate.diagnostics.classification import shorten_failure
from onnxgate.evidence.runtime import Attempt, IsolatedNode, ModelRuns, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import (
    describe_failure,
    describe_memory_limit,
    find_failing_node,
    find_failing_place,
)

_RULES_BY_FAMILY: Mapping[str, tuple[str, ...]] = {
    "ir": ("ir-version-too-new",),
    "opset": ("opset-too-new", "opset-experimental"),
    "no_kernel": ("missing-kernel",),
    "no_op": ("unknown-operator", "unknown-domain"),
    "no_import": ("unknown-domain",),
    "deprecated": ("deprecated-operator",),
    "type": ("type-mismatch",),
    "interface_type": ("type-mismatch",),
    "attribute": ("attribute-unsupported",),
    "attribute_missing": ("attribute-unsupported",),
    "arity": ("attribute-unsupported",),
    "constructor": ("attribute-unsupported",),
    "ext_policy": ("external-data-refused",),
    "ext_missing": ("external-data-refused",),
}
RULES_BY_FAMILY: Mapping[str, tuple[str, ...]] = {
    **_RULES_BY_FAMILY,
    # Any predicted problem explains a refusal without a message.
    "no_message": tuple(sorted({*itertools.chain.from_iterable(_RULES_BY_FAMILY.values())})),
}
"""Family (kind) of a runtime's error text -> rules that predict errors of this family."""
INVALID_MODEL = HitReference("invalid-model")
"""An error of the file explains why a model does not load, whatever the runtime reports, unless it is ignored."""
NODE_FAMILIES = frozenset(RULES_BY_FAMILY) - {
    "ir",
    "opset",
    "ext_policy",
    "ext_missing",
    "interface_type",
    "no_message",
}
"""Families (kinds) of errors that rules about single nodes predict."""

NODE_PROBLEMS: Mapping[str, str] = {
    "no_kernel": "is not supported",
    "no_op": "is not supported",
    "no_import": "is in a domain that the model does not import",
    "deprecated": "is deprecated at the imported opset",
    "shape_inference": "fails shape or type inference",
    "type": "has input or output types that the runtime rejects",
    "attribute": "has attributes that the runtime rejects",
    "attribute_missing": "lacks a required attribute",
    "arity": "has too few or too many inputs or outputs",
}
"""Family (kind) of a runtime's error text about a node -> what is wrong with the node, as a verb phrase."""
DEFAULT_PROBLEM = "is rejected"
"""Verb phrase for errors of other families, such as constants that a kernel cannot use."""

MEMORY_FIX = "raise `memory-mib` in `[limits]` if this memory usage is acceptable"
OPERATOR_FIX = "export with operators that all required runtimes support"
DEFAULT_FIX = "change the part of the model that the runtime rejects"
"""Fix for errors whose text onnxgate does not know."""


@rule(ModelRuns, "load-failed", level=Level.ERROR, since="0.1.0")
def load_failed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model does not load on a runtime, for a reason that was not predicted.

    ## Why it matters
    Applications cannot create a session. Most runtimes report only the first problem in a model.

    ## What to do
    - Change or replace the node shown in the finding, or narrow the target to the releases that the
      finding names.
    - To explain all errors in the runtime's log, run `onnxgate explain --log FILE`.
    """
    attempts = select_worst_attempts(subject)
    if not attempts or attempts[0].outcome != "load-refused":
        return
    unpredicted = [node for node in subject.alone if node.outcome == "refused" and not node.rule]
    explained_levels = {level for node in unpredicted for level in node.explains}
    explained = [attempt for attempt in attempts if _find_predictions(attempt, subject)]
    rest = [
        attempt for attempt in attempts if attempt not in explained and attempt.optimization not in explained_levels
    ]
    yield from _create_operator_hits(rest, subject)
    rest = [attempt for attempt in rest if not attempt.refusal.unsupported]
    yield from (_create_stop_hit(group, subject) for group in (explained, rest) if group)
    yield from (_create_node_hit(node, attempts, subject) for node in unpredicted)


def _find_predictions(attempt: Attempt, subject: ModelRuns) -> tuple[HitReference, ...]:
    """Return the predicted findings that explain why a model does not load at one optimization level.

    If nodes were loaded individually, a prediction about a node explains only the failure of that node.
    """
    causes = [node for node in subject.alone if node.rule and attempt.optimization in node.explains]
    if causes or (subject.alone and attempt.refusal.family in NODE_FAMILIES):
        return tuple(HitReference(cause.rule, cause.claim) for cause in causes)
    return tuple(map(HitReference, RULES_BY_FAMILY.get(attempt.refusal.family, ())))


def _create_stop_hit(attempts: Sequence[Attempt], subject: ModelRuns) -> Hit:
    node = find_failing_node(attempts)
    memory = describe_memory_limit(attempts, subject)
    at_node = f" (fails at node `{node}`)" if node else ""
    predictions = (_find_predictions(attempt, subject) for attempt in attempts)
    return Hit(
        find_failing_place(subject, node),
        f"does not load{memory}{at_node}",
        model=subject.model,
        node=node,
        fix=MEMORY_FIX if memory else attempts[0].refusal.fix or DEFAULT_FIX,
        on=OnRuntime(subject.runtime, _describe_refusal(attempts, subject)),
        relations=(
            *follows_from(INVALID_MODEL),
            *explained_by(*dict.fromkeys(itertools.chain.from_iterable(predictions))),
            *confirms(*_list_confirmed_predictions(subject)),
        ),
        identity=f"{attempts[0].refusal.family} {mask_numbers(node)}",
    )


def _create_operator_hits(attempts: Sequence[Attempt], subject: ModelRuns) -> Iterator[Hit]:
    for attempt in attempts[:1]:
        for operator in attempt.refusal.unsupported:
            nodes = f" ({operator.words})" if operator.words else ""
            yield Hit(
                operator.place or subject.place,
                f"does not load: `{operator.operator}` is not supported{nodes}",
                model=subject.model,
                node=operator.node,
                fix=OPERATOR_FIX,
                on=OnRuntime(subject.runtime, _describe_refusal([attempt], subject)),
                relations=follows_from(INVALID_MODEL),
                identity=f"operator {operator.operator}",
            )


def _create_node_hit(alone: IsolatedNode, attempts: Sequence[Attempt], subject: ModelRuns) -> Hit:
    stopping = [attempt for attempt in attempts if attempt.optimization in alone.explains]
    problem = NODE_PROBLEMS.get(alone.refusal.family, DEFAULT_PROBLEM)
    return Hit(
        alone.place or subject.place,
        f"does not load: `{alone.operator}` {problem} ({alone.words})",
        model=subject.model,
        node=alone.node,
        fix=alone.refusal.fix or DEFAULT_FIX,
        on=OnRuntime(
            subject.runtime,
            _describe_refusal(stopping, subject) if stopping else f"reports `{shorten_failure(alone.refusal.failure)}`",
        ),
        relations=(*follows_from(INVALID_MODEL), *confirms(*_list_confirmed_predictions(subject))),
        identity=f"{alone.refusal.family} operator {alone.operator}",
    )


def _describe_refusal(attempts: Sequence[Attempt], subject: ModelRuns) -> str:
    """Describe why a model does not load, and at which optimization level if another level has a different reason."""
    refused = {worst_attempt.optimization for worst_attempt in select_worst_attempts(subject)}
    levels = {attempt.optimization for attempt in attempts}
    if levels == refused:
        return describe_failure(attempts, subject)
    meaning = f" ({attempts[0].refusal.means})" if attempts[0].refusal.means else ""
    return f"reports `{shorten_failure(attempts[0].refusal.failure)}`{meaning} with optimization `{min(levels)}`"


def _list_confirmed_predictions(subject: ModelRuns) -> tuple[HitReference, ...]:
    return tuple(
        HitReference(node.rule, node.claim) for node in subject.alone if node.rule and node.outcome == "refused"
    )
