"""The rule `external-data-escapes`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import describe_tensors, group_external_faults


@rule(ModelFile, "external-data-escapes", level=Level.ERROR, since="0.1.0")
def external_data_escapes(subject: ModelFile) -> Iterator[Hit]:
    """
    A model keeps weights in a file outside its own folder.

    ## Why it matters
    ONNX Runtime 1.24 and later refuse to load it; earlier releases read whatever file the model names. A model that
    is moved, packed or downloaded leaves such data behind. onnxgate does not look at the file.

    A link into the folder that the model itself is linked from, as in a Hugging Face cache, is no escape.

    ## What to do
    Save the model again with its data beside it: `onnx.save(onnx.load(path), path, save_as_external_data=True,
    location="model.onnx.data")`. `onnxgate fix` moves data that lie in the repository into the model's own file.
    """
    for fault in group_external_faults(subject.external, "escapes"):
        yield Hit(
            subject.place,
            f"keeps weights in `{fault.location}`, which {fault.detail} ({describe_tensors(fault)})",
            model=subject.path,
            fix="save the model again with its data in its own folder, or run `onnxgate fix`: it moves data of the "
            "repository into the model",
            identity=fault.location,
        )
