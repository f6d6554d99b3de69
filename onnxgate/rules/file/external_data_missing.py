"""The rule `external-data-missing`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import describe_tensors, group_external_faults


@rule(ModelFile, "external-data-missing", level=Level.ERROR, since="0.1.0")
def external_data_missing(subject: ModelFile) -> Iterator[Hit]:
    """
    A model keeps weights in another file, and that file is not there.

    ## Why it matters
    The model cannot be loaded. PyTorch's exporter writes `model.onnx.data` beside `model.onnx` by default, even for
    small models, and it is easily forgotten, ignored by git, or left behind by a rename.

    ## What to do
    Commit the data file beside the model, under the name that the model has for it; or export with
    `external_data=False`, which gives one file (up to 2 GiB).
    """
    for fault in group_external_faults(subject.external, "missing"):
        yield Hit(
            subject.place,
            f"keeps weights in `{fault.location}`, which is not there ({describe_tensors(fault)})",
            model=subject.path,
            fix=f"commit `{fault.location}` beside the model, or export with `external_data=False`",
            identity=fault.location,
        )
