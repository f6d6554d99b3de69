"""The rule `path-leaked`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from onnxgate.core.findings import Hit, Level
from onnxgate.evidence.file import ModelFile
from onnxgate.rules.definition import rule


@rule(ModelFile, "path-leaked", level=Level.WARNING, since="0.1.0")
def path_leaked(subject: ModelFile) -> Iterator[Hit]:
    """
    Metadata contains a path in a user's home folder.

    ## Why it matters
    PyTorch records source lines with absolute paths in each node. A published model then reveals an account name, and
    exports from different folders differ. Paths under `/home/NAME`, `/Users/NAME` and `C:\\Users\\NAME` are reported;
    `/root`, `/app` and `/home/runner` are not.

    ## What to do
    - Run `onnxgate fix MODEL`, which removes the paths, or
    - export through a `source`: onnxgate makes the paths relative to the repository.
    """
    if not subject.graph.leaked_paths:
        return
    first = subject.graph.leaked_paths[0]
    more = f" and {len(subject.graph.leaked_paths) - 1} more" if len(subject.graph.leaked_paths) > 1 else ""
    yield Hit(
        subject.place,
        f"contains a path in a home folder in its metadata: `{first}`{more}",
        model=subject.path,
        fix=f"run `onnxgate fix {shlex.quote(subject.path)}` to remove it, or export through a `source`",
    )
