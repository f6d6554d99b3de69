"""The rule `input-renamed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, match_inputs


@rule(ModelChange, "input-renamed", level=Level.ERROR, since="0.1.0")
def input_renamed(subject: ModelChange) -> Iterator[Hit]:
    """
    An input has been renamed since the baseline.

    ## Why it matters
    Callers that use the old name get the error `Required inputs ([…]) are missing from input feed`. Exporters generate
    names if `input_names` is not set.

    ## What to do
    - Export with the old name in `input_names`.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    for pair in match_inputs(subject).pairs:
        if pair.renamed:
            yield create_breaking_hit(
                subject,
                f"input `{pair.after.name}` was named `{pair.before.name}` {subject.baseline}",
                f"export it as `{pair.before.name}` (`input_names`)",
                identity=f"{pair.before.name} {pair.after.name}",
            )
