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
    A model has a metadata key no longer that it had at the baseline.

    ## Why it matters
    Programs read class names, sample rates and vocabularies from a model's metadata, and stop without them:
    `'sample_rate' does not exist in the metadata`. Exporters write none of it; a script that adds it after the export
    is easily forgotten, and optimisers drop it.

    ## What to do
    Add the key again (`model.metadata_props`), best in the script that exports the model. If nobody reads it, accept
    the break with an `[[ignore]]` that has this content's `sha256`.
    """
    remaining = set(subject.after.metadata_keys)
    removed = sorted({key for key in subject.before.metadata_keys if key not in remaining})
    if removed:
        noun, verb, was, it = (
            ("key", "is", "it was", "it") if len(removed) == 1 else ("keys", "are", "they were", "them")
        )
        yield create_breaking_hit(
            subject,
            f"metadata {noun} {quote_names(removed)} {verb} gone; {was} there {subject.baseline}",
            f"add {it} after the export (`metadata_props`)",
        )
