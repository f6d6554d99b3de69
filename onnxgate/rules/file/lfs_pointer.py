"""The rule `lfs-pointer`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import quote_value
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule
from onnxgate.rules.file._external_data import describe_tensors, group_external_faults


@rule(ModelFile, "lfs-pointer", level=Level.NOTE, since="0.1.0")
def lfs_pointer(subject: ModelFile) -> Iterator[Hit]:
    """
    The content of a model or of its external data was not fetched from Git LFS, but the lock describes it.

    ## Why it matters
    The model is checked with the facts in the lock, and is not run. If the lock does not describe the content, the
    check of the model is undecided. With a baseline, the lock at the baseline must describe it, too. By default,
    `actions/checkout` fetches only pointers.

    ## What to do
    - Run `git lfs pull --include "models/classifier.onnx"`.
    - In GitHub Actions, set `lfs: true` for `actions/checkout`.
    """
    if subject.pointer is not None and subject.pointer_is_locked:
        size = f"{subject.pointer.size_bytes:,} bytes"
        message = f"is a Git LFS pointer (content not fetched, {size}); its facts come from the lock"
        yield Hit(subject.place, message, model=subject.path, fix=_pull_command(subject.git_path or subject.path))
    folder = (subject.git_path or subject.path).rpartition("/")[0]
    for fault in group_external_faults(subject.external, "lfs-pointer") if subject.undecided is None else ():
        yield Hit(
            subject.place,
            f"stores weights in `{fault.location}`, which is a Git LFS pointer ({describe_tensors(fault)})",
            model=subject.path,
            fix=_pull_command(f"{folder}/{fault.location}" if folder else fault.location),
            identity=f"pointer {fault.location}",
        )


def _pull_command(path: str) -> str:
    return (
        f"run `git lfs pull --include {quote_value(path)}`; in GitHub Actions, set `lfs: true` for `actions/checkout`"
    )
