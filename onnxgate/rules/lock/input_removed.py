"""The rule `input-removed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, match_inputs, quote_names


@rule(ModelChange, "input-removed", level=Level.ERROR, since="0.1.0")
def input_removed(subject: ModelChange) -> Iterator[Hit]:
    """
    A model has an input no longer that it had at the baseline.

    ## Why it matters
    A caller who still feeds it gets `Invalid input name`, or `Invalid Feed Input Name`. Exporters and optimisers drop
    an input that nothing reads, such as `token_type_ids` of a model that ignores them, though every tokenizer hands
    it over.

    An input that has a default now is none that is gone. One that had a default and is gone is a warning: only those
    who fed it stumble.

    ## What to do
    Keep the input, also unused: an `Identity` that leads to no output does. If the callers are changed together with
    the model, accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    for single in match_inputs(subject).removed:
        name = single.value.name
        yield create_breaking_hit(
            subject, f"input `{name}` is gone; it was there {subject.baseline}", f"export with `{name}` as an input"
        )
    remaining = {value.name for value in (*subject.after.inputs, *subject.after.optional_inputs)}
    removed = [value.name for value in subject.before.optional_inputs if value.name not in remaining]
    if removed:
        noun, verb, were = ("input", "is", "it was") if len(removed) == 1 else ("inputs", "are", "they were")
        yield create_breaking_hit(
            subject,
            f"{noun} {quote_names(removed)}, which had a default, {verb} gone; {were} there {subject.baseline}",
            "keep the initializer among the graph's inputs",
            level=Level.WARNING,
        )
