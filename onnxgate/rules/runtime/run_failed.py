"""The rule `run-failed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, mask_numbers
from onnxgate.core.text import join_quoted
from onnxgate.evidence.runtime import ModelRuns
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import (
    describe_failure,
    describe_memory_limit,
    find_broken_sizes,
    find_failing_node,
    find_failing_place,
    select_refused_attempts,
)


@rule(ModelRuns, "run-failed", level=Level.ERROR, since="0.1.0")
def run_failed(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model loads on a runtime but does not run.

    ## Why it matters
    A shape or a type that is only known when the model runs does not fit, whatever the model's inputs and outputs say.

    ## What to do
    The message names the node, on the source line that made it where the exporter stamped one. If only special inputs
    can be run, give some as `.npz` files with `inputs`, or the sizes of dynamic axes with `sizes`, in `onnxgate.toml`.
    """
    attempts = select_refused_attempts(subject)
    if not attempts or find_broken_sizes(subject):
        return
    node = find_failing_node(attempts)
    memory = describe_memory_limit(attempts, subject)
    at_node = f": it stops at node `{node}`" if node else ""
    names = join_quoted(dict.fromkeys(attempt.case.name for attempt in attempts))
    levels = {attempt.optimization for attempt in attempts}
    others_run = any(run.outcome == "completed" and run.optimization in levels for run in subject.attempts)
    case = f" on {names}" if attempts[0].case.sizes or others_run else ""
    yield Hit(
        find_failing_place(subject, node),
        f"loads but does not run{case}{memory}{at_node}",
        model=subject.model,
        node=node,
        fix=_suggest_fix(attempts[0].case.origin, memory),
        on=OnRuntime(subject.runtime, describe_failure(attempts, subject)),
        identity=f"{case} {'memory' if memory else ''} {mask_numbers(node)}",
    )


def _suggest_fix(origin: str, memory: str) -> str:
    if memory:
        return "raise `memory-mib` in `[limits]` if the model may take that much"
    if origin == "generated":
        return "export it again; if only some inputs can be run, name them with `inputs` or `sizes` in `onnxgate.toml`"
    if origin == "user":
        return "export it again so that it takes these inputs; or give others with `inputs`, if it need not"
    return "export it again with shapes that fit these inputs"
