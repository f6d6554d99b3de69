"""The rule `metadata-removed`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.lock import ModelChange
from onnxgate.rules.definition import rule
from onnxgate.rules.lock._hits import create_breaking_hit, quote_names


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
    left = set(subject.after.metadata_keys)
    gone = sorted({key for key in subject.before.metadata_keys if key not in left})
    if gone:
        text = f"metadata key {quote_names(gone)} is" if len(gone) == 1 else f"metadata keys {quote_names(gone)} are"
        was = "it was" if len(gone) == 1 else "they were"
        yield create_breaking_hit(
            subject,
            f"{text} gone; {was} there {subject.baseline}",
            f"add {'it' if len(gone) == 1 else 'them'} after the export (`metadata_props`)",
        )
