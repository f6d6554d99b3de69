"""The rule `load-failed`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnxgate.evidence.faults import gravest, node_of, place_of, saying, within_memory, words
from onnxgate.evidence.runtime import Alone, Attempt, ModelRuns
from onnxgate.findings import Claim, Hit, Level, Said, unnumbered
from onnxgate.rules.registry import rule

EXPLAINED_BY: Mapping[str, tuple[str, ...]] = {
    "ir": ("ir-version-too-new",),
    "opset": ("opset-too-new", "opset-experimental"),
    "no_kernel": ("missing-kernel",),
    "no_op": ("unknown-operator", "unknown-domain"),
    "no_import": ("unknown-domain",),
    "deprecated": ("deprecated-operator",),
    "type": ("type-mismatch",),
    "attribute": ("attribute-unsupported",),
    "arity": ("attribute-unsupported",),
    "constructor": ("attribute-unsupported",),
    "ext_policy": ("external-data-refused",),
    "ext_missing": ("external-data-refused",),
}
"""Family of the runtime's text -> the rules that predict it."""
OF_NODES = frozenset(EXPLAINED_BY) - {"ir", "opset", "ext_policy", "ext_missing"}
"""Families that the rules about single nodes predict."""

MEMORY = "raise `memory-mib` in `[limits]` if the model may take that much"
LACKING = "export with operators that every runtime knows, or raise the target's version"
OTHERWISE = "export it without what is refused, or narrow the target to releases that load it"
"""Where nobody knows the text."""


@rule(ModelRuns, "load-failed", level=Level.ERROR, since="0.1.0")
def load_failed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A runtime refuses to load a model, and no prediction explains why.

    An engine that lists all operators that it does not have is asked no further: each one is a finding. Where a runtime
    does not name the node, and where its kernels are not known, the nodes are loaded alone: each one that is refused is
    a finding.

    ## Why it matters
    Whoever uses the model on that release gets an exception in place of a session.

    ## What to do
    The runtime's own words are in the message, with the node and its source line where they name one. They are about
    the first thing only that the runtime does not take. `onnxgate explain --log FILE` translates a longer log.
    """
    attempts = gravest(subject)
    if not attempts or attempts[0].outcome != "load-refused":
        return
    found = [each for each in subject.alone if each.outcome == "refused" and not each.rule]
    told = {level for each in found for level in each.explains}
    explained = [each for each in attempts if _explained_by(each, subject)]
    rest = [each for each in attempts if each not in explained and each.optimization not in told]
    yield from _lacking(rest, subject)
    rest = [each for each in rest if not each.unsupported]
    yield from (_stopped(each, subject) for each in (explained, rest) if each)
    yield from (_refused(each, attempts, subject) for each in found)


def _explained_by(attempt: Attempt, subject: ModelRuns) -> tuple[Said, ...]:
    """The predictions of what the model is refused for at one level.

    Where nodes were loaded alone, what is predicted of nodes explains only what these nodes are refused for.
    """
    if subject.alone and attempt.family in OF_NODES:
        causes = [each for each in subject.alone if each.rule and attempt.optimization in each.explains]
        return tuple(Claim(each.rule, each.claim) for each in causes)
    return EXPLAINED_BY.get(attempt.family, ())


def _stopped(attempts: Sequence[Attempt], subject: ModelRuns) -> Hit:
    """What the runtime stops at, in its own words."""
    node = node_of(attempts)
    memory = within_memory(attempts, subject)
    at_node = f": it stops at node `{node}`" if node else ""
    explained = (_explained_by(each, subject) for each in attempts)
    return Hit(
        place_of(subject, node),
        f"does not load{memory}{at_node}",
        model=subject.model,
        node=node,
        fix=MEMORY if memory else attempts[0].fix or OTHERWISE,
        runtime=subject.runtime,
        detail=_saying(attempts, subject),
        explained_by=tuple(dict.fromkeys(said for each in explained for said in each)),
        confirms=_confirmed(subject),
        identity=f"{attempts[0].family} {unnumbered(node)}",
    )


def _lacking(attempts: Sequence[Attempt], subject: ModelRuns) -> Iterator[Hit]:
    """Each operator that an engine which lists them all does not have."""
    for attempt in attempts[:1]:
        for each in attempt.unsupported:
            yield Hit(
                each.place or subject.place,
                f"does not load: `{each.operator}` is refused{f': {each.words}' if each.words else ''}",
                model=subject.model,
                node=each.node,
                fix=LACKING,
                runtime=subject.runtime,
                detail=_saying([attempt], subject),
                identity=f"operator {each.operator}",
            )


def _refused(alone: Alone, attempts: Sequence[Attempt], subject: ModelRuns) -> Hit:
    """A node that is refused alone, and that nothing predicted."""
    stopping = [each for each in attempts if each.optimization in alone.explains]
    return Hit(
        alone.place or subject.place,
        f"does not load: `{alone.operator}` is refused: {alone.words}",
        model=subject.model,
        node=alone.node,
        fix=alone.fix or OTHERWISE,
        runtime=subject.runtime,
        detail=_saying(stopping, subject) if stopping else f"says `{words(alone.failure)}`",
        confirms=_confirmed(subject),
        identity=f"{alone.family} operator {alone.operator}",
    )


def _saying(attempts: Sequence[Attempt], subject: ModelRuns) -> str:
    """What is said; at which level, too, where the model is refused for something else at another."""
    refused = {each.optimization for each in gravest(subject)}
    levels = {each.optimization for each in attempts}
    if levels == refused:
        return saying(attempts, subject)
    meaning = f" ({attempts[0].means})" if attempts[0].means else ""
    return f"says `{words(attempts[0].failure)}`{meaning} with optimisation `{min(levels)}`"


def _confirmed(subject: ModelRuns) -> tuple[Claim, ...]:
    """The predictions of nodes that are refused alone, whether or not the model is refused for them first."""
    return tuple(Claim(each.rule, each.claim) for each in subject.alone if each.rule and each.outcome == "refused")
