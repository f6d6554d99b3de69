"""What the words of a refusal tell of an engine: all that it does not have, and whether that is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from onnxgate.evidence.runtime import Attempt, Unsupported
from onnxgate.evidence.support import Nodes
from onnxgate.model.places import node_place
from onnxgate.model.structure import nodes
from onnxgate.stages.known_limits import limit_of_text
from onnxgate.texts.families import unsupported

if TYPE_CHECKING:
    from onnx import NodeProto

    from onnxgate.stages.runtime import RunModel


def understood(runtime: str, attempts: Iterable[Attempt], model: RunModel) -> Iterator[Attempt]:
    """The attempts, each refusal with what its words tell."""
    for each in attempts:
        if each.failure is None:
            yield each
            continue
        text = each.failure.text
        found = tuple(_occurring(name, model) for name in unsupported(text))
        yield msgspec.structs.replace(each, unsupported=found, known_limit=limit_of_text(runtime, text))


def _occurring(name: str, model: RunModel) -> Unsupported:
    """An operator with the nodes that ask for it."""
    found = [each for each in nodes(model.proto) if _called(each) == name]
    if not found:
        return Unsupported(operator=name)
    place = node_place(found[0], model.root, model.folder)
    return Unsupported(operator=name, words=_words(found), node=found[0].name, place=place)


def _words(found: Sequence[NodeProto]) -> str:
    first = found[0]
    return Nodes(name=first.name, output=next(iter(first.output), ""), others=len(found) - 1).words


def _called(node: NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
