"""The rule `input-passthrough`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import Action, Repair
from onnxgate.core.findings import Hit, Level, OnRuntime, version_sort_key
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "input-passthrough", level=Level.ERROR, since="0.1.0", blocks_run=False)
def input_passthrough(subject: ModelFile) -> Iterator[Hit]:
    """
    A graph input is also a graph output.

    ## Why it matters
    In Python, ONNX Runtime 1.19–1.25 return the input array itself, so the output changes if the input array is
    modified. If no locked release does this, the finding is a warning.

    ## What to do
    - In PyTorch, return `x.clone()` instead of `x`, or
    - run `onnxgate fix --unsafe MODEL`, which inserts an `Identity` node and renames the output, or
    - remove the output.
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
                f"returns input `{name}` unchanged as an output; in Python, onnxruntime 1.19–1.25 return the input "
                "array itself instead of a copy",
                model=subject.path,
                fix=(
                    Action(f"return `{name}.clone()` in PyTorch"),
                    Repair(subject.path, options=("--unsafe",)),
                    Action("remove the output"),
                ),
                on=OnRuntime(runtime) if runtime else None,
                level=Level.WARNING if subject.runtimes and not affected else None,
                identity=name,
            )
