"""The rule `source-not-exportable`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.diagnostics.catalogue.exporters import find_cause
from onnxgate.evidence.export import FixedValue, Reexport
from onnxgate.rules.definition import rule

_REPLACEMENTS = {
    "argument": "give it as a tensor, or leave it out of `args` if it is always that",
    "branch": "decide by `torch.where` or `torch.cond`, or export with `dynamo: True`, which refuses such a branch",
    "number": "compute with the tensor itself, or export with `dynamo: True`",
}


@rule(Reexport, "source-not-exportable", level=Level.ERROR, since="0.1.0")
def source_not_exportable(subject: Reexport) -> Iterator[Hit]:
    """
    A source does something that its exporter cannot write down.

    ## Why it matters
    A graph has no Python in it. Where the exporter notices, it refuses: a branch on values, an operator that ONNX does
    not have, a size that the source fixes although it was to be dynamic. This rule says so, with the line. All other
    failures are `export-failed`: a source that raises, a package that is missing, a wrong entry, a crash.

    Where the exporter does not notice, it writes what the example did and reports success: tracing takes one side of an
    `if` and turns `.item()` and `int(...)` into numbers, an argument that is a Python number is written into the graph,
    and an input that was named or is used by nothing is not there. An input that was asked for by name and is missing
    is an error, and so is a branch that the source was seen to take otherwise when its example was negated, set to zero
    or scaled. All else that was written in from the example is a warning, because only a run with other inputs tells
    whether it is wrong: `source-mismatch` does. A number that was never asked for by name is a note.

    ## What to do
    Decide by `torch.where` or `torch.cond`, compute with tensors, and name in `input_names` what the file is to have.
    """
    failure, names = subject.failure, subject.interface.names
    cause = find_cause(failure.type, failure.text, subject.behaviour.exporter) if failure else None
    if failure and cause and cause.exportable is False:
        text = f"`{subject.source}` cannot be exported: {failure.type}: {failure.text}"
        yield Hit(subject.place, text, model=subject.model, fix=cause.advice)
    named = [name for name in names.inputs if name not in names.inputs_written]
    for name in named if names.inputs_written else ():
        yield Hit(
            subject.place,
            f"`input_names` of `{subject.source}` asks for `{name}`, which the file does not have",
            model=subject.model,
            fix="name tensors that the source uses, in their order: the exporter names no others",
        )
    yield from _find_renamed(subject)
    yield from (
        _create_fixed_hit(subject, value)
        for value in subject.behaviour.fixed
        if not any(f"`{name}`" in value.what for name in named)
    )


def _find_renamed(subject: Reexport) -> Iterator[Hit]:
    """Yield the inputs whose name an output has taken, because it is the input."""
    names = subject.interface.names
    pairs = zip(names.parameters, names.inputs_written, strict=False)
    if len(names.parameters) != len(names.inputs_written):
        return
    for requested, written in pairs:
        if requested != written and requested in names.outputs_written:
            yield Hit(
                subject.place,
                f"input `{requested}` of `{subject.source}` is called `{written}` in the file, "
                f"and `{requested}` is an output: the source returns what it was given",
                model=subject.model,
                fix=f"return `{requested}.clone()`, or say `input_names` and `output_names`",
                level=Level.WARNING,
            )


def _create_fixed_hit(subject: Reexport, fixed: FixedValue) -> Hit:
    level = None if fixed.varies else Level.WARNING
    if fixed.kind == "argument":
        level = Level.NOTE
        text = f"{fixed.what} in `{subject.source}`: it is written into the file, which has no such input"
    else:
        branch = "; with other inputs the source takes the other side" if fixed.varies else ""
        what = "the side of the branch that the example took" if fixed.kind == "branch" else "the number of the example"
        text = f"export by `{subject.source}` wrote {what} into the file: `{fixed.what}`{branch}"
    fix = _REPLACEMENTS[fixed.kind]
    return Hit(fixed.place or subject.place, text, model=subject.model, fix=fix, level=level)
