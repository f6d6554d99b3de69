"""The rule `external-data-corrupt`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import UNUSED_FIX, ExternalFault, describe_tensors, group_external_faults


@rule(ModelFile, "external-data-corrupt", level=Level.ERROR, since="0.1.0")
def external_data_corrupt(subject: ModelFile) -> Iterator[Hit]:
    """
    An external data file is truncated or has the wrong size.

    ## Why it matters
    Runtimes reject data that is too short. If no node uses the weights and ONNX Runtime is the only engine, the finding
    is a warning, because ONNX Runtime does not read them.

    ## What to do
    Export the model again, and commit it together with its data.
    """
    for fault in group_external_faults(
        subject.external, "short", "wrong-length", "not-a-file", "bad-range", "no-location"
    ):
        yield Hit(
            subject.place,
            _describe_fault(fault),
            model=subject.path,
            fix=UNUSED_FIX if fault.is_unused else "export the model again, and commit it together with its data",
            level=fault.select_level(subject.runtimes),
            identity=f"{fault.problem} {fault.location}",
        )


def _describe_fault(fault: ExternalFault) -> str:
    match fault.problem:
        case "no-location":
            return f"stores weights as external data without a file name ({describe_tensors(fault)})"
        case "short" | "not-a-file":
            return f"stores weights in `{fault.location}`, which {fault.detail} ({describe_tensors(fault)})"
        case _:
            return f"stores weights in `{fault.location}`, but `{fault.tensors[0]}` {fault.detail}"
