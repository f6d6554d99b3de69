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
    A model gives something else when the same inputs are run again, or hands out the caller's own memory.

    The first case is run twice in one session. On the processor every bit must be the same; other providers may add up
    in any order, and differ by a thousandth. Outputs that random operators reach (`RandomNormalLike`, `Multinomial`, …)
    are random by design, and not meant; a `Dropout` that was left in training mode is.

    ## Why it matters
    Nothing that was tested of such a model says what it will give in use. In Python, ONNX Runtime 1.19 to 1.25 return
    the caller's own array for an output that is an input passed straight through: it is right as long as nobody
    touches that array, and silently becomes something else once it is reused or freed.

    ## What to do
    Export in `eval()` mode, so that no `Dropout` trains. Put an `Identity` between an input and the output that it is:
    in PyTorch, return `x.clone()` in place of `x`. If a custom operator is to blame, look for memory that it reads
    before it writes.
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
    are = "is the caller's own memory: it changes" if len(names) == 1 else "are the caller's own memory: they change"
    yield Hit(
        subject.place,
        f"{name_outputs(names)} {are} when the input is reused or freed",
        model=subject.model,
        fix="put an `Identity` between (in PyTorch, return `x.clone()`), or drop the output",
        on=OnRuntime(subject.runtime, _describe_detail("returns it", attempts, subject)),
        relations=explained_by("input-passthrough"),
    )


def _create_unstable_hits(subject: ModelRuns, names: Sequence[str]) -> Iterator[Hit]:
    if not names:
        return
    attempts = [attempt for attempt in subject.attempts if set(names) & set(attempt.outputs.unstable)]
    training = names[0] in subject.drawn
    why = ": a `Dropout` is left in training mode" if training else ""
    yield Hit(
        subject.place,
        f"{name_outputs(names)} {'differs' if len(names) == 1 else 'differ'} when the same inputs are run again{why}",
        model=subject.model,
        fix="export the model in `eval()` mode" if training else "look at operators that keep a state or draw numbers",
        on=OnRuntime(subject.runtime, _describe_detail("does so", attempts, subject)),
        relations=follows_from("training-mode-left") if training else (),
    )


def _describe_detail(verb: str, attempts: Sequence[Attempt], subject: ModelRuns) -> str:
    return f"{verb}{at}" if (at := describe_level(attempts, subject)) else ""
