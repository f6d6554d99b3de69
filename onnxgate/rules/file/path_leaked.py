"""The rule `path-leaked`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.advice import ConfigEdit, Repair
from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "path-leaked", level=Level.WARNING, since="0.1.0")
def path_leaked(subject: ModelFile) -> Iterator[Hit]:
    """
    Metadata contains a path in a home directory.

    ## Why it matters
    PyTorch records absolute source paths in each node. These paths reveal a user name, and exports of the
    same model from different folders differ.

    ## What to do
    - Run `onnxgate fix MODEL`, which shortens the paths, or
    - configure a `source` and run `onnxgate export MODEL`, which writes relative paths.
    """
    if not subject.graph.leaked_paths:
        return
    first = subject.graph.leaked_paths[0]
    more = f" and {len(subject.graph.leaked_paths) - 1} more" if len(subject.graph.leaked_paths) > 1 else ""
    yield Hit(
        subject.place,
        f"contains metadata with a path in a home directory: `{first}`{more}",
        model=subject.path,
        fix=(
            Repair(subject.path, "to shorten the paths"),
            ConfigEdit("configure a `source` and export the model again"),
        ),
    )
