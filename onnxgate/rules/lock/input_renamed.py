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
    An input of a model has another name than at the baseline.

    ## Why it matters
    Callers feed inputs by name: the old name gives `Required inputs ([…]) are missing from input feed`. Exporters that
    are told no `input_names` take them from the arguments of `forward`, or make them up, and another exporter makes up
    others.

    It is taken for the same input where type and shape fit and it stands at the same place, or nothing else fits.

    ## What to do
    Export with the old name: `input_names` of `torch.onnx.export`. If the callers are changed together with the model,
    accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    for pair in match_inputs(subject).pairs:
        if pair.renamed:
            yield create_breaking_hit(
                subject,
                f"input `{pair.after.name}` was called `{pair.before.name}` {subject.baseline}",
                f"export it as `{pair.before.name}` (`input_names`)",
            )
