"""The rule `io-reordered`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import (
    InterfaceMatch,
    create_breaking_hit,
    find_shifted_outputs,
    is_reordered,
    match_inputs,
    match_outputs,
    quote_names,
)


@rule(ModelChange, "io-reordered", level=Level.ERROR, since="0.1.0")
def io_reordered(subject: ModelChange) -> Iterator[Hit]:
    """
    Inputs or outputs of a model that stayed stand in another order than at the baseline.

    ## Why it matters
    `session.run(None, …)[0]` is the first output, whatever it is called; demos, wrappers and many engines take inputs
    and outputs by position. Where types and shapes fit, nothing fails: scores are read as boxes.

    A new output before others moves them too. What moves because another one is gone is told by `output-removed` and
    `input-removed` alone.

    ## What to do
    Export in the old order: the order of `input_names` and `output_names`, of what `forward` takes and returns; put
    what is new at the end. If the callers are changed together with the model, accept the break with an `[[ignore]]`
    that has this content's `sha256`.
    """
    inputs, outputs = match_inputs(subject), match_outputs(subject)
    if is_reordered(inputs):
        yield _create_order_hit(subject, "inputs", inputs)
    if is_reordered(outputs):
        yield _create_order_hit(subject, "outputs", outputs)
    elif moved := find_shifted_outputs(subject):
        first = moved[0]
        new = [single.value.name for single in outputs.added if single.position < first.now]
        yield create_breaking_hit(
            subject,
            f"output `{first.after.name}` is at position {first.now + 1}, behind the new {quote_names(new)}; "
            f"it was at position {first.was + 1} {subject.baseline}",
            "put new outputs at the end",
            topic="outputs",
        )


def _create_order_hit(subject: ModelChange, kind: str, match: InterfaceMatch) -> Hit:
    stand, stood = sorted(match.pairs, key=lambda pair: pair.now), list(match.pairs)
    while stand[0] == stood[0]:
        del stand[0], stood[0]
    while stand[-1] == stood[-1]:
        del stand[-1], stood[-1]
    order = quote_names([pair.after.name for pair in stood])
    return create_breaking_hit(
        subject,
        f"{kind} stand in the order {quote_names([pair.after.name for pair in stand])}; "
        f"it was {order} {subject.baseline}",
        f"export them in the order {order}",
        topic=kind,
    )
