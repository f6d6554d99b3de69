"""The rule `path-leaked`."""

from __future__ import annotations

from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "path-leaked", level=Level.WARNING, since="0.1.0")
def path_leaked(subject: ModelFile) -> Iterator[Hit]:
    """
    Metadata or document strings of a model name a folder in somebody's home.

    ## Why it matters
    PyTorch writes the source's lines into each node, with absolute paths: who publishes the file tells the name of an
    account and how its disk is arranged, and the same export from another folder has other bytes. Paths below
    `/home/NAME`, `/Users/NAME` and `C:\\Users\\NAME` count. Paths of containers and of CI's own accounts (`/root`,
    `/app`, `/home/runner`) name nobody, and do not.

    ## What to do
    Export by a `source`: onnxgate makes the paths relative to the repository. Or take them out of the file's metadata,
    as `onnxgate fix` does.
    """
    if not subject.graph.leaked_paths:
        return
    first = subject.graph.leaked_paths[0]
    more = f", and {len(subject.graph.leaked_paths) - 1} more" if len(subject.graph.leaked_paths) > 1 else ""
    yield Hit(
        subject.place,
        f"metadata name a folder in somebody's home: `{first}`{more}",
        model=subject.path,
        fix="export it by a `source`, which makes paths relative, or run `onnxgate fix`: it takes them out",
    )
