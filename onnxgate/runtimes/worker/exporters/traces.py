"""Stack traces that PyTorch writes into a model, freed of the exporting machine's folders."""

from __future__ import annotations

import re
from typing import Any, Match, Sequence

from .source import below

_KEY = "pkg.torch.onnx.stack_trace"
"""Source: torch.onnx (dynamo=True) in torch 2.5 and later writes it into each node's metadata_props."""
_FRAME = re.compile(r'File "([^"\n]+)"')
_PACKAGES = re.compile(r".*[/\\\\](?:site|dist)-packages[/\\\\]")


def make_relative(model: Any, folders: Sequence[str]) -> bool:
    """Name files relative to the project, or to the packages that they lie in. Says whether anything changed."""

    def relative(frame: Match[str]) -> str:
        return 'File "{}"'.format(below(frame[1], folders) or _PACKAGES.sub("", frame[1]))

    changed = False
    for node in _nodes(model):
        for entry in node.metadata_props:
            value = _FRAME.sub(relative, entry.value) if entry.key == _KEY else entry.value
            changed = changed or value != entry.value
            entry.value = value
    return changed


def _nodes(model: Any) -> Any:
    """All nodes, those of subgraphs and functions included."""
    waiting = [model.graph, *model.functions]
    while waiting:
        for node in waiting.pop().node:
            yield node
            for attribute in node.attribute:
                waiting.extend([attribute.g] * attribute.HasField("g") + list(attribute.graphs))
