"""The rule `lfs-pointer`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "lfs-pointer", level=Level.ERROR, since="0.1.0")
def lfs_pointer(subject: ModelFile) -> Iterator[Hit]:
    """
    A model file is a Git LFS pointer (content not fetched).

    ## Why it matters
    Runtimes reject the file with `Protobuf parsing failed`. By default, `actions/checkout` fetches only pointers. If
    the pointer refers to the locked content, this is a note: onnxgate checks the model with data from the lock but does
    not run it.

    ## What to do
    - Run `git lfs pull --include "models/classifier.onnx"`.
    - In GitHub Actions, set `lfs: true` for `actions/checkout`.
    """
    if subject.pointer is None:
        return
    if subject.pointer_is_locked:
        message = f"is a Git LFS pointer to the locked content (not fetched, {subject.pointer.size_bytes:,} bytes)"
    else:
        message = f"is a Git LFS pointer (content not fetched, {subject.pointer.size_bytes:,} bytes)"
    yield Hit(
        subject.place,
        message,
        model=subject.path,
        fix=f'run `git lfs pull --include "{subject.git_path or subject.path}"`; '
        "in GitHub Actions, set `lfs: true` for `actions/checkout`",
        level=Level.NOTE if subject.pointer_is_locked else None,
        identity="locked" if subject.pointer_is_locked else "",
    )
