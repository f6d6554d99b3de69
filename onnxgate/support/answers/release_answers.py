"""Match the smallest nodes of an operator with one release: how does it run the operator with given types?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.answers.conditions import (
    ONLY_CONSTANT,
    describe_limits,
    find_absent_names,
    list_refused_uses,
    word_required,
    word_requirement,
)
from onnxgate.support.answers.operator_answers import SUPPORTED_WAYS, WAYS, SupportWay
from onnxgate.support.matching.function_bodies import has_function_body
from onnxgate.support.matching.kernels import Implemented, find_implementation
from onnxgate.support.matching.onnxruntime.kernel_restrictions import UNEVENLY_RESTRICTED_OPERATORS
from onnxgate.support.matching.operations import Attribute, NodeTraits, Operation, SupportGap
from onnxgate.support.matching.probed.node_matching import NOT_CONSTANT
from onnxgate.support.operators import OPTIONAL, Implementation, Schema

_WITHOUT_KERNEL = frozenset({"Constant", "Dropout", "Identity", "Shape"})
"""Operators that some releases run in other ways than with a kernel or function body."""


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


def limit_answer(answer: ReleaseAnswer, release: Implementation, name: str) -> ReleaseAnswer:
    """Return an answer with the conditions that do not follow from the smallest nodes, which have no neighbors."""
    requirements = [words for use in list_refused_uses(name, release) if (words := word_requirement([use]))]
    if requirements:
        return ReleaseAnswer("unknown", requirements[0])
    return answer._replace(reason=answer.reason or describe_limits(name, release))


def _match_operation(release: Implementation, schema: Schema, operation: Operation) -> ReleaseAnswer:
    """Return how a release runs an operation. Attributes that it requires beyond the schema are added.

    Kernels require attributes that all useful nodes have, such as `hidden_size` of LSTM. Probed engines also require
    some attributes and inputs that are optional, such as `seed` of Bernoulli, so that the answer depends on the node.
    """
    if release.is_probed:
        operation = _omit_optional_inputs(operation, schema)
    result = find_implementation(operation, release)
    required: list[Sequence[str]] = []
    while isinstance(result, SupportGap) and result.rule == "attribute-unsupported":
        completed, names = _add_arguments(result, schema, operation)
        if not names:
            break
        required.append(names)
        operation = completed
        result = find_implementation(operation, release)
    if isinstance(result, Implemented) and required and release.is_probed:
        return ReleaseAnswer("unknown", word_required(required))
    if isinstance(result, Implemented):
        return ReleaseAnswer(result.way)
    if isinstance(result, str):
        return ReleaseAnswer("unknown", result)
    if release.is_probed and NOT_CONSTANT in result.about:
        return ReleaseAnswer("unknown", ONLY_CONSTANT)
    for condition, changed in _list_removals(operation):
        if isinstance(find_implementation(changed, release), Implemented):
            return ReleaseAnswer("unknown", condition)  # the rest of the model decides
    is_general = result.rule == "type-mismatch" and result.detail  # about a type, not about the operator
    return ReleaseAnswer("none", f"{result.problem}; the release {result.detail}" if is_general else result.problem)


def _omit_optional_inputs(operation: Operation, schema: Schema) -> Operation:
    """Return an operation without the optional inputs whose types its outputs have, too, such as `y_zero_point`."""
    returned = {formal.type for formal in schema.outputs}
    omitted = {i for i, it in enumerate(schema.inputs) if it.option == OPTIONAL and it.type in returned}
    inputs = tuple(None if i in omitted else it for i, it in enumerate(operation.inputs))
    return replace(operation, inputs=inputs)


def _add_arguments(gap: SupportGap, schema: Schema, operation: Operation) -> tuple[Operation, list[str]]:
    """Return an operation with the attributes, without values, and the inputs that it lacks according to a gap."""
    absent = find_absent_names(gap.about)
    unset = {gap.about, *absent} - {attribute.name for attribute in operation.attributes}
    attributes = [Attribute(name, kind, b"") for name, (kind, _) in schema.attributes.items() if name in unset]
    inputs: list[str | None] = [*operation.inputs]
    names = [attribute.name for attribute in attributes]
    for index, formal in enumerate(schema.inputs):
        if formal.name in absent:
            inputs += [None] * (index + 1 - len(inputs))
            inputs[index] = ""  # of any type
            names.append(formal.name)
    ordered = sorted((*operation.attributes, *attributes), key=lambda attribute: attribute.name)
    return replace(operation, attributes=tuple(ordered), inputs=tuple(inputs)), names


def _list_removals(operation: Operation) -> Iterator[tuple[str, Operation]]:
    """Yield conditions under which releases may remove a node without a kernel, and the operation that meets them."""
    if operation.domain == DEFAULT_DOMAIN and operation.name == "Shape":
        yield "only if all sizes of the input are fixed", replace(operation, static=True)
    if operation.domain == DEFAULT_DOMAIN and operation.name in ("Identity", "Dropout"):
        yield "only if the optimizer can remove the node", replace(operation, traits=NodeTraits(is_eliminated=True))
