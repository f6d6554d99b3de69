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
    if text := _describe_failure(subject):
        yield Hit(
            subject.place,
            f"export by `{subject.source}` {text}",
            model=subject.model,
            fix=_suggest_fix(subject),
            identity=mask_numbers(text),
        )


def _describe_failure(subject: Reexport) -> str:
    if subject.failure and not _is_source_failure(subject):
        return f"failed: {subject.failure.type}: {subject.failure.text}"
    if subject.end and subject.end.timed_out_s:
        return f"did not end within {subject.end.timed_out_s:g} s"
    return f"crashed: {subject.end.crashed}" if subject.end and subject.end.crashed else ""


def _suggest_fix(subject: Reexport) -> str:
    if subject.end and subject.end.timed_out_s:
        return "make it faster, or raise `time-s` of `[limits]`"
    if subject.failure is None:
        return f"run `{subject.source}` by itself to see where it ends"
    if subject.failure.memory:
        return "make it smaller, or raise `memory-mib` of `[limits]`"
    if nearest := _suggest_opset(subject):
        return nearest
    if cause := _find_cause(subject):
        return cause.advice
    return "correct that line" if subject.failure.source else "correct the source, or its entry in the config"


def _find_cause(subject: Reexport) -> ExportErrorCause | None:
    return (
        find_cause(subject.failure.type, subject.failure.text, subject.behaviour.exporter) if subject.failure else None
    )


def _is_source_failure(subject: Reexport) -> bool:
    """Whether `source-not-exportable` says it."""
    cause = _find_cause(subject)
    return cause is not None and cause.exportable is False


def _suggest_opset(subject: Reexport) -> str:
    """What to pin instead, where the opset is the likely reason: it was refused, or made the file invalid."""
    failure = subject.failure
    if subject.opsets.nearest is None or failure is None:
        return ""
    if failure.type != "invalid model" and "opset_version" not in failure.text:
        return ""
    return f"pin opset {subject.opsets.nearest}: the nearest that this exporter writes and every target takes"
