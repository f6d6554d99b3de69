"""Match the smallest nodes of an operator with one release: how does it run the operator with given types?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from onnxgate.core.text import join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers.operator_answers import SUPPORTED_WAYS, WAYS, SupportWay
from onnxgate.support.matching.function_bodies import has_function_body
from onnxgate.support.matching.kernels import Implemented, find_implementation
from onnxgate.support.matching.onnxruntime.kernel_restrictions import UNEVENLY_RESTRICTED_OPERATORS
from onnxgate.support.matching.operations import Attribute, NodeTraits, Operation, SupportGap
from onnxgate.support.matching.probed.node_matching import NOT_CONSTANT
from onnxgate.support.operators import Implementation, Schema

_WITHOUT_KERNEL = frozenset({"Constant", "Dropout", "Identity", "Shape"})
"""Operators that some releases run in other ways than with a kernel or function body."""

_UNSET = re.compile(r"(\w+): unset")
"""Pattern of a missing attribute in the features that a gap of a probed engine is about."""


class ReleaseAnswer(NamedTuple):
    """How one release runs an operator with given types."""

    way: SupportWay
    reason: str = ""


class MinimalNodes(NamedTuple):
    """The smallest nodes with given types, of which a release has to accept one."""

    schema: Schema
    operations: tuple[Operation, ...]
    condition: str  # on which the release runs them; "" if there is none


def find_best(answers: Iterable[ReleaseAnswer]) -> ReleaseAnswer:
    """Return the first answer with the best way."""
    return min(answers, key=lambda answer: WAYS.index(answer.way))


def match_nodes(release: Implementation, nodes: MinimalNodes) -> tuple[ReleaseAnswer, bool]:
    """Return how a release runs one of the nodes, and whether all releases with the same operator run it in this way.

    Releases with the same schemas and kernels can differ if they use no kernel, and in restrictions of some operators.
    """
    domain, name = nodes.operations[0].domain, nodes.operations[0].name
    needs_kernel = name not in _WITHOUT_KERNEL and not has_function_body(domain, name, nodes.schema.since)
    is_even = name not in UNEVENLY_RESTRICTED_OPERATORS
    failed: list[ReleaseAnswer] = []
    for operation in nodes.operations:
        answer = _match_operation(release, nodes.schema, operation)
        if answer.way in SUPPORTED_WAYS:
            by_kernel = answer.way == "kernel" and not failed
            return answer, release.is_probed or (is_even and (needs_kernel or by_kernel))
        failed.append(answer)
    return find_best(failed), release.is_probed or (is_even and needs_kernel)


def _match_operation(release: Implementation, schema: Schema, operation: Operation) -> ReleaseAnswer:
    """Return how a release runs an operation. Attributes that it requires beyond the schema are added.

    Kernels require attributes that all useful nodes have, such as `hidden_size` of LSTM. Probed engines also require
    some that are optional, such as `seed` of Bernoulli, so that the answer depends on the node.
    """
    result = find_implementation(operation, release)
    added: list[str] = []
    while isinstance(result, SupportGap) and result.rule == "attribute-unsupported":
        required = _list_required_attributes(result, schema, operation)
        if not required:
            break
        added += (attribute.name for attribute in required)
        attributes = sorted((*operation.attributes, *required), key=lambda attribute: attribute.name)
        operation = replace(operation, attributes=tuple(attributes))
        result = find_implementation(operation, release)
    if isinstance(result, Implemented) and added and release.is_probed:
        return ReleaseAnswer("unknown", f"only with {join_quoted(added)}")
    if isinstance(result, Implemented):
        return ReleaseAnswer(result.way)
    if isinstance(result, str):
        return ReleaseAnswer("unknown", result)
    if release.is_probed and NOT_CONSTANT in result.about:
        return ReleaseAnswer("unknown", "only if all inputs are constant")
    for condition, changed in _list_removals(operation):
        if isinstance(find_implementation(changed, release), Implemented):
            return ReleaseAnswer("unknown", condition)  # the rest of the model decides
    is_general = result.rule == "type-mismatch" and result.detail  # about a type, not about the operator
    return ReleaseAnswer("none", f"{result.problem}; the release {result.detail}" if is_general else result.problem)


def _list_required_attributes(gap: SupportGap, schema: Schema, operation: Operation) -> list[Attribute]:
    """Return the attributes that an operation lacks according to a gap, without values."""
    names = {gap.about, *_UNSET.findall(gap.about)} - {attribute.name for attribute in operation.attributes}
    return [Attribute(name, kind, b"") for name, (kind, _) in schema.attributes.items() if name in names]


def _list_removals(operation: Operation) -> Iterator[tuple[str, Operation]]:
    """Yield conditions under which releases may remove a node without a kernel, and the operation that meets them."""
    if operation.domain == DEFAULT_DOMAIN and operation.name == "Shape":
        yield "only if all sizes of the input are fixed", replace(operation, static=True)
    if operation.domain == DEFAULT_DOMAIN and operation.name in ("Identity", "Dropout"):
        yield "only if the optimizer can remove the node", replace(operation, traits=NodeTraits(is_eliminated=True))
