"""The rule `metadata-removed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._changes import create_breaking_hit, quote_names


@rule(ModelChange, "metadata-removed", level=Level.ERROR, since="0.1.0")
def metadata_removed(subject: ModelChange) -> Iterator[Hit]:
    """
    A metadata key has been removed since the baseline.

    ## Why it matters
    Applications that read class names, sample rates or vocabularies from the metadata fail. Exporters and optimizers
    often remove such keys.

    ## What to do
    - Add the key to `model.metadata_props` in the export script.
    - To accept the change, run the same check with `--show-ignores`, and add the printed entry to `onnxgate.toml`.
    """
    remaining = set(subject.after.metadata_keys)
    removed = sorted({key for key in subject.before.metadata_keys if key not in remaining})
    if removed:
        noun, pronoun = ("key", "it") if len(removed) == 1 else ("keys", "them")
        yield create_breaking_hit(
            subject,
            f"no longer has metadata {noun} {quote_names(removed)}, which it had {subject.baseline}",
            f"add {pronoun} after the export (`metadata_props`)",
            identity=" ".join(removed),
        )
