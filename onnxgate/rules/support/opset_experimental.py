"""The rule `opset-experimental`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, strip_versions
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule

OPSET_VARIABLE = "ALLOW_RELEASED_ONNX_OPSET_ONLY=0"


@rule(ModelOnRuntime, "opset-experimental", level=Level.ERROR, since="0.1.0")
def opset_experimental(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A runtime supports an imported opset only experimentally.

    ## Why it matters
    The model loads only if the environment variable `ALLOW_RELEASED_ONNX_OPSET_ONLY=0` is set, and the opset may still
    change. If only an operator is experimental, this is a note.

    ## What to do
    - Export at the previous opset, or
    - raise the target's `runtime`, and run `onnxgate lock`.
    """
    for domain, version in subject.experimental_opsets.items():
        newest, since = subject.runtime.newest_opsets[domain], subject.opset_works_since.get(domain, "")
        of_domain = "" if domain == "ai.onnx" else f" of `{domain}`"
        export = f"export at opset {subject.common_opsets[domain]}{of_domain}, the newest that {subject.required}"
        yield Hit(
            subject.place,
            f"imports opset {version} of `{domain}`, which is under development",
            model=subject.model.path,
            on=OnRuntime(
                subject.runtime.name,
                f"supports up to {newest}, and {version} only with `{OPSET_VARIABLE}`",
                works_since=since,
            ),
            fix=export,
            identity=f"{domain} {version}",
        )
    for operation in subject.experimental:
        yield Hit(
            operation.place,
            f"uses `{operation.operator}`, which is experimental: {operation.nodes.words}",
            model=subject.model.path,
            node=operation.nodes.name,
            on=OnRuntime(subject.runtime.name),
            level=Level.NOTE,
            identity=strip_versions(operation.operator),
        )
