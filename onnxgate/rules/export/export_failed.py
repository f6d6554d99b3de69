"""The rule `export-failed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level, mask_numbers
from onnxgate.diagnostics.catalogue.exporters import ExportErrorCause, find_cause
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "export-failed", level=Level.ERROR, since="0.1.0")
def export_failed(subject: Reexport) -> Iterator[Hit]:
    """
    A model cannot be exported from its source any more.

    ## Why it matters
    The committed file is a leftover: nobody can make it again, and no change of the source will ever reach it.

    ## What to do
    Correct the line that is shown. A callable named by `source` takes nothing and returns `(module, args)`, or a
    mapping with `model`, `args`, `kwargs`, `input_names`, `output_names` and `dynamic_shapes`; with `dynamo: False` it
    is exported by the TorchScript exporter, which takes `dynamic_axes` instead. A `command` ends with exit status 0 and
    leaves the model at `{output}`. Either runs under the interpreter of `[toolchain]`, in the config's folder.

    A source that has what its exporter cannot write down (a branch on values, an operator that ONNX does not have) is
    `source-not-exportable`; a file that is written and that `onnx.checker` refuses is this rule's.
    """
    failure, end = subject.failure, subject.end
    cause = find_cause(failure.type, failure.text, subject.behaviour.exporter) if failure else None
    if failure and (cause is None or cause.exportable is not False):  # else `source-not-exportable` reports it
        text = f"failed: {failure.type}: {failure.text}"
    elif end and end.timed_out_s:
        text = f"did not end within {end.timed_out_s:g} s"
    elif end and end.crashed:
        text = f"crashed: {end.crashed}"
    else:
        return
    yield Hit(
        subject.place,
        f"export by `{subject.source}` {text}",
        model=subject.model,
        fix=_suggest_fix(subject, cause),
        identity=mask_numbers(text),
    )


def _suggest_fix(subject: Reexport, cause: ExportErrorCause | None) -> str:
    failure, nearest = subject.failure, subject.opsets.nearest
    if subject.end and subject.end.timed_out_s:
        return "make it faster, or raise `time-s` of `[limits]`"
    if failure is None:
        return f"run `{subject.source}` by itself to see where it ends"
    if failure.memory:
        return "make it smaller, or raise `memory-mib` of `[limits]`"
    # The opset is the likely reason: it was refused, or made the file invalid.
    if nearest is not None and (failure.type == "invalid model" or "opset_version" in failure.text):
        return f"pin opset {nearest}: the nearest that this exporter writes and every target takes"
    if cause is not None:
        return cause.advice
    return "correct that line" if failure.source else "correct the source, or its entry in the config"
