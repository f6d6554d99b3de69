"""The rule `output-dropped`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_phrases
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

NAMING_FIX = "return tensors alone, and name them all by `output_names`"


@rule(Reexport, "output-dropped", level=Level.ERROR, since="0.1.0")
def output_dropped(subject: Reexport) -> Iterator[Hit]:
    """
    The source returns, or names, an output that the export does not have.

    ## Why it matters
    A graph has tensors in an order. Exporters leave out `None` and whatever is no tensor, so that all that follows
    moves up, and they forget the keys of a dictionary: who fetches outputs by number or by key gets another one, and
    the export was a success. A name or a tensor that is missing is an error; what moved, or lost its name, a warning; a
    `None` at the end moves nothing and is a note.

    ## What to do
    Return a tuple of tensors, and name each of them by `output_names`: then nothing can move unseen.
    """
    names = subject.interface.names
    for name in names.outputs:
        if names.outputs_written and name not in names.outputs_written:
            yield _create_hit(subject, f"`output_names` asks for `{name}`, which the file does not have", NAMING_FIX)
    tensors = sum(value.kind == "tensor" for value in subject.behaviour.returned)
    if subject.behaviour.returned and len(names.outputs_written) < tensors:
        text = f"it returns {tensors} tensors, and the file has {len(names.outputs_written)} outputs"
        yield _create_hit(subject, text, "return each tensor once, and not what was given")
    elif not names.outputs:
        yield from _find_moved(subject)
        yield from _find_renamed(subject)


def _find_moved(subject: Reexport) -> Iterator[Hit]:
    kinds = [value.kind for value in subject.behaviour.returned]
    for index, kind in enumerate(kinds):
        if kind != "tensor":
            moved = "tensor" in kinds[index + 1 :]
            what = "`None`" if kind == "none" else "no tensor"
            effect = "is left out, and what follows moves up" if moved else "is left out"
            yield _create_hit(
                subject,
                f"output {index} of the source is {what}: it {effect}",
                NAMING_FIX,
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
        f"it returns {quoted[0]} by name, and the file calls them {quoted[1]}",
        f"name them: `output_names` = {keys!r}".replace("'", '"'),
        Level.WARNING,
    )


def _create_hit(subject: Reexport, text: str, fix: str, level: Level | None = None) -> Hit:
    message = f"export by `{subject.source}`: {text}"
    return Hit(subject.place, message, model=subject.model, fix=fix, level=level)
