"""The rule `opset-experimental`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime
from onnxgate.evidence.support import ModelOnRuntime
from onnxgate.rules.definition import rule

OPSET_VARIABLE = "ALLOW_RELEASED_ONNX_OPSET_ONLY=0"


@rule(ModelOnRuntime, "opset-experimental", level=Level.ERROR, since="0.1.0")
def opset_experimental(subject: ModelOnRuntime) -> Iterator[Hit]:
    """
    A model imports an opset that is still under development in a locked runtime.

    ## Why it matters
    The release has operators of that opset, and refuses the model all the same, unless the environment variable
    `ALLOW_RELEASED_ONNX_OPSET_ONLY` is `0` in the process that loads it. What such an opset defines may change in the
    next release.

    An operator that the release itself calls experimental is a note: it loads, and its definition may change.

    ## What to do
    Export at the opset before it, or raise the target's version in `onnxgate.toml` to a release that calls it final.
    """
    for domain, version in subject.experimental_opsets.items():
        newest, since = subject.runtime.newest_opsets[domain], subject.opset_works_since.get(domain, "")
        raised = f"raise the target to {since}" if since else "wait for a release that calls it final: none does yet"
        yield Hit(
            subject.place,
            f"imports opset {version} of `{domain}`, which is under development",
            model=subject.model.path,
            on=OnRuntime(
                subject.runtime.name,
                f"implements up to {newest}, and {version} only with `{OPSET_VARIABLE}`",
                works_since=since,
            ),
            fix=f"export at opset {subject.common_opsets[domain]}, which all its runtimes implement, or {raised}",
        )
    for operation in subject.experimental:
        yield Hit(
            operation.place,
            f"uses `{operation.operator}`, which is experimental: {operation.nodes.words}",
            model=subject.model.path,
            node=operation.nodes.name,
            on=OnRuntime(subject.runtime.name),
            level=Level.NOTE,
            identity=operation.operator,
        )
