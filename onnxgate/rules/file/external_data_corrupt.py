"""The rule `external-data-corrupt`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import ExternalFault, describe_tensors, group_external_faults


@rule(ModelFile, "external-data-corrupt", level=Level.ERROR, since="0.1.0")
def external_data_corrupt(subject: ModelFile) -> Iterator[Hit]:
    """
    An external data file is truncated, has the wrong size, or is a Git LFS pointer.

    ## Why it matters
    Runtimes reject data that is too short, but may read the text of a Git LFS pointer as the values of a small tensor.
    If the pointer refers to the locked content, this is a note, and the model is not run.

    ## What to do
    - Fetch the data with `git lfs pull`, or
    - export the model again, and commit it together with its data.
    """
    locked = {data.location: data.sha256 for data in subject.locked.external} if subject.locked is not None else {}
    folder = (subject.git_path or subject.path).rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    for fault in group_external_faults(subject.external, "lfs-pointer"):
        is_locked = locked.get(fault.location) == fault.pointer_sha256
        yield Hit(
            subject.place,
            f"stores weights in `{fault.location}`, which is a Git LFS pointer ({describe_tensors(fault)})",
            model=subject.path,
            fix=f'run `git lfs pull --include "{prefix}{fault.location}"`; '
            "in GitHub Actions, set `lfs: true` for `actions/checkout`",
            level=Level.NOTE if is_locked else None,
            identity=f"pointer {fault.location}",
        )
    for fault in group_external_faults(
        subject.external, "short", "wrong-length", "not-a-file", "bad-range", "no-location"
    ):
        yield Hit(
            subject.place,
            _describe_fault(fault),
            model=subject.path,
            fix="export the model again, and commit it together with its data",
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
