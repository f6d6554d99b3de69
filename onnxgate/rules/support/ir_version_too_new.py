"""The rule `ir-version-too-new`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule

NO_RELEASE = "wait for a release that reads it: none does yet"


@rule(ModelOnRuntime, "ir-version-too-new", level=Level.ERROR, since="0.1.0")
def ir_version_too_new(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A model is stamped with an IR version newer than a locked runtime reads.

    ## Why it matters
    The runtime refuses the file when it is loaded, whatever its operators are. It is most often the `onnx` package
    that stamps its own newest IR version on a model that needs nothing of it.

    ## What to do
    Stamp the IR version down before saving (`model.ir_version = 10`), or raise the target's version in
    `onnxgate.toml`. `onnxgate fix` does it and proves that nothing else changed; `onnxgate export` stamps a model down
    by itself.
    """
    if subject.model.ir_version <= subject.runtime.max_ir:
        return
    release = f"raise the target to {subject.ir_works_since}" if subject.ir_works_since else NO_RELEASE
    yield Hit(
        subject.place,
        f"is stamped with IR version {subject.model.ir_version}",
        model=subject.model.path,
        on=OnRuntime(subject.runtime.name, f"reads up to {subject.runtime.max_ir}", works_since=subject.ir_works_since),
        fix=f"run `onnxgate fix`: it saves it with IR version {subject.common_ir}, which all its runtimes read, if "
        f"nothing in it needs more; or {release}",
    )
