"""One digest of all that a model is: its file and its external data."""

from __future__ import annotations

import hashlib
from pathlib import Path

from onnxgate.model.external import Layout, layout
from onnxgate.model.facts import ModelFacts


def content_sha256(facts: ModelFacts) -> str:
    """
    The SHA-256 of a model's content: that of its file, where the file holds all of it.

    With external data it is that of the files' digests, one a line: the model's, then each data file's by location.
    `sha256sum m.onnx m.onnx.data | cut -c1-64 | sha256sum` prints it.
    """
    if not facts.external:
        return facts.sha256
    digests = (facts.sha256, *(each.sha256 for each in sorted(facts.external)))
    return hashlib.sha256("".join(f"{digest}\n" for digest in digests).encode()).hexdigest()


def content_files(facts: ModelFacts, model: Path) -> dict[Path, str]:
    """The files that a model's content lies in, with the SHA-256 of each."""
    return {model: facts.sha256, **{model.parent / each.location: each.sha256 for each in facts.external}}


def layouts(facts: ModelFacts, model: Path) -> tuple[Layout, ...]:
    """Where each data file lies, by location: runtimes that read it beside the model may refuse it elsewhere."""
    return tuple(layout(model, each.location) for each in sorted(facts.external))
