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
    A model's external data cannot be what it was saved with: too short, of another size, or a Git LFS pointer.

    ## Why it matters
    Runtimes refuse data that end too early. A Git LFS pointer that is long enough for the tensors in it is worse:
    every release of ONNX Runtime loads it without a word and computes with garbage.

    A pointer whose `oid` equals the locked SHA-256 proves that the committed data are the locked ones: then this is a
    note. The model cannot be run.

    ## What to do
    Fetch the data (`git lfs pull`), or export again and commit the model and its data together.
    """
    locked = {data.location: data.sha256 for data in subject.locked.external} if subject.locked is not None else {}
    folder = (subject.git_path or subject.path).rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    for fault in group_external_faults(subject.external, "lfs-pointer"):
        is_locked = locked.get(fault.location) == fault.pointer_sha256
        yield Hit(
            subject.place,
            f"keeps weights in `{fault.location}`, which is a Git LFS pointer ({describe_tensors(fault)})",
            model=subject.path,
            fix=f'run `git lfs pull --include "{prefix}{fault.location}"`; '
            "on GitHub Actions, give `actions/checkout` the input `lfs: true`",
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
            return f"keeps weights in another file and does not say in which ({describe_tensors(fault)})"
        case "short" | "not-a-file":
            return f"keeps weights in `{fault.location}`, which {fault.detail} ({describe_tensors(fault)})"
        case _:
            return f"keeps weights in `{fault.location}`, and `{fault.tensors[0]}` {fault.detail}"
