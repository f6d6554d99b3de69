"""Folders in somebody's home, taken out of metadata and document strings."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath

from onnxgate.model.leaks import leaked_paths
from onnxgate.repair.fix import Asked, Change, Left
from onnxgate.repair.parts import Part
from onnxgate.repair.rewriting import Edits, Found, rewritten

_PACKAGES = re.compile(r".*[/\\](?:site|dist)-packages[/\\]+")
_HOLDERS = (
    *("ModelProto", "GraphProto", "FunctionProto", "NodeProto", "ValueInfoProto", "TensorProto", "AttributeProto"),
    "OperatorSetIdProto",
)
"""Messages that have a `doc_string`, `metadata_props` or both."""


class LeakedPaths:
    """Names files relative to the repository or to their package; of others it leaves the name alone."""

    name = "leaked-paths"
    rules = frozenset({"path-leaked"})

    def propose(self, asked: Asked) -> Change | Left | None:
        """The same file with shorter texts."""
        paths = {path: _short(path, str(asked.root)) for path in leaked_paths(asked.proto)}
        if not paths:
            return None
        parts = rewritten(asked.path, _edits({path.encode(): short.encode() for path, short in paths.items()}))
        return Change(parts, tuple(f"`{path}` becomes `{short}`" for path, short in sorted(paths.items())))


def _short(path: str, root: str) -> str:
    if path.startswith(f"{root}/"):
        return path[len(root) + 1 :]
    if (inside := _PACKAGES.sub("", path)) != path:
        return inside
    pure = PureWindowsPath(path) if "\\" in path else PurePosixPath(path)
    return pure.name


def _edits(paths: dict[bytes, bytes]) -> Edits:
    longest = sorted(paths, key=len, reverse=True)  # a folder after what lies in it
    pattern = re.compile(b"|".join(map(re.escape, longest)))

    def text(found: Found) -> list[Part] | None:
        content = found.content()
        new = pattern.sub(lambda hit: paths[hit[0]], content)
        return None if new == content else found.replaced([new])

    def entry(found: Found) -> list[Part]:
        return found.edited({("StringStringEntryProto", "value"): text}, shallow=True)

    texts = {(holder, "doc_string"): text for holder in _HOLDERS}
    return texts | {(holder, "metadata_props"): entry for holder in _HOLDERS}
