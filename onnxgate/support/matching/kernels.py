"""Predict whether a release loads a model: match its operations against schemas and kernels as ONNX Runtime does.

Operations on engines whose support was probed are matched in `support/matching/probed/node_matching`.

Source: models loaded on ONNX Runtime 1.16 to 1.31; `campaigns/conformance` compares the predictions with the results.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec.structs import replace

from onnxgate.core.findings import is_release_within
from onnxgate.core.text import join_quoted
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.subgraphs.reduced_models import EXPERIMENTAL_OPERATORS
from onnxgate.support.limits import Limits, accepts_ir_version, is_probed_interface_type, refuses_interface_type
from onnxgate.support.matching.attribute_values import read_attribute_values
from onnxgate.support.matching.function_bodies import expand_function
from onnxgate.support.matching.node_checks import find_constrained_type, find_schema_violation
from onnxgate.support.matching.onnxruntime.float16_casts import (
    iterate_redundant_casts,
    select_border_nodes,
    widen_operation,
)
from onnxgate.support.matching.onnxruntime.kernel_restrictions import (
    LOCALE_OPERATORS,
    eliminates,
    find_body_restriction,
    find_fusion_gap,
    find_restriction,
    is_unregistered_type,
)
from onnxgate.support.matching.onnxruntime.removed_nodes import explain_removal
from onnxgate.support.matching.operations import (
    InterfaceValue,
    Neighbor,
    NodeProblem,
    Operation,
    Prediction,
    SupportGap,
    TypedModel,
    TypedNode,
    assume_internal,
    assume_used,
    get_unknown_source,
    get_unknown_type,
)
from onnxgate.support.matching.probed.node_matching import match_probed_node, match_probed_operation
from onnxgate.support.matching.probed.openvino_sequences import find_sequence_problems
from onnxgate.support.matching.probed.tract_unpredictable_models import find_unknown_reason
from onnxgate.support.matching.type_inference import OVERLOADED, UNKNOWN_OVERLOAD
from onnxgate.support.operators import Implementation, Kernel, Operator, Schema

if TYPE_CHECKING:
    from onnx import NodeProto

MatchResult = SupportGap | str | None
"""Whether a release implements an operation: a support gap, the reason why this is unknown, or None if it does."""


class Implemented(msgspec.Struct, frozen=True):
    """A release implements an operation in this way."""

    way: Literal["kernel", "converted", "function", "cast", "folded"]


_BY_KERNEL, _BY_FUNCTION = Implemented("kernel"), Implemented("function")
_BY_CAST, _FOLDED, _CONVERTED = Implemented("cast"), Implemented("folded"), Implemented("converted")
Match = Implemented | SupportGap | str
"""How a release implements an operation, a support gap, or the reason why this is unknown."""

CPU_PROVIDER = "CPUExecutionProvider"
_ONLY_CPU = frozenset({CPU_PROVIDER})
WEB_ENGINE = "onnxruntime-web"
"""A build of ONNX Runtime to WebAssembly. It accepts any locale, because its C library has no locales.

Source: StringNormalizer with existing and invented locales, loaded on 1.20.1, 1.24.3 and 1.30.0.
"""
_MAX_BODY_DEPTH = 16
_FIRST_WITH_OVERLOADS = "1.27.0"
"""First release that selects local functions by overload, see `UNKNOWN_OVERLOAD`."""


def match_operation(
    operation: Operation, implementation: Implementation, providers: Sequence[str] = (CPU_PROVIDER,)
) -> MatchResult:
    """Return why a release does not implement an operation, or why this is unknown; None if it does implement it."""
    result = find_implementation(operation, implementation, providers)
    return None if isinstance(result, Implemented) else result


def find_implementation(
    operation: Operation, implementation: Implementation, providers: Sequence[str] = (CPU_PROVIDER,)
) -> Match:
    """Return how a release implements an operation, why it does not, or why this is unknown."""
    if implementation.is_probed:
        return match_probed_operation(operation, implementation) or _CONVERTED
    selected = _ONLY_CPU if providers == (CPU_PROVIDER,) else frozenset({*providers, CPU_PROVIDER})
    return _Matcher(implementation, selected).answer(operation, 0)


class _Matcher:
    def __init__(self, implementation: Implementation, providers: frozenset[str]) -> None:
        self._on = implementation
        self._providers = providers

    def answer(self, operation: Operation, depth: int) -> Match:
        operator = self._on.operator(operation.domain, operation.name)
        if operator is None:
            return self._decide(operation, None, depth)  # fast, and a model may name any number of these
        key = (operation, self._providers)
        known = self._on.answers.get(key)
        if known is None:
            known = self._on.answers[key] = self._decide(operation, operator, depth)
        return known  # type: ignore[return-value]

    def _decide(self, operation: Operation, operator: Operator | None, depth: int) -> Match:
        # Source: ONNX Runtime 1.16 to 1.31 implicitly imports the domains that it supports, in their newest version.
        version = operation.version or self._on.newest_opsets.get(operation.domain)
        if version is None:
            problem = f"`{operation.label}` belongs to domain `{operation.domain}`, which the model does not import"
            return SupportGap("unknown-domain", problem)
        if operator is None and not self._on.has_domain(operation.domain):
            problem = f"`{operation.label}` belongs to the unknown domain `{operation.domain}`"
            return SupportGap("unknown-domain", problem)
        schema = operator.schema(version) if operator else None
        if version < 0 and (operation.domain, operation.name) == (DEFAULT_DOMAIN, "Constant"):
            return _FOLDED  # it becomes an initializer
        if operator is None or schema is None:
            first = operator.schemas[0].since if operator and operator.schemas else None
            problem = f"`{operation.label}` does not exist in opset {max(version, 0)} of `{operation.domain}`"
            return SupportGap("unknown-operator", problem, f"has it since opset {first}" if first else "")
        if schema.deprecated:
            return SupportGap("deprecated-operator", f"`{operation.label}` is deprecated since opset {schema.since}")
        operation = replace(operation, opset=operation.opset or self._on.newest_opsets.get(DEFAULT_DOMAIN, 0))
        if (operation.domain, operation.name) == (DEFAULT_DOMAIN, "Constant"):
            return _check_constant(operation, schema, self._on) or _FOLDED
        violation = find_schema_violation(operation, schema)
        if is_release_within(self._on.release, "", _LAST_WITHOUT_EMPTY_LISTS):
            violation = violation or _find_empty_list(operation, schema)
        return violation or self._allow_removal(operation, self._match_kernels(operation, operator, schema, depth))

    def _allow_removal(self, operation: Operation, match: Match) -> Match:
        """Return the reason why it is unknown that a node needs a kernel, if the optimizer may remove the node."""
        is_needed = operation.traits.has_list_condition  # to remove the node, releases read its condition
        if not isinstance(match, SupportGap) or match.rule == "type-mismatch" or is_needed:
            return match
        return explain_removal(operation, self._on.release) or match

    def _match_kernels(self, operation: Operation, operator: Operator, schema: Schema, depth: int) -> Match:
        kernels = [  # an open-ended kernel implements only its first version
            kernel
            for kernel in operator.kernels
            if kernel.provider in self._providers and kernel.start <= schema.since <= (kernel.end or kernel.start)
        ]
        answers = [_accepts_types(kernel, schema, operation) for kernel in kernels]
        if True in answers:
            return self._restrict(operation, schema) or _BY_KERNEL
        expanded = expand_function(operation, schema, self._on) if depth < _MAX_BODY_DEPTH else None
        if expanded is not None:
            inside = find_body_restriction(operation, schema.since, self._on.release)
            if not isinstance(inside, SupportGap):
                in_body = self._match_body(operation, schema, expanded, depth)
                inside = in_body if isinstance(in_body, SupportGap) else inside or in_body
            if isinstance(inside, SupportGap) and None in answers:
                return _explain_unknown_types(operation)
            return inside or _BY_FUNCTION
        widened = widen_operation(operation, schema)
        answers += [_accepts_types(kernel, schema, widened) for kernel in kernels] if widened is not None else ()
        if True in answers:
            return self._restrict(operation, schema) or _BY_CAST
        is_fixed_shape = operation.domain == DEFAULT_DOMAIN and operation.name == "Shape" and operation.static
        if is_fixed_shape and not is_unregistered_type(operation.inputs[0] or "", self._on.release):
            return _FOLDED  # into a constant, before kernels are selected
        if operation.traits.is_eliminated and eliminates(operation, schema.since, self._on.release):
            return _FOLDED
        if None in answers:
            return _explain_unknown_types(operation)
        return _make_missing_kernel_gap(operation, operator, schema, kernels)

    def _restrict(self, operation: Operation, schema: Schema) -> MatchResult:
        """Return why a release rejects an operation for which it has a kernel. Other providers fuse other operators."""
        is_on_cpu = self._providers == {CPU_PROVIDER}
        gap = find_fusion_gap(operation, schema.since, self._on.release) if is_on_cpu else None
        restriction = gap or find_restriction(operation, schema.since, self._on.release)
        restriction = restriction or _explain_unused_graph(operation, schema, self._on.release)
        has_any_locale = self._on.engine == WEB_ENGINE and operation.name in LOCALE_OPERATORS
        return None if has_any_locale and isinstance(restriction, str) else restriction

    def _match_body(
        self, operation: Operation, schema: Schema, expanded: tuple[TypedNode, ...] | str, depth: int
    ) -> MatchResult:
        if isinstance(expanded, str):
            return expanded
        name = f"{operation.label}({schema.since})"
        result: MatchResult = None
        for node in (inner for top in expanded for inner in top.all_nodes()):
            answer = self.answer(node.operation, depth + 1)
            if isinstance(answer, SupportGap):
                problem = f"`{name}` has no kernel for its types, and in its function body {answer.problem}"
                about = f"{node.operation.label} {answer.about}"
                return replace(answer, rule="missing-kernel", problem=problem, about=about)
            if isinstance(answer, str):
                result = result or answer
        if self._providers == {CPU_PROVIDER} and any(
            all(self._is_widened(neighbor, depth + 1) for neighbor in neighbors)
            for neighbors in iterate_redundant_casts(operation, expanded, self._on.release)
        ):
            problem = f"`{name}` has no kernel for its types, and its function body casts float16 to float16"
            return SupportGap("missing-kernel", problem, "fails to replace float16 in this body", "redundant cast")
        return result

    def _is_widened(self, neighbor: Neighbor, depth: int) -> bool:
        """Return whether a node, or the nodes of its function body, use the float16 value as float."""
        if not neighbor.outputs and not neighbor.inputs:
            return True  # it uses only the type of the value
        operation = neighbor.operation
        answer = self.answer(operation, depth)
        if operation.traits.is_eliminated:
            return False  # some releases remove it, so that others become neighbors
        if answer != _BY_FUNCTION:
            return answer == _BY_CAST
        operator = self._on.operator(operation.domain, operation.name)
        schema = operator.schema(operation.version) if operator else None
        if schema is None or depth >= _MAX_BODY_DEPTH:
            return False
        body = expand_function(operation, schema, self._on)
        near = select_border_nodes(body, schema, neighbor) if isinstance(body, tuple) else []
        return bool(near) and all(self._is_widened(node, depth + 1) for node in near)


_LAST_WITHOUT_EMPTY_LISTS = "1.16.3"
"""Last release that refuses lists without elements. Source: 7 operators, loaded on 9 releases from 1.16.3 to 1.32.0."""


def _find_empty_list(operation: Operation, schema: Schema) -> SupportGap | None:
    for attribute in operation.attributes if operation.label not in EXPERIMENTAL_OPERATORS else ():
        is_list = attribute.kind in ("FLOATS", "INTS", "STRINGS") and attribute.name in schema.attributes
        if is_list and attribute.data and read_attribute_values(operation)[attribute.name] == ():
            problem = f"the attribute `{attribute.name}` of `{operation.label}({schema.since})` has no elements"
            return SupportGap("attribute-unsupported", problem, about=attribute.name)
    return None


_FIRST_WITHOUT_UNUSED_GRAPHS = "1.31.0"


def _explain_unused_graph(operation: Operation, schema: Schema, release: str) -> str:
    """Return why a release may not load a model because a node has a subgraph that its operator does not define.

    It is not a problem if the release removes the node or replaces it, also by a function body.
    Source: 303 to 330 operators with a graph as attribute, loaded on 1.16.3, 1.24.4, 1.31.1 and 1.32.0; 39 models with
    such nodes in branches, functions and patterns that the optimizer fuses, loaded on 10 releases.
    """
    graphs = (it.name for it in operation.attributes if it.kind == "GRAPH" and it.name not in schema.attributes)
    name = next(graphs, "")
    if not name:
        return ""
    has = f"`{operation.label}` has the subgraph `{name}`, which its operator does not define"
    if is_release_within(release, _FIRST_WITHOUT_UNUSED_GRAPHS, ""):
        return f"{has}: the model is refused unless the optimizer removes the node"
    return f"{has}: the process may crash when the model is loaded"


_UNUSABLE_KINDS = ("GRAPH", "GRAPHS", "SPARSE_TENSORS", "TENSORS", "TYPE_PROTO", "TYPE_PROTOS")
"""Kinds of attributes that Constant cannot have. Source: Constant nodes with each kind, loaded on 31 releases."""


def _check_constant(operation: Operation, schema: Schema, implementation: Implementation) -> SupportGap | None:
    """Return why a release rejects a Constant node; None if it accepts it.

    A Constant becomes an initializer before kernels are selected, so it needs no kernel. Its type must be supported,
    and it must have an attribute: ONNX Runtime reads the first one by its type, whatever its name is.
    Source: Constant nodes with attributes of other names and types, loaded on ONNX Runtime 1.16 to 1.32.
    """
    output_type = next((output for output in operation.outputs if output), "")
    if is_unregistered_type(output_type, implementation.release):
        problem = f"`{operation.label}({schema.since})` has type `{output_type}`"
        return SupportGap("type-mismatch", problem, "does not support this type", about=output_type)
    if operation.attributes:
        kind = operation.attributes[0].kind
        if len(operation.attributes) > 1 or kind not in _UNUSABLE_KINDS:
            return None
        problem = f"`{operation.label}({schema.since})` has a value of kind {kind}"
        return SupportGap("attribute-unsupported", problem, "does not support this kind", about=kind)
    wrong = find_schema_violation(operation, schema)
    return wrong or SupportGap("attribute-unsupported", f"`{operation.label}({schema.since})` has no value")


def _accepts_types(kernel: Kernel, schema: Schema, operation: Operation) -> bool | None:
    """Return whether a kernel accepts the types of an operation; None if that depends on an unknown type."""
    accepts: bool | None = True
    for key, types in kernel.constraints.items():
        type_name = find_constrained_type(schema, key, operation.inputs, operation.outputs)
        if type_name == "":
            formals = (*schema.inputs, *schema.outputs)
            possible = schema.types_of(next(formal for formal in formals if key in (formal.type, formal.name)))
            if possible <= types:
                continue
            if not possible & types:
                return False
            accepts = None
        elif type_name is not None and type_name not in types:
            return False
    return accepts


def _explain_unknown_types(operation: Operation) -> str:
    unknown = [f"input {index}" for index, value_type in enumerate(operation.inputs, 1) if value_type == ""]
    unknown += [f"output {index}" for index, output in enumerate(operation.outputs, 1) if output == ""]
    return f"the type of {', '.join(unknown)} of `{operation.label}` is unknown"


def _make_missing_kernel_gap(
    operation: Operation, operator: Operator, schema: Schema, kernels: Sequence[Kernel]
) -> SupportGap:
    problem = f"there is no kernel for `{operation.label}({schema.since})`"
    if not kernels:
        ranges = sorted({(kernel.start, kernel.end) for kernel in operator.kernels})
        spans = [f"{start}" if end in (0, start) else f"{start}–{end}" for start, end in ranges]
        versions = f"versions {', '.join(spans)}" if spans else "no version of it"
        return SupportGap("missing-kernel", problem, f"implements {versions}")
    keys = list(dict.fromkeys(key for kernel in kernels for key in kernel.constraints))
    types = {key: find_constrained_type(schema, key, operation.inputs, operation.outputs) for key in keys}
    wrong = [
        key
        for key in keys
        if types[key] and not any(types[key] in kernel.constraints.get(key, (types[key],)) for kernel in kernels)
    ] or keys
    listed = ", ".join(f"`{key}` = `{types[key]}`" for key in wrong if types[key])
    accepted = []
    for key in wrong:
        implemented = sorted({value_type for kernel in kernels for value_type in kernel.constraints.get(key, ())})
        accepted.append(f"`{key}` as {join_quoted(implemented)}")
    about = " ".join(f"{key}={types[key]}" for key in wrong if types[key])
    return SupportGap("missing-kernel", f"{problem} with {listed}", f"implements {'; '.join(accepted)}", about)


_CLOSED_DOMAINS = frozenset({DEFAULT_DOMAIN, "ai.onnx.ml", "ai.onnx.training"})
"""Operator domains that local functions cannot extend: ONNX Runtime never treats their nodes as function calls."""


def predict(
    prepared: TypedModel,
    implementation: Implementation | None,
    limits: Limits,
    providers: Sequence[str] = (CPU_PROVIDER,),
    kinds: Sequence[TypedNode] | None = None,
) -> Prediction:
    """Predict which version fields and nodes of a model a release rejects.

    If `implementation` is None, only the version fields are compared. `kinds` limits the nodes that are checked to
    some of `prepared.kinds`; None means all of them.
    """
    problems = []
    if implementation is not None:
        nodes = prepared.kinds if kinds is None else kinds
        if implementation.is_probed:  # it may refuse only some nodes of a kind
            nodes = tuple(_iterate_visible_nodes(prepared.nodes, implementation))
        results = {id(node): match_node(node, implementation, providers) for node in nodes}
        problematic = {id(node.operation) for node in nodes if results[id(node)] is not None}
        for node in _iterate_visible_nodes(prepared.nodes, implementation) if problematic else ():
            if id(node.operation) in problematic:
                is_matched = id(node) in results
                result = results[id(node)] if is_matched else match_node(node, implementation, providers)
                if result is not None:
                    problems.append(_make_problem(prepared, node, result))
        found = {id(problem.node.operation) for problem in problems}
        for node, result in find_sequence_problems(prepared, implementation):
            if id(node.operation) not in found:
                problems.append(_make_problem(prepared, node, result))
    return Prediction(
        ir_too_new=not accepts_ir_version(limits, prepared.ir_version),
        opsets_too_new=tuple(
            domain for domain, version in prepared.opsets.items() if version > limits.opsets.get(domain, version)
        ),
        found=tuple(problems),
        refused_interface=_find_refused_interface(prepared, implementation, limits),
        unknown_reason=_find_unknown_reason(prepared, implementation),
    )


def _find_refused_interface(
    prepared: TypedModel, implementation: Implementation | None, limits: Limits
) -> tuple[InterfaceValue, ...]:
    release, engine = ("", "") if implementation is None else (implementation.release, implementation.engine)
    return tuple(
        value
        for value in prepared.interface
        if refuses_interface_type(value.type, limits, release, engine, is_tensor=value.kind == "tensor")
    )


def _find_unknown_reason(prepared: TypedModel, implementation: Implementation | None) -> str:
    """Return why a release may refuse a model of which it accepts each node; "" if there is no such reason."""
    if implementation is None:
        return ""
    for value in prepared.interface if implementation.is_probed else ():
        if value.type and value.kind != "tensor" and not is_probed_interface_type(value.type, implementation.engine):
            return (
                f"{value.kind} `{value.name}` is a `{value.type}`, and models with such {value.kind}s were not probed"
            )
    return find_unknown_reason(prepared, implementation)


def _make_problem(prepared: TypedModel, node: TypedNode, result: SupportGap | str) -> NodeProblem:
    known = prepared.problems.get((node, result))
    if known is not None:
        return known
    detached = prepared.detached.get(node)
    if detached is None:
        detached = prepared.detached[node] = replace(
            node,
            proto=_detach_node(node.proto),
            inner=(),
            type_of=get_unknown_type,
            source_of=get_unknown_source,
            is_used=assume_used,
            is_output=assume_internal,
        )
    problem = NodeProblem(detached, *((result, "") if isinstance(result, SupportGap) else (None, result)))
    prepared.problems[node, result] = problem
    return problem


def _detach_node(node: NodeProto) -> NodeProto:
    """Copy a node without its attributes, so that protobuf does not keep the whole model in memory."""
    copy = type(node)(name=node.name, op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
    copy.metadata_props.extend(node.metadata_props)
    return copy


def match_node(node: TypedNode, implementation: Implementation, providers: Sequence[str]) -> MatchResult:
    """Return why a release rejects a node, or why this is unknown; None if it accepts the node.

    Nodes in the node's subgraphs or in the function that it calls are not checked.
    Source: ONNX Runtime 1.16 to 1.31 implicitly imports the domains that it supports, except in local functions.
    """
    if implementation.is_probed:
        return match_probed_node(node, implementation)
    operation = node.operation
    is_imported = bool(operation.version) or not node.within
    if operation.name == "Constant" and operation.domain != DEFAULT_DOMAIN and is_imported:
        return None  # it becomes an initializer, whatever its domain is. Source: measured on 1.16.3 to 1.32.0
    if not is_imported or (not operation.version and operation.domain not in implementation.newest_opsets):
        importer = "its local function" if node.within else "the model"
        problem = f"`{operation.label}` belongs to domain `{operation.domain}`, which {importer} does not import"
        return SupportGap("unknown-domain", problem)
    if _is_function_call(node, implementation):
        return _explain_unread(node, implementation) or None
    return match_operation(operation, implementation, providers)


def _iterate_visible_nodes(nodes: Iterable[TypedNode], implementation: Implementation) -> Iterator[TypedNode]:
    """Yield the nodes and all nodes inside them, except those that the release does not call or ignores."""
    for node in nodes:
        yield node
        if implementation.is_probed and not node.has_use:
            continue
        is_read = node.inner and not _explain_unread(node, implementation)
        if is_read and (not node.calls or _is_function_call(node, implementation)):
            yield from _iterate_visible_nodes(node.inner, implementation)


def _explain_unread(node: TypedNode, implementation: Implementation) -> str:
    """Return why it is unknown which nodes of a local function the release executes; "" if this is known."""
    return "" if node.unread == OVERLOADED and _selects_overloads(implementation) else node.unread


def _selects_overloads(implementation: Implementation) -> bool:
    return is_release_within(implementation.release, _FIRST_WITH_OVERLOADS, "")


def _is_function_call(node: TypedNode, implementation: Implementation) -> bool:
    """Return whether the release treats a node as a call to a local function rather than as a built-in operator.

    Source: models loaded on ONNX Runtime 1.16 to 1.31. Their local functions are in domains that also contain built-in
    operators, and some have the name of such an operator.
    """
    operation = node.operation
    if implementation.is_probed:
        return False
    if not node.calls or operation.domain in _CLOSED_DOMAINS:
        return False
    if node.unread == UNKNOWN_OVERLOAD and _selects_overloads(implementation):
        return False
    operator = implementation.operator(operation.domain, operation.name)
    version = operation.version or implementation.newest_opsets.get(operation.domain, 0)
    return operator is None or operator.schema(version) is None


@functools.lru_cache(maxsize=256)
def list_kernel_providers(implementation: Implementation) -> frozenset[str]:
    """Return the names of the execution providers for which a release has at least one kernel."""
    return frozenset(
        kernel.provider
        for domain in implementation.domains()
        for name in implementation.operators(domain)
        if (operator := implementation.operator(domain, name)) is not None
        for kernel in operator.kernels
    )


class SingleProviderImplementation(Implementation):
    """Operators of a release with only the kernels of one execution provider. Match results are cached separately."""

    def __init__(self, implementation: Implementation, provider: str) -> None:
        super().__init__(
            implementation.release, implementation.newest_opsets, implementation._source, implementation._bit
        )
        self._full = implementation
        self._provider = provider

    def operator(self, domain: str, name: str) -> Operator | None:
        """Return an operator with only the kernels of the execution provider; None if the release does not have it."""
        key = (domain, name)
        if key not in self._operators:
            operator = self._full.operator(domain, name)
            own = [kernel for kernel in operator.kernels if kernel.provider == self._provider] if operator else ()
            self._operators[key] = operator and replace(operator, kernels=tuple(own))
        return self._operators[key]

    def leaves(self, operation: Operation) -> bool:
        """Return whether the execution provider has no kernel for an operation that the CPU provider can run."""
        alone = match_operation(operation, self, (self._provider,))
        return (
            isinstance(alone, SupportGap)
            and alone.rule == "missing-kernel"
            and match_operation(operation, self._full) is None
        )
