"""The rule `external-data-refused`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Advice, Repair
from onnxgate.core.findings import Hit, Level, OnRuntime, follows_from
from onnxgate.core.text import pluralize
from onnxgate.evidence.support import DataProblem, ExternalDataOnRuntime
from onnxgate.model.reading.external_data import is_spelling
from onnxgate.rules.definition import rule

_PHRASES = {
    "absolute": "an absolute path",
    "outside": "outside the model's folder",
    "link": "a link to a file outside the model's folder",
    "linked-model": "model and data are links to another folder",
    "signed": "an offset or length has a sign",
    "negative-zero": "an offset or length is `-0`",
    "spaced": "an offset or length begins with a space",
    "hexadecimal": "a length is hexadecimal",
    "prepacked": "entries describe prepacked weights",
    "unknown-entry": "an entry is unknown or empty",
    "second-location": "a tensor has two locations",
    "null": "a location contains a null character",
    "zero-length": "a length is 0",
    "longer-file": "no length, but the file does not end with the tensor",
    "parsed": "shape inference needs the data",
    "parsed-depth": "shape inference needs the depth of a OneHot",
    "unfound": "a tensor has two locations, and the first file is missing",
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

    The entries of a tensor name its file, offset and length. ONNX Runtime refuses unknown and empty entries, a sign or
    space before a number since version 1.21, hexadecimal lengths before 1.23, entries for prepacked weights before
    1.21, and a second file name since 1.30. OpenVINO and tract refuse hexadecimal lengths, and tensors
    without a length in a file that is longer; tract refuses spaces and lengths 0.

    ONNX Runtime reads external data after shape inference, so shapes and axes that operators such as Reshape take must
    be in the model, and so must the depth of OneHot since version 1.21.

    ## What to do
    - Run `onnxgate fix MODEL` to move the data into the model, or
    - save the model and its data in the same folder: `onnx.save(onnx.load(path), path, save_as_external_data=True,
      location="model.onnx.data")`, or
    - replace symbolic links with copies of the files.
    """
    others = len(subject.tensors) - 1
    tensors = f"`{subject.tensors[0]}`" + (f" and {pluralize(others, 'other tensor')}" if others else "")
    yield Hit(
        subject.place,
        f"stores weights in `{subject.location}` ({_PHRASES[subject.problem]}; used by {tensors})",
        model=subject.model,
        fix=_suggest(subject),
        on=OnRuntime(
            subject.runtime,
            _describe_refusal(subject.problem),
            works_since=subject.works_since,
            works_until=subject.works_until,
        ),
        relations=follows_from("external-data-escapes"),
        identity=f"{subject.problem} {subject.location}",
    )


def _describe_refusal(problem: DataProblem) -> str:
    if problem in ("parsed", "parsed-depth"):
        return "does not read it for shape inference"
    return "does not accept this spelling" if is_spelling(problem) else "does not read data from this location"


def _suggest(subject: ExternalDataOnRuntime) -> Advice:
    move = Repair(subject.model, "to move the data into the model")
    if subject.problem == "linked-model":
        return COPY_FIX
    if is_spelling(subject.problem) or subject.problem == "unfound":
        return (move, Action("export the model again"))
    if subject.problem in ("parsed", "parsed-depth"):
        return (move,)
    return (move, Action("save the model with its data in the same folder"))
