"""The rule `input-passthrough`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, OnRuntime, version_sort_key
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "input-passthrough", level=Level.ERROR, since="0.1.0", blocks_run=False)
def input_passthrough(subject: ModelFile) -> Iterator[Hit]:
    """
    A graph input is a graph output too, with no node between.

    ## Why it matters
    ONNX allows it, and `onnx.checker` is content. In Python, ONNX Runtime 1.19 to 1.25 hand out the caller's own
    memory as that output: once the array that was fed is freed, the output silently holds something else, at every
    optimisation level. Up to 1.18 and from 1.26 on it is a copy, and strings always are.
    Source: microsoft/onnxruntime#21922, #26339, #28088 and pytorch/pytorch#167848; measured on 1.16.3, 1.17.3, 1.18.1,
    1.19.2, 1.20.1, 1.21.1, 1.22.1, 1.23.2, 1.24.4, 1.25.1, 1.26.0, 1.28.0 and 1.31.1.

    It is an error where a locked release does that, and a warning where none does. The model is run all the same: the
    run tells on which releases it shows.

    ## What to do
    Put an `Identity` between: in PyTorch, return `x.clone()` in place of `x`; or drop the output, since the caller has
    its value already. `onnxgate fix --unsafe` puts it into the file, where the output then has another name.
    """
    affected = []
    for runtime in subject.runtimes if subject.graph.passthroughs else ():
        engine, _, release = runtime.partition(" ")
        is_in_python = engine.startswith("onnxruntime") and engine != "onnxruntime-web"
        if is_in_python and version_sort_key("1.19") <= version_sort_key(release) < version_sort_key("1.26"):
            affected.append(runtime)
    for name in subject.graph.passthroughs:
        for runtime in affected or [""]:
            yield Hit(
                subject.place,
                f"output `{name}` is the input of the same name, with no node between; in Python, "
                "onnxruntime 1.19 to 1.25 return the caller's own memory for it, which changes once the input is freed",
                model=subject.path,
                fix="put an `Identity` between (in PyTorch, return `x.clone()`; in the file, `onnxgate fix --unsafe`), "
                "or drop the output",
                on=OnRuntime(runtime) if runtime else None,
                level=Level.WARNING if subject.runtimes and not affected else None,
            )
