"""The rule `export-opset-ignored`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.findings import Hit, Level
from onnxgate.core.text import join_quoted
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule

MAX_NAMED = 4
"""Maximum number of operators in a message."""


@rule(Reexport, "export-opset-ignored", level=Level.ERROR, since="0.1.0")
def export_opset_ignored(subject: Reexport) -> Iterator[Hit]:
    """
    The exporter did not write the requested opset.

    ## Why it matters
    PyTorch exports at opset 18 or newer. If converting the model to an older opset fails, PyTorch keeps opset 18 and
    still reports success.

    ## What to do
    - Set `opset` in `onnxgate.toml` to an opset that the exporter can write and all targets support, or
    - set `command` to an export command that converts the model.
    """
    nearest = subject.opsets.nearest
    for domain, requested in sorted(subject.opsets.requested.items()):
        written = subject.opsets.written.get(domain)
        if not subject.opsets.written or written == requested:
            continue
        fix = f"pin opset {written}, or use an exporter that can write opset {requested}" if written else ""
        if domain == "ai.onnx" and nearest is not None:
            fix = f"pin opset {nearest}, the nearest opset that this exporter can write and all targets support"
        yield Hit(
            subject.place,
            f"export with `{subject.source}` wrote {'no opset' if written is None else f'opset {written}'} of "
            f"`{domain}` instead of {requested}{_describe_newer(subject) if domain == 'ai.onnx' else ''}",
            model=subject.model,
            fix=fix,
        )


def _describe_newer(subject: Reexport) -> str:
    """Name the operators that stop the conversion to the requested opset, or that it has to replace."""
    opsets = subject.opsets
    requested = f"opset {opsets.requested['ai.onnx']}"
    if opsets.missing:
        return f"; {requested} has no {_name_operators(opsets.missing)}"
    return f"; {_name_operators(opsets.changed)} changed since {requested}" if opsets.changed else ""


def _name_operators(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return f"{join_quoted(names[:MAX_NAMED])}{more}"
