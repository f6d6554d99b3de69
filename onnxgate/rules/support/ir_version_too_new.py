"""The rule `ir-version-too-new`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Repair
from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule


@rule(ModelOnRuntime, "ir-version-too-new", level=Level.ERROR, since="0.1.0")
def ir_version_too_new(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A runtime does not support the model's IR version.

    ## Why it matters
    Loading fails with `Unsupported model IR version: 13, max supported IR version: 10`. Exporters write the newest IR
    version that the installed `onnx` package supports.

    ## What to do
    - Run `onnxgate fix MODEL` to lower the IR version, or
    - set the IR version before saving: `model.ir_version = 10`, or
    - raise the target's `runtime`, and run `onnxgate lock`.
    """
    max_ir = subject.runtime.max_ir
    if max_ir is None or subject.model.ir_version <= max_ir:
        return
    yield Hit(
        subject.place,
        f"uses IR version {subject.model.ir_version}",
        model=subject.model.path,
        on=OnRuntime(subject.runtime.name, f"supports up to {max_ir}", works_since=subject.ir_works_since),
        fix=(
            Repair(
                subject.model.path,
                f"to lower the IR version to {subject.common_ir}",
                manual=f"set `ir_version` to {subject.common_ir}",
            ),
        ),
        identity=str(subject.model.ir_version),
    )
