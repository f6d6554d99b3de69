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
    An input of a model was renamed since the baseline.

    ## Why it matters
    Callers pass inputs by name, so the old name fails with `Required inputs ([…]) are missing from input feed`. Without
    `input_names`, exporters derive names from the arguments of `forward` or generate them.

    An input counts as renamed if type and shape match and either its position is the same or no other input matches.

    ## What to do
    - Export with the old name in `input_names`.
    - If callers change together with the model, accept the finding: `onnxgate check --show-ignores` prints the
      `[[ignore]]` entry to paste.
    """
    for pair in match_inputs(subject).pairs:
        if pair.renamed:
            yield create_breaking_hit(
                subject,
                f"input `{pair.after.name}` was named `{pair.before.name}` {subject.baseline}",
                f"export it as `{pair.before.name}` (`input_names`)",
            )
