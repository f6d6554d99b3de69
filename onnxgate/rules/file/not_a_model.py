"""The rule `not-a-model`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "not-a-model", level=Level.ERROR, since="0.1.0")
def not_a_model(subject: ModelFile) -> Iterator[Hit]:
    """
    A file that is called a model is something else: an HTML page, an archive, a checkpoint, a truncated download.

    ## Why it matters
    Runtimes have one text for all of these, "Protobuf parsing failed", and it names no cause. The message here says
    what the file really is.

    ## What to do
    Commit the model itself. If the file came from a download, fetch it again and compare its size. If it is no model
    and need not be one, name it in `exclude` in `onnxgate.toml`.
    """
    if not subject.other_type:
        return
    yield Hit(
        subject.place,
        f"is {subject.other_type}, not an ONNX model",
        model=subject.path,
        fix=_suggest_fix(subject.other_type),
    )


def _suggest_fix(what: str) -> str:
    if "truncated" in what or "damaged" in what or what in ("an empty file", "a file of zero bytes"):
        return "export or download the model again, and commit it whole"
    if "checkpoint" in what or "pickle" in what or "safetensors" in what or "Keras" in what:
        return "export the weights to ONNX, and commit what the exporter writes"
    if what == "not there":
        return "commit the model, or take it out of the config"
    return "commit the model itself, or name the file in `exclude` in `onnxgate.toml`"
