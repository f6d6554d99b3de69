"""The rule `run-failed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Advice, correct_constant
from onnxgate.core.findings import Hit, Level, OnRuntime, mask_numbers
from onnxgate.core.text import join_quoted
from onnxgate.evidence.runtime import ModelRuns, WrongConstant
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import (
    describe_failure,
    describe_memory_limit,
    find_broken_sizes,
    find_failing_node,
    find_failing_place,
    select_refused_attempts,
)

INVALID_NODE_FIX = (
    Action(
        "correct the shapes or attributes of the node, which other releases reject when they load the model, or export "
        "the model again",
        everywhere=True,
    ),
)


@rule(ModelRuns, "run-failed", level=Level.ERROR, since="0.1.0")
def run_failed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model loads on a runtime but fails to run.

    ## Why it matters
    The usual cause is a node that receives a shape or value that it does not support. Such errors occur only at run
    time.

    ## What to do
    - Inspect the node shown in the finding, fix the source, and export the model again.
    - If the finding names a wrong constant, correct it: the node fails with all inputs.
    - If other releases reject the same node when they load the model, correct its shapes or attributes.
    - If the model supports only certain inputs, configure them in `onnxgate.toml`: `inputs = "samples/*.npz"`, or
      `sizes = { time = [16, 50] }`.
    """
    attempts = select_refused_attempts(subject)
    if not attempts or find_broken_sizes(subject):
        return
    wrong = attempts[0].refusal.wrong_constant
    node = find_failing_node(attempts) if wrong is None else wrong.node
    memory = describe_memory_limit(attempts, subject)
    at_node = f" (node `{node}`)" if node else ""
    if wrong is not None:
        at_node = f" because {wrong.fault} (`{wrong.operator}`, {wrong.words})"
    names = dict.fromkeys(attempt.case.name for attempt in attempts)
    levels = {attempt.optimization for attempt in attempts}
    others_run = any(run.outcome == "completed" and run.optimization in levels for run in subject.attempts)
    named = names if attempts[0].case.sizes or others_run else ()
    case = f" with {join_quoted(named)}" if named else ""
    yield Hit(
        (wrong.place if wrong is not None else None) or find_failing_place(subject, node),
        f"loads but fails to run{case}{memory}{at_node}",
        model=subject.model,
        node=node,
        fix=_suggest_fix(attempts[0].case.origin, memory, wrong, is_invalid=node in subject.invalid_nodes),
        on=OnRuntime(subject.runtime, describe_failure(attempts, subject)),
        identity=f"{' '.join(named)} {'memory' if memory else ''} {mask_numbers(node)}",
    )


def _suggest_fix(origin: str, memory: str, wrong: WrongConstant | None, *, is_invalid: bool) -> Advice:
    if wrong is not None:
        return correct_constant(wrong.operator)
    if memory:
        return "raise `memory-mib` in `[limits]` if this memory usage is acceptable"
    if is_invalid:  # no inputs are valid
        return INVALID_NODE_FIX
    if origin == "generated":
        return (
            "export the model again; if the model supports only some inputs, set `inputs` or `sizes` in `onnxgate.toml`"
        )
    if origin == "user":
        return "export the model again so that it accepts these inputs, or set different `inputs`"
    return "export the model again with shapes that match these inputs"
