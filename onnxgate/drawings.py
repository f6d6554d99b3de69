"""Pictures of the nodes that findings name: which are drawn, and from which file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.report import LEVELS, Drawing, DrawnEdge, DrawnNode, Finding

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.model.neighbourhood import Neighbourhood

MOST = 20
"""Drawings of one report."""
_UNNAMED = re.compile(r"\bthat makes `([^`]+)`")
"""How a message names a node that has no name (`Nodes.words`, `evidence/beginnings.py`)."""


@dataclass(frozen=True, slots=True)
class Named:
    """A node of a model as a finding names it."""

    model: str
    node: str  # its name; where it has none, the value that it makes
    unnamed: bool

    @property
    def key(self) -> tuple[str, str]:
        """What tells drawings apart."""
        return self.model, self.node


def named(findings: Iterable[Finding]) -> list[Named]:
    """The nodes that errors and warnings name, the gravest first, each once."""
    grave = [finding for finding in findings if finding.level in LEVELS[:2] and not finding.ignored and finding.model]
    grave.sort(key=lambda finding: LEVELS.index(finding.level))
    unique: dict[tuple[str, str], Named] = {}
    for each in filter(None, map(_named, grave)):
        unique.setdefault(each.key, each)
    return list(unique.values())


def _named(finding: Finding) -> Named | None:
    if finding.node:
        return Named(finding.model, finding.node, unnamed=False)
    found = _UNNAMED.search(finding.message)
    return Named(finding.model, found[1], unnamed=True) if found else None


def draw(findings: Sequence[Finding], files: Mapping[str, Path]) -> tuple[Drawing, ...]:
    """A drawing of each such node that is found in its model's file, at most `MOST`; by model and node."""
    drawn = itertools.islice(_drawn(named(findings), files), MOST)
    return tuple(sorted(drawn, key=lambda each: (each.model, each.node)))


def gravest(findings: Sequence[Finding], drawings: Iterable[Drawing]) -> tuple[Drawing, ...]:
    """Of the drawings of several reports those that one report of all these findings would have."""
    by_name = {(each.model, each.node): each for each in drawings}
    kept = [by_name[each.key] for each in named(findings) if each.key in by_name][:MOST]
    return tuple(sorted(kept, key=lambda each: (each.model, each.node)))


def _drawn(names: Iterable[Named], files: Mapping[str, Path]) -> Iterator[Drawing]:
    from onnxgate.model.neighbourhood import neighbourhood

    for model, of_model in itertools.groupby(names, lambda each: each.model):
        proto = _structure(files.get(model))
        for each in of_model if proto is not None else ():
            found = neighbourhood(proto, "" if each.unnamed else each.node, each.node)
            if found is not None:
                yield _reported(each, found)


def _structure(file: Path | None) -> ModelProto | None:
    from onnxgate.model.structure import UnreadableModel, read_structure

    try:
        return read_structure(file) if file is not None else None
    except (OSError, UnreadableModel):
        return None


def _reported(named: Named, found: Neighbourhood) -> Drawing:
    return Drawing(
        model=named.model,
        node=named.node,
        nodes=tuple(DrawnNode(name=box.name, operator=box.operator, kind=box.kind) for box in found.boxes),
        edges=tuple(DrawnEdge(source=each.source, target=each.target, value=each.value) for each in found.arrows),
    )
