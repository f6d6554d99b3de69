"""The rule `output-unstable`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, Level, OnRuntime, explained_by, follows_from
from onnxgate.evidence.runtime import Attempt, ModelRuns, select_worst_attempts
from onnxgate.rules.definition import rule
from onnxgate.rules.runtime._failures import describe_level, name_outputs

DROPOUT = "Dropout"


@rule(ModelRuns, "output-unstable", level=Level.ERROR, since="0.1.0")
def output_unstable(subject: ModelRuns) -> Iterator[Hit]:
    """
    A model returns different outputs for the same inputs.

    ## Why it matters
    Results cannot be reproduced. onnxgate runs the first set of inputs twice in one session. The outputs must be
    bit-identical on the CPU and differ by at most 0.1 % on other providers. Outputs that depend on random operators are
    exempt. Outputs that share memory with an input are also reported.

    ## What to do
    - Export in `eval()` mode.
    - In PyTorch, return `x.clone()` instead of `x`.
    - Check custom operators for uninitialized memory.
    """
    if select_worst_attempts(subject):
        return
    yield from _create_aliased_hits(subject)
    unstable = dict.fromkeys(name for attempt in subject.attempts for name in attempt.outputs.unstable)
    unintended = [name for name in unstable if set(subject.drawn.get(name, ())) <= {DROPOUT}]
    training = [name for name in unintended if name in subject.drawn]
    yield from _create_unstable_hits(subject, [name for name in unintended if name not in training])
    yield from _create_unstable_hits(subject, training)


def _create_aliased_hits(subject: ModelRuns) -> Iterator[Hit]:
    attempts = [attempt for attempt in subject.attempts if attempt.outputs.aliased]
    if not attempts:
        return
    names = list(dict.fromkeys(name for attempt in attempts for name in attempt.outputs.aliased))
    shares = "shares memory with an input and changes" if len(names) == 1 else "share memory with an input and change"
    yield Hit(
        subject.place,
        f"{name_outputs(names)} {shares} when the input is reused or freed",
        model=subject.model,
        fix="return `x.clone()` in PyTorch, insert an `Identity` node, or remove the output",
        on=OnRuntime(subject.runtime, _describe_detail("is affected", attempts, subject)),
        relations=explained_by("input-passthrough"),
        identity=f"aliased {' '.join(names)}",
    )


def _create_unstable_hits(subject: ModelRuns, names: Sequence[str]) -> Iterator[Hit]:
    if not names:
        return
    attempts = [attempt for attempt in subject.attempts if set(names) & set(attempt.outputs.unstable)]
    training = names[0] in subject.drawn
    verb = "differs" if len(names) == 1 else "differ"
    reason = ": a `Dropout` is in training mode" if training else ""
    yield Hit(
        subject.place,
        f"{name_outputs(names)} {verb} between two runs with the same inputs{reason}",
        model=subject.model,
        fix="export the model in `eval()` mode"
        if training
        else "check operators that keep state or generate random numbers",
        on=OnRuntime(subject.runtime, _describe_detail("is affected", attempts, subject)),
        relations=follows_from("training-mode-left") if training else (),
        identity=f"{'training' if training else 'unstable'} {' '.join(names)}",
    )


def _describe_detail(verb: str, attempts: Sequence[Attempt], subject: ModelRuns) -> str:
    return f"{verb}{at}" if (at := describe_level(attempts, subject)) else ""
