"""The rule `lfs-pointer`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "lfs-pointer", level=Level.ERROR, since="0.1.0")
def lfs_pointer(subject: ModelFile) -> Iterator[Hit]:
    """
    A Git LFS pointer stands where the model should be.

    ## Why it matters
    The file is a few lines of text that name the model's content. Every runtime refuses it with a bare "Protobuf
    parsing failed". `actions/checkout` fetches pointers only, unless it is asked for the content.

    A pointer whose `oid` equals the locked SHA-256 proves that the committed model is the locked one: then this is a
    note, and what the lock knows of the model is judged in its place. It cannot be run.

    ## What to do
    Fetch the content: `git lfs pull --include "models/classifier.onnx"`, or `lfs: true` for `actions/checkout`.
    """
    if subject.pointer is None:
        return
    if subject.pointer_is_locked:
        message = (
            f"is a Git LFS pointer to the locked content ({subject.pointer.size_bytes:,} bytes), which is not here"
        )
    else:
        message = f"is a Git LFS pointer; the model itself ({subject.pointer.size_bytes:,} bytes) is not here"
    yield Hit(
        subject.place,
        message,
        model=subject.path,
        fix=f'run `git lfs pull --include "{subject.git_path or subject.path}"`; '
        "on GitHub Actions, give `actions/checkout` the input `lfs: true`",
        level=Level.NOTE if subject.pointer_is_locked else None,
        identity="of the locked content" if subject.pointer_is_locked else "of another content",
    )
