"""The rule `external-data-escapes`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Repair
from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import UNUSED_FIX, describe_tensors, group_external_faults


@rule(ModelFile, "external-data-escapes", level=Level.ERROR, since="0.1.0")
def external_data_escapes(subject: ModelFile) -> Iterator[Hit]:
    """
    A model stores weights outside its own folder.

    ## Why it matters
    ONNX Runtime 1.24 and newer refuse to load the model. If the folder of the model is copied, the data is missing.
    If no node uses the weights and ONNX Runtime is the only engine, the finding is a warning.

    ## What to do
    - If the data is in the repository, run `onnxgate fix MODEL` to move it into the model, or
    - save the model and its data in the same folder: `onnx.save(onnx.load(path), path, save_as_external_data=True,
      location="model.onnx.data")`.
    """
    for fault in group_external_faults(subject.external, "escapes"):
        yield Hit(
            subject.place,
            f"stores weights in `{fault.location}`, which {fault.detail} ({describe_tensors(fault)})",
            model=subject.path,
            fix=UNUSED_FIX
            if fault.is_unused
            else (
                Repair(subject.path, "to move the data into the model", condition="(only for data in the repository)"),
                Action("save the model with its data in the same folder"),
            ),
            level=fault.select_level(subject.runtimes),
            identity=fault.location,
        )
