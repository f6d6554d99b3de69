"""The rule `source-not-exportable`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.diagnostics.catalogue.exporters import find_cause
from onnxgate.evidence.export import FixedValue, Reexport
from onnxgate.rules.definition import rule

_STATIC_SIZE = re.compile(r"static shape of (\d+) for dimension")
"""Source: `make_constraints` of torch 2.13."""
_REPLACEMENTS = {
    "argument": "pass the argument as a tensor, or remove it from `args` if its value never changes",
    "branch": "branch with `torch.where` or `torch.cond`, or export with `dynamo: True`, which rejects such branches",
    "number": "compute with the tensor instead of a Python number, or export with `dynamo: True`",
}


@rule(Reexport, "source-not-exportable", level=Level.ERROR, since="0.1.0")
def source_not_exportable(subject: Reexport) -> Iterator[Hit]:
    """
    A source contains code that its exporter cannot convert.

    ## Why it matters
    Some exporters raise an error if a branch depends on tensor values. Other exporters keep only one branch of an `if`
    and turn `.item()`, `int(...)` and Python arguments into constants, so that other inputs produce wrong results. A
    constant that does not depend on the inputs is a warning or note.

    ## What to do
    - Branch with `torch.where` or `torch.cond`, and compute with tensors.
    - In `input_names`, list only inputs that the model uses.
    """
    failure, names = subject.failure, subject.interface.names
    cause = find_cause(failure.type, failure.text, subject.behaviour.exporter) if failure else None
    if failure and cause and cause.exportable is False:
        text = f"`{subject.source}` cannot be exported: {failure.summary}"
        length = _STATIC_SIZE.search(failure.text)
        fix = subject.behaviour.suggest_for_length(int(length[1])) if length else ""
        yield Hit(subject.place, text, model=subject.model, fix=fix or cause.advice, identity=failure.type)
    named = [name for name in names.inputs if name not in names.inputs_written]
    for name in named if names.inputs_written else ():
        yield Hit(
            subject.place,
            f"`input_names` of `{subject.source}` lists `{name}`, but the file has no such input",
            model=subject.model,
            fix="list only the inputs that the source uses, in the order of its parameters",
            identity=f"input {name}",
        )
    yield from _find_renamed(subject)
    yield from (
        _create_fixed_hit(subject, value)
        for value in subject.behaviour.fixed
        if not any(f"`{name}`" in value.what for name in named)
    )


def _find_renamed(subject: Reexport) -> Iterator[Hit]:
    names = subject.interface.names
    pairs = zip(names.parameters, names.inputs_written, strict=False)
    if len(names.parameters) != len(names.inputs_written):
        return
    for requested, written in pairs:
        if requested != written and requested in names.outputs_written:
            yield Hit(
                subject.place,
                f"input `{requested}` of `{subject.source}` is named `{written}` in the file, "
                f"because the source returns the input unchanged as output `{requested}`",
                model=subject.model,
                fix=f"return `{requested}.clone()`, or set `input_names` and `output_names`",
                level=Level.WARNING,
                identity=f"renamed {requested}",
            )


def _create_fixed_hit(subject: Reexport, fixed: FixedValue) -> Hit:
    level = None if fixed.varies else Level.WARNING
    if fixed.kind == "argument":
        level = Level.NOTE
        text = f"{fixed.what} in `{subject.source}`; the file contains it as a constant, not as an input"
    else:
        varies = "; some inputs need the dropped branch" if fixed.varies else ""
        loss = "kept only one branch of a condition" if fixed.kind == "branch" else "turned a value into a constant"
        text = f"export with `{subject.source}` {loss}: `{fixed.what}`{varies}"
    return Hit(
        fixed.place or subject.place,
        text,
        model=subject.model,
        fix=_REPLACEMENTS[fixed.kind],
        level=level,
        identity=f"{fixed.kind} {fixed.name or fixed.what}",
    )
