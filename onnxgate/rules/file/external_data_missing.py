"""The rule `external-data-missing`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import UNUSED_FIX, describe_tensors, group_external_faults


@rule(ModelFile, "external-data-missing", level=Level.ERROR, since="0.1.0")
def external_data_missing(subject: ModelFile) -> Iterator[Hit]:
    """
    The external data file of a model is missing.

    ## Why it matters
    The model cannot be loaded. PyTorch writes weights to `model.onnx.data` by default. If no node uses the weights and
    ONNX Runtime is the only engine, the finding is a warning, because ONNX Runtime does not read them.

    ## What to do
    - Commit the data file under the name that is stored in the model, or
    - export a single file (up to 2 GiB) with `external_data=False`.
    """
    for fault in group_external_faults(subject.external, "missing"):
        yield Hit(
            subject.place,
            f"stores weights in `{fault.location}`, which is missing ({describe_tensors(fault)})",
            model=subject.path,
            fix=UNUSED_FIX if fault.is_unused else f"commit `{fault.location}`, or export with `external_data=False`",
            level=fault.select_level(subject.runtimes),
            identity=fault.location,
        )
