"""The rule `output-dropped`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

NAMING_FIX = "return only tensors, and name all of them in `output_names`"


@rule(Reexport, "output-dropped", level=Level.ERROR, since="0.1.0")
def output_dropped(subject: Reexport) -> Iterator[Hit]:
    """
    The exported file lacks an output of the source.

    ## Why it matters
    Exporters omit dictionary keys and values that are not tensors, so callers may read the wrong output. A missing name
    or tensor is an error, an output with a different position or name is a warning, and an omitted last value is a
    note.

    ## What to do
    Return a tuple of tensors, and name each of them in `output_names`.
    """
    names = subject.interface.names
    for name in names.outputs:
        if names.outputs_written and name not in names.outputs_written:
            yield _create_hit(
                subject, f"`output_names` lists `{name}`, but the file has no such output", NAMING_FIX, name
            )
    tensors = sum(value.kind == "tensor" for value in subject.behaviour.returned)
    if subject.behaviour.returned and len(names.outputs_written) < tensors:
        written = pluralize(len(names.outputs_written), "output")
        text = f"the source returns {pluralize(tensors, 'tensor')}, but the file has {written}"
        yield _create_hit(subject, text, "return each tensor only once, and do not return inputs unchanged", "count")
    elif not names.outputs:
        yield from _find_moved(subject)
        yield from _find_renamed(subject)


def _find_moved(subject: Reexport) -> Iterator[Hit]:
    kinds = [value.kind for value in subject.behaviour.returned]
    for index, kind in enumerate(kinds):
        if kind != "tensor":
            moved = "tensor" in kinds[index + 1 :]
            value = "`None`" if kind == "none" else "not a tensor"
            effect = "is omitted, so the positions of later outputs change" if moved else "is omitted"
            yield _create_hit(
                subject,
                f"output {index} of the source is {value} and {effect}",
                NAMING_FIX,
                f"position {index}",
                Level.WARNING if moved else Level.NOTE,
            )


def _find_renamed(subject: Reexport) -> Iterator[Hit]:
    keys = [value.key for value in subject.behaviour.returned if value.kind == "tensor"]
    written = subject.interface.names.outputs_written
    if not keys or not all(keys) or tuple(keys) == written:
        return
    quoted = [join_phrases([f"`{name}`" for name in names]) for names in (keys, written)]
    yield _create_hit(
        subject,
        f"the source names its outputs {quoted[0]}, but the file names them {quoted[1]}",
        f"set `output_names` to {keys!r}".replace("'", '"'),
        "names",
        Level.WARNING,
    )


def _create_hit(subject: Reexport, text: str, fix: str, identity: str, level: Level | None = None) -> Hit:
    message = f"export with `{subject.source}`: {text}"
    return Hit(subject.place, message, model=subject.model, fix=fix, level=level, identity=identity)
