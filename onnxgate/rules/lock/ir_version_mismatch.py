"""The rule `ir-version-mismatch`."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.specifiers import SpecifierSet

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import quote_path
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.rules.definition import rule


@rule(ModelLockComparison, "ir-version-mismatch", level=Level.ERROR, since="0.1.0")
def ir_version_mismatch(subject: ModelLockComparison) -> Iterator[Hit]:
    """
    A model uses an IR version that `ir-version` does not allow.

    ## Why it matters
    Runtimes refuse IR versions newer than they support. Exporters write the newest IR version that the installed `onnx`
    package supports.

    ## What to do
    - Run `onnxgate fix MODEL` to lower the IR version, or
    - set the IR version before saving: `model.ir_version = 10`, or
    - change `ir-version` in `onnxgate.toml`.
    """
    pinned, version, path = subject.pinned_ir, subject.facts.ir_version, subject.facts.path
    if pinned is None or version == pinned:
        return
    if isinstance(pinned, str) and version >= 0 and SpecifierSet(pinned).contains(str(version)):
        return
    yield Hit(
        subject.place if subject.entry is not None else subject.ir_place,
        f"uses IR version {version}; `{subject.ir_place.path}` requires `{pinned}`",
        model=path,
        fix=f"save the model with an allowed IR version (`onnxgate fix {quote_path(path)}` can lower it), "
        "or change `ir-version`",
        identity=str(version),
    )
