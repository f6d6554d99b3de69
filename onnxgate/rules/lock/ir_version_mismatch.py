"""The rule `ir-version-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "ir-version-mismatch", level=Level.ERROR, since="0.1.0")
def ir_version_mismatch(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model is stamped with another IR version than `ir-version` in `onnxgate.toml` allows.

    ## Why it matters
    A runtime refuses a file whose IR version is newer than it knows, whatever is in it, and exporters stamp the newest
    that the installed onnx has.

    ## What to do
    Lower the stamp, where the model uses nothing that needs a newer one (`model.ir_version = 10` before
    `onnx.save`), or export with an older onnx. `onnxgate fix` lowers it, and proves that nothing else changed.
    """
    pinned, version = subject.pinned_ir, subject.facts.ir_version
    if pinned is None or version == pinned:
        return
    if isinstance(pinned, str) and version >= 0 and SpecifierSet(pinned).contains(str(version)):
        return
    yield Hit(
        subject.place if subject.entry is not None else subject.ir_place,
        f"is stamped with IR version {version}; `{subject.ir_place.path}` pins `{pinned}`",
        model=subject.facts.path,
        fix="stamp it with an IR version that is pinned (`onnxgate fix` lowers it), or change the pin",
    )
