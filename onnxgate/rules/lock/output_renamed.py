"""The rule `output-renamed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, match_outputs


@rule(ModelChange, "output-renamed", level=Level.ERROR, since="0.1.0")
def output_renamed(subject: ModelChange) -> Iterator[Hit]:
    """
    An output has been renamed since the baseline.

    ## Why it matters
    Callers that request the old name get the error `Invalid output name`. Without `output_names`, PyTorch names an
    output after the operation that computes it (`add_3`). This name depends on the code and the exporter.

    ## What to do
    - Export with the old name in `output_names`.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for pair in match_outputs(subject).pairs:
        if pair.renamed:
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` was named `{pair.before.name}` {subject.baseline}",
                f"export it as `{pair.before.name}` (`output_names`)",
                identity=f"{pair.before.name} {pair.after.name}",
            )
