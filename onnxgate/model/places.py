"""The source line that made a node, where the exporter stamped it and the file is in the repository."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from onnxgate.findings import Place

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

_STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""Source: torch.onnx (dynamo=True) in torch 2.5 and later writes it into each node's metadata_props."""
_FRAME = re.compile(
    r'^ *File "(?P<path>[^"\n]+)", line (?P<line>[0-9]{1,9}), in [^\n]*(?:\n(?! *File ")(?P<text>[^\n]*))?',
    re.MULTILINE,
)
_FOREIGN = {"site-packages", "dist-packages"}
_MOST_PARTS = 64
"""Folders of a source's path; one of more is none. Each of its tails is looked for."""
_LARGEST_SOURCE_BYTES = 4 * 1024 * 1024
_consulted = ContextVar("consulted", default=False)


@dataclass(frozen=True, slots=True)
class _Frame:
    path: str
    line: int
    text: str


def node_place(node: NodeProto, root: Path, folder: Path) -> Place | None:
    """The innermost line of the repository at `root` that made the node; its path is relative to `folder`.

    A path of another checkout is matched by its longest tail that exists below `folder`, else below `root`. The line
    must still be the one that the trace quotes.
    """
    for frame in reversed(list(_frames(node))):
        _consulted.set(True)
        for path in _candidates(frame.path, root, folder):
            if _stands(frame, path):
                return Place(_relative(path, folder), frame.line)
    return None


@contextlib.contextmanager
def consulted() -> Iterator[Callable[[], bool]]:
    """Tells whether, since the block began, a place was looked for among the files of the repository."""
    before = _consulted.get()
    _consulted.set(False)
    try:
        yield _consulted.get
    finally:
        _consulted.set(before or _consulted.get())


def named_node(model: ModelProto, name: str) -> NodeProto | None:
    """The node of that name, subgraphs and local functions included; None where there is none."""
    from onnxgate.model.structure import nodes

    return next((node for node in nodes(model) if node.name == name), None) if name else None


def _frames(node: NodeProto) -> Iterator[_Frame]:
    for entry in node.metadata_props:
        if entry.key == _STACK_TRACE:
            for found in _FRAME.finditer(entry.value):
                yield _Frame(found["path"], int(found["line"]), (found["text"] or "").strip())


def _candidates(path: str, root: Path, folder: Path) -> Iterator[Path]:
    """Files of the repository that `path` may mean: itself, else its tails, the longest first."""
    parts = PurePath(path.replace("\\", "/")).parts
    if len(parts) > _MOST_PARTS or _FOREIGN.intersection(parts) or ".." in parts or "\0" in path:
        return
    top = Path(os.path.realpath(root))
    bases = dict.fromkeys((Path(os.path.realpath(folder)), top))
    for start in range(len(parts)):
        for base in bases:
            real = Path(os.path.realpath(base.joinpath(*parts[start:])))  # an absolute path stays what it is
            if real.is_relative_to(top) and not _FOREIGN.intersection(real.parts) and os.path.isfile(real):  # noqa: PTH113 - no name is too long for it
                yield real


def _stands(frame: _Frame, path: Path) -> bool:
    """The line that the trace quotes is still there; a trace without a quotation proves nothing."""
    if not frame.text or path.stat().st_size > _LARGEST_SOURCE_BYTES:
        return False
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return frame.line <= len(lines) and lines[frame.line - 1].strip() == frame.text


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, os.path.realpath(folder))).as_posix()
