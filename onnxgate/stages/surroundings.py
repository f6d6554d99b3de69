"""What beside operators decides how a runtime takes a model: where its external data lie, which providers run it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from onnxgate.evidence.support import ExternalDataOnRuntime, ProviderFallback
from onnxgate.model.external import entries, is_external, layout
from onnxgate.model.structure import tensors
from onnxgate.stages.operators import Model, Operators
from onnxgate.stages.supported import Known
from onnxgate.support.external import takes, works
from onnxgate.support.match import CPU
from onnxgate.support.operations import TypedNode
from onnxgate.support.providers import OneProvider, providers_of
from onnxgate.support.table import Implementation

if TYPE_CHECKING:
    from onnx import ModelProto


def external_data(model: Model, proto: ModelProto, known: Sequence[Known]) -> Iterator[ExternalDataOnRuntime]:
    """Each file of external data with each runtime that does not read it where it lies."""
    uses = Counter(entries(tensor).get("location", "") for _, tensor in tensors(proto) if is_external(tensor))
    for location, tensor_count in uses.items():
        where = layout(model.selected.absolute, location) if location else "inside"
        if where == "inside":
            continue
        since, until = works(where)
        for each in known:
            if takes(each.limits, where) is False:
                yield ExternalDataOnRuntime(
                    model.path, model.place, each.name, location, where, tensor_count, since, until
                )


def fallbacks(operators: Operators) -> Iterator[ProviderFallback]:
    """Each provider of a target with the nodes that it leaves to the processor, of builds whose kernels are known."""
    for each in operators.known:
        asked = [provider for provider in each.planned.providers if provider != CPU]
        if each.whole is None or not asked:
            continue
        for provider in (provider for provider in asked if provider in providers_of(each.whole)):
            left = _left(operators, each.whole, provider)
            if left:
                yield _fallback(operators, each, provider, left)


def _left(operators: Operators, whole: Implementation, provider: str) -> list[TypedNode]:
    alone = OneProvider(whole, provider)
    nodes = operators.prepared.every()
    return [node for node in nodes if not node.calls and not node.inner and alone.leaves(node.operation)]


def _fallback(operators: Operators, known: Known, provider: str, left: Sequence[TypedNode]) -> ProviderFallback:
    return ProviderFallback(
        model=operators.model.path,
        place=operators.place(left[0]),
        runtime=known.name,
        provider=provider,
        runs_on=CPU,
        operators=dict(sorted(Counter(node.operation.label for node in left).items())),
        nodes=operators.nodes(left),
    )
