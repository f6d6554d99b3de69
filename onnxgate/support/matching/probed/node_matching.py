"""Match nodes with engines whose support was probed, by loading models with one node of each kind.

Such an engine reports neither kernels nor schemas. Its table contains the versions of operators and the types with
which a probe was loaded, and conditions: features that all refused probes share and no loaded one has. What no probe
covers is predicted to load. There are no limits for versions, and no operator is replaced by its function body.
Source: models loaded on OpenVINO 2024.5.0 to 2026.4.1 and tract 0.21.8 to 0.23.9; `campaigns/conformance --engine`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from onnxgate.core.text import join_phrases, join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.support.matching.operations import Operation, SupportGap, TypedNode
from onnxgate.support.matching.probed.node_features import (
    describe_given_inputs,
    describe_node,
    describe_operation,
    word_feature,
    word_features,
)
from onnxgate.support.matching.probed.tract_dynamic_sizes import find_dynamic_size
from onnxgate.support.operators import Implementation, Operator, Schema, find_newest_schema

MatchResult = SupportGap | str | None
DEFINED_DOMAINS = ("ai.onnx", "com.microsoft", "org.openvinotoolkit")
"""Beginnings of domains that may contain operators which no probe covers. Engines refuse those of other domains."""

LOCAL_FUNCTION = "local function"
"""Value of `SupportGap.about` if a release does not call a local function."""
CONSTANT, NOT_CONSTANT = "inputs: constant", "inputs: not constant"


def match_probed_node(node: TypedNode, implementation: Implementation) -> MatchResult:
    """Return why a release rejects a node, or why this is unknown; None if it accepts the node.

    Nodes in the node's subgraphs are not checked.
    """
    if not node.has_use:
        return None  # Source: OpenVINO 2024.5.0 and 2026.4.1 and tract 0.23.0 and 0.23.9 ignore such unknown operators
    if node.calls:
        return _match_call(node.operation, implementation)
    schema, features = describe_features(node)
    result = _match(node.operation, schema, features, implementation)
    return find_dynamic_size(node) if result is None and implementation.engine == "tract" else result


def _match_call(call: Operation, implementation: Implementation) -> MatchResult:
    """Return what happens to a call of a local function. Engines whose support was probed do not call them.

    They take a call for an operator. tract does so whatever the domain of the function is.
    Source: models with local functions on tract 0.21.8, 0.22.4 and 0.23.9, and on OpenVINO 2024.5.0 to 2026.4.1.
    """
    domain = DEFAULT_DOMAIN if implementation.engine == "tract" else call.domain
    if implementation.operator(domain, call.name) is not None:
        return f"the engine may run its own operator `{call.name}` instead of the local function `{call.label}`"
    problem = f"`{call.label}` is a local function"
    return SupportGap("unknown-operator", problem, "does not call local functions", about=LOCAL_FUNCTION)


def match_probed_operation(operation: Operation, implementation: Implementation) -> MatchResult:
    """Return why a release does not implement an operation with an input that is not constant, of whatever shape."""
    schema = _find_schema(operation)
    features = frozenset(describe_operation(operation, schema)) if schema is not None else frozenset[str]()
    if schema is not None:
        features |= set(describe_given_inputs(operation, schema))
    if any(operation.inputs):
        features |= {NOT_CONSTANT}
    return _match(operation, schema, features, implementation)


def match_features(operation: Operation, features: frozenset[str], implementation: Implementation) -> MatchResult:
    """Return why a release rejects a node with these features, or why this is unknown; None if it accepts the node."""
    return _match(operation, _find_schema(operation), features, implementation)


@functools.lru_cache(maxsize=2**12)
def describe_features(node: TypedNode) -> tuple[Schema | None, frozenset[str]]:
    """Return the schema of a node's operator, None if it is unknown, and the node's features that conditions name."""
    schema = _find_schema(node.operation)
    return schema, describe_node(node, schema) if schema is not None else frozenset()


def _find_schema(operation: Operation) -> Schema | None:
    return find_newest_schema(operation.domain, operation.name, max(operation.version, 0))


def _match(
    operation: Operation, schema: Schema | None, features: frozenset[str], implementation: Implementation
) -> MatchResult:
    version = schema.since if schema is not None else 0
    key = (operation.domain, operation.name, version, features)
    if key not in implementation.answers:
        implementation.answers[key] = _decide(operation, version, features, implementation)
    return implementation.answers[key]  # type: ignore[return-value]


def _decide(
    operation: Operation, version: int, features: frozenset[str], implementation: Implementation
) -> MatchResult:
    operator = implementation.operator(operation.domain, operation.name)
    if operator is None:
        if operation.domain.startswith(DEFINED_DOMAINS) and not implementation.knows(operation.domain, operation.name):
            return f"`{operation.label}` was not probed"
        return SupportGap("unknown-operator", f"`{operation.label}` is not implemented")
    name = f"{operation.label}({version})"
    for condition in operator.conditions:
        if condition.start == version and features.issuperset(condition.features):
            return _explain(name, condition.features, operator)
    for kernel in operator.kernels:
        if kernel.start == version and CONSTANT not in features:  # such a node is computed when the model is loaded
            wrong = [it for it in kernel.constraints if _is_refused(it, kernel.constraints[it], features)]
            if wrong:
                found = sorted(feature for feature in features if feature.partition("=")[0] in wrong)
                accepted = [f"`{it}` as {_list_types(kernel.constraints[it], found)}" for it in wrong]
                problem = f"`{name}` is refused with {join_phrases(list(map(word_feature, found)))}"
                return SupportGap("missing-kernel", problem, f"accepts {'; '.join(accepted)}", " ".join(found))
    return None


def _is_refused(parameter: str, types: frozenset[str], features: Iterable[str]) -> bool:
    prefix = f"{parameter}="
    return any(feature.startswith(prefix) and feature.removeprefix(prefix) not in types for feature in features)


def _list_types(types: Iterable[str], refused: Iterable[str]) -> str:
    """Return the accepted types in words, without sequences and optionals if only tensors are refused."""
    listed = sorted(types)
    if all("=tensor(" in feature for feature in refused):
        listed = [it for it in listed if it.startswith("tensor(")] or listed
    return join_quoted(listed)


def _explain(name: str, features: frozenset[str], operator: Operator) -> SupportGap:
    if not features:
        versions = sorted({str(kernel.start) for kernel in operator.kernels}, key=int)
        detail = f"implements versions {', '.join(versions)}" if versions else ""
        return SupportGap("unknown-operator", f"`{name}` is not implemented", detail)
    # A node whose inputs are all constant is computed when the model is loaded, so almost all nodes have this feature.
    words = word_features(features - {NOT_CONSTANT})
    problem = f"`{name}` is refused{f' with {words}' if words else ' unless all inputs are constant'}"
    return SupportGap("attribute-unsupported", problem, about=" ".join(sorted(features)))
