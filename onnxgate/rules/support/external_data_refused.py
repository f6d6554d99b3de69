"""The rule `external-data-refused`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from onnxgate.core.advice import Action, Advice, Repair
from onnxgate.core.findings import Hit, Level, OnRuntime, follows_from
from onnxgate.core.text import pluralize
from onnxgate.evidence.support import ExternalDataOnRuntime
from onnxgate.rules.definition import rule

_PHRASES = {
    "absolute": "an absolute path",
    "outside": "outside the model's folder",
    "link": "a link to a file outside the model's folder",
    "linked-model": "model and data are links to another folder",
    "signed": "an offset or length begins with a sign or a space",
    "hexadecimal": "a length is hexadecimal",
    "prepacked": "with entries for prepacked weights",
    "second-location": "a tensor has two locations",
    "parsed": "shape inference needs the data",
}
_SPELLINGS = ("signed", "hexadecimal", "prepacked", "second-location")

_DETAILS: Mapping[str, str] = {
    **dict.fromkeys(_SPELLINGS, "does not accept this spelling"),
    "parsed": "does not read it for shape inference",
}

COPY_FIX = "copy the model and its data instead of linking them"


@rule(ExternalDataOnRuntime, "external-data-refused", level=Level.ERROR, since="0.1.0")
def external_data_refused(subject: ExternalDataOnRuntime) -> Iterator[Hit]:
    """
    A runtime refuses to read a model's external data because of its location, its use or its entries.

    ## Why it matters
    Since version 1.24, ONNX Runtime reads data only from the folder that contains the model. Version 1.24.1 also
    refuses a model and data file that are both symbolic links, as in the Hugging Face cache. Absolute paths work only
    with versions 1.19–1.23.

    The entries of a tensor name its file, offset and length. ONNX Runtime refuses a sign or space before a number since
    version 1.21, hexadecimal lengths before 1.23, entries for prepacked weights before 1.21, and a second file name
    since 1.30.

    ONNX Runtime reads external data after shape inference, so shapes and axes that operators such as Reshape take must
    be in the model.

    ## What to do
    - Run `onnxgate fix MODEL` to move the data into the model, or
    - save the model and its data in the same folder: `onnx.save(onnx.load(path), path, save_as_external_data=True,
      location="model.onnx.data")`, or
    - replace symbolic links with copies of the files.
    """
    tensors = pluralize(subject.tensors, "tensor")
    yield Hit(
        subject.place,
        f"stores weights in `{subject.location}` ({_PHRASES[subject.problem]}; {tensors})",
        model=subject.model,
        fix=COPY_FIX if subject.problem == "linked-model" else _suggest_move(subject.model),
        on=OnRuntime(
            subject.runtime,
            _DETAILS.get(subject.problem, "does not read data from this location"),
            works_since=subject.works_since,
            works_until=subject.works_until,
        ),
        relations=follows_from("external-data-escapes"),
        identity=f"{subject.problem} {subject.location}",
    )


def _suggest_move(model: str) -> Advice:
    return (
        Repair(model, "to move the data into the model"),
        Action("save the model with its data in the same folder"),
    )
