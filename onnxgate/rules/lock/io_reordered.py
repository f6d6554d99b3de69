"""The rule `io-reordered`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.model.interface_matching import InterfaceMatch
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import (
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
    The order of inputs or outputs has changed since the baseline.

    ## Why it matters
    Callers that select values by position, such as `session.run(None, …)[0]`, get the wrong output. If types and shapes
    match, no error is reported.

    ## What to do
    - Restore the order in `forward`, `input_names` and `output_names`; append new outputs at the end.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    inputs, outputs = match_inputs(subject), match_outputs(subject)
    if is_reordered(inputs):
        yield _create_order_hit(subject, "inputs", inputs)
    if is_reordered(outputs):
        yield _create_order_hit(subject, "outputs", outputs)
    elif moved := find_shifted_outputs(subject):
        first = moved[0]
        new = [single.value.name for single in outputs.added if single.position < first.now]
        noun = "the new output" if len(new) == 1 else "the new outputs"
        yield create_breaking_hit(
            subject,
            f"output `{first.after.name}` moved to position {first.now + 1}, after {noun} {quote_names(new)}; "
            f"it was at position {first.was + 1} {subject.baseline}",
            "append new outputs at the end",
            identity=f"outputs {first.after.name}",
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
        f"has {kind} in the order {quote_names([pair.after.name for pair in stand])}; "
        f"the order was {order} {subject.baseline}",
        f"export them in the order {order}",
        identity=f"{kind} {' '.join(pair.after.name for pair in stand)}",
        topic=kind,
    )
