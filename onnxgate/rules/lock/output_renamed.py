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
    An output of a model has another name than at the baseline.

    ## Why it matters
    A caller who asks for the old name gets `Invalid output name`. `torch.onnx.export` that is told no `output_names`
    takes the name of the last operation (`add_3`, `linear_1`): it changes when the code of the model does, and with
    the exporter.

    It is taken for the same output where type and shape fit and it stands at the same place, or nothing else fits.

    ## What to do
    Export with the old name: `output_names` of `torch.onnx.export`. If the callers are changed together with the
    model, accept the break with an `[[ignore]]` that has this content's `sha256`.
    """
    for pair in match_outputs(subject).pairs:
        if pair.renamed:
            yield create_breaking_hit(
                subject,
                f"output `{pair.after.name}` was called `{pair.before.name}` {subject.baseline}",
                f"export it as `{pair.before.name}` (`output_names`)",
            )
