"""The rule `not-a-model`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Advice, ConfigEdit
from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule

MISSING = "not there"
"""File type (`ModelFile.other_type`) that is recorded for a file that does not exist."""


@rule(ModelFile, "not-a-model", level=Level.ERROR, since="0.1.0")
def not_a_model(subject: ModelFile) -> Iterator[Hit]:
    """
    A model file is missing, truncated or not an ONNX model.

    ## Why it matters
    Runtimes reject truncated files and files of a different type with `Protobuf parsing failed`.

    ## What to do
    - Commit the complete model.
    - If the file is not meant to be a model, add it to `exclude` in `onnxgate.toml`.
    """
    if not subject.other_type:
        return
    contrast = "" if subject.other_type.startswith("a truncated model") else ", not an ONNX model"
    yield Hit(
        subject.place,
        "does not exist" if subject.other_type == MISSING else f"is {subject.other_type}{contrast}",
        model=subject.path,
        fix=_suggest_fix(subject.other_type),
    )


def _suggest_fix(other_type: str) -> Advice:
    if any(word in other_type for word in ("truncated", "corrupted", "empty file", "null bytes")):
        return "export or download the model again, and commit the complete file"
    if any(word in other_type for word in ("checkpoint", "pickle", "safetensors", "Keras")):
        return "export the weights to ONNX, and commit the exported model"
    if other_type == MISSING:
        return Action("commit the model"), ConfigEdit("remove it from the config")
    return Action("commit the model itself"), ConfigEdit("add the file to `exclude` in `onnxgate.toml`")
