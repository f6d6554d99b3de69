"""The rule `export-opset-ignored`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.export import Reexport
from onnxgate.rules.definition import rule


@rule(Reexport, "export-opset-ignored", level=Level.ERROR, since="0.1.0")
def export_opset_ignored(subject: Reexport) -> Iterator[Hit]:
    """
    The exporter was asked for one opset and wrote another.

    ## Why it matters
    PyTorch translates to opset 18 and newer. Asked for an older one it tries to convert, and where that fails it keeps
    18 and reports success; asked for one that it does not know, it may stamp another. The file then needs a newer
    runtime than was meant.

    ## What to do
    Pin an opset that the exporter really writes (`opset` in `onnxgate.toml`) and that all targets take, or export by a
    `command` that converts the file and checks it.
    """
    nearest = subject.opsets.nearest
    for domain, requested in sorted(subject.opsets.requested.items()):
        written = subject.opsets.written.get(domain)
        if not subject.opsets.written or written == requested:
            continue
        fix = f"pin opset {written}, or use an exporter that writes {requested}" if written else ""
        if domain == "ai.onnx" and nearest is not None:
            fix = f"pin opset {nearest}: the nearest that this exporter writes and every target takes"
        yield Hit(
            subject.place,
            f"export by `{subject.source}` was asked for opset {requested} of `{domain}` and wrote "
            f"{'none' if written is None else written}",
            model=subject.model,
            fix=fix,
        )
