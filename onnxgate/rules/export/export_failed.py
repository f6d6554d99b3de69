"""The rule `export-failed`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.diagnostics.catalogue.exporters import ExportErrorCause, find_cause
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

_MISSPELLED = re.compile(r"(?<=`); did you mean `([^`]+)`\?$")
"""Pattern that finds the suggested name in the error that is raised if the callable in `source` does not exist."""


@rule(Reexport, "export-failed", level=Level.ERROR, since="0.1.0")
def export_failed(subject: Reexport) -> Iterator[Hit]:
    """
    A model could not be exported.

    ## Why it matters
    The committed file cannot be reproduced or updated.

    ## What to do
    - Fix the source line shown in the finding.
    - A callable in `source` takes no arguments. For PyTorch, it returns `(module, args)`, or a dict with `model`,
      `args`, `kwargs`, `input_names`, `output_names`, `dynamic_shapes`, `opset_version` and
      `custom_translation_table`.
    - A `command` must exit with status 0 and write the model to `{output}`.

    The callable and the command run in the folder that contains `onnxgate.toml`, with the Python interpreter configured
    in `[toolchain]`.
    """
    failure, end = subject.failure, subject.end
    cause = find_cause(failure.type, failure.text, subject.behaviour.exporter) if failure else None
    if failure and (cause is None or cause.exportable is not False):  # otherwise `source-not-exportable` reports it
        text = f"failed: {_MISSPELLED.sub('', failure.summary)}"
    elif end and end.timed_out_s:
        text = f"did not finish within {end.timed_out_s:g} s"
    elif end and end.crashed:
        text = f"crashed: {end.crashed}"
    else:
        return
    yield Hit(
        subject.place,
        f"export with `{subject.source}` {text}",
        model=subject.model,
        fix=_suggest_fix(subject, cause),
        identity=failure.type if failure else "crash" if end and end.crashed else "time",
    )


def _suggest_fix(subject: Reexport, cause: ExportErrorCause | None) -> str:
    failure, nearest = subject.failure, subject.opsets.nearest
    if subject.end and subject.end.timed_out_s:
        return "make the export faster, or raise `time-s` in `[limits]`"
    if failure is None:
        return f"run `{subject.source}` manually to see where it crashes"
    if failure.memory:
        return "reduce the memory usage of the export, or raise `memory-mib` in `[limits]`"
    # The opset is the likely reason: it was refused, or made the file invalid.
    if nearest is not None and (failure.type == "invalid model" or "opset_version" in failure.text):
        return f"pin opset {nearest}, the nearest opset that this exporter can write and all targets support"
    if cause is not None:
        return cause.advice
    if misspelled := _MISSPELLED.search(failure.text):
        file = subject.source.rpartition(":")[0]
        return f'set `source = "{file}:{misspelled[1]}"` in `onnxgate.toml`'
    if failure.source:
        return f"fix the code at `{failure.source}`"
    if subject.is_command:
        return "run the command manually to see its output, then fix the model's `command` in `onnxgate.toml`"
    return "fix the source code or the model's `source` in `onnxgate.toml`"
