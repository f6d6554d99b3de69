"""Load each kind of node in isolation to find the nodes that cause a runtime to refuse a model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnxgate.core.jobs import Completed, Failure, Observation, Optimization, Refused
from onnxgate.diagnostics import classification
from onnxgate.evidence.runtime import IsolatedNode, Refusal
from onnxgate.model.facts import canonical_domain
from onnxgate.model.reading.view import ModelView, OperatorKey, iter_node_subgraphs
from onnxgate.model.subgraphs.node_context import describe_nodes, find_node, find_source_line
from onnxgate.model.subgraphs.reduced_models import NodeSurroundings, called_function_key, function_key
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.runtime import PROVIDER_NOT_USED, ExecutedModel, ObservedRun
from onnxgate.stages.support.runtime_data import look_up_runtime
from onnxgate.support.matching.operations import Operation, RefusedOperations, TypedNode
from onnxgate.support.matching.type_inference import infer_model_types

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

    from onnxgate.support.harvest import BuildSupport


Constants = Mapping[str, "TensorProto | NodeProto"]
CONSTANT = ("ai.onnx", "Constant")


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal requirements, represented by the first node."""

    first: TypedNode
    around: NodeSurroundings
    nodes: list[TypedNode] = field(default_factory=list)

    @property
    def operation(self) -> Operation:
        """Operation of the nodes."""
        return self.first.operation


def collect_node_kinds(model: ModelView) -> tuple[NodeKind, ...]:
    """Return each kind of node once, in graph order; nodes in subgraphs come before their parent node.

    A call of a local function is replaced by the nodes of the function.
    """
    collector = _NodeKindCollector({function_key(function): function for function in model.proto.functions})
    constants = {tensor.name: tensor for tensor in model.proto.graph.initializer}
    collector.enter(infer_model_types(model).nodes, constants, _opset_imports(model.proto))
    return tuple(collector.kinds.values())


def _opset_imports(holder: ModelProto | FunctionProto) -> dict[str, int]:
    return {canonical_domain(opset.domain): opset.version for opset in holder.opset_import}


@dataclass(slots=True, eq=False)
class _NodeKindCollector:
    functions: Mapping[OperatorKey, FunctionProto]
    kinds: dict[tuple[Operation, bytes], NodeKind] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)  # ids of visited function bodies; equal calls share one body

    def enter(self, nodes: Sequence[TypedNode], constants: Constants, imports: Mapping[str, int]) -> None:
        """Collect all nodes in a graph or function body."""
        # Values in branches are ignored, because different branches may use the same names.
        counts = Counter(name for node in nodes for name in node.proto.output)
        makers = (node.proto for node in nodes if (node.operation.domain, node.operation.name) == CONSTANT)
        made = {node.output[0]: node for node in makers if len(node.output) == 1 and counts[node.output[0]] == 1}
        visible = {**constants, **made}
        for node in nodes:
            if not node.calls:
                tensors = [tensor for graph in iter_node_subgraphs(node.proto) for tensor in graph.initializer]
                counts = Counter(tensor.name for tensor in tensors)
                inner = {tensor.name: tensor for tensor in tensors if counts[tensor.name] == 1}
                self.enter(node.inner, {**visible, **inner}, imports)
                self._add(node, visible, imports)
            elif id(node.inner) not in self.entered:
                self.entered.add(id(node.inner))
                self.enter(node.inner, {}, _opset_imports(self.functions[called_function_key(node.proto)]))

    def _add(self, node: TypedNode, constants: Constants, imports: Mapping[str, int]) -> None:
        key = (node.operation, node.proto.SerializeToString(deterministic=True) if node.inner else b"")
        if key not in self.kinds:
            required = dict(imports)
            if not any(inner.calls for inner in node.all_nodes()):
                # Function bodies use operators of ai.onnx.
                domains = {"ai.onnx", *(inner.operation.domain for inner in node.all_nodes())}
                required = {domain: version for domain, version in imports.items() if domain in domains}
            self.kinds[key] = NodeKind(node, NodeSurroundings(required, node.type_of, constants, self.functions))
        self.kinds[key].nodes.append(node)


FILE_FAMILIES = frozenset({"protobuf", "no_graph", "no_file", "raw_size", "locale"})
"""Families of error texts about the file or the machine, not about a node."""
MODEL_FAMILIES = FILE_FAMILIES | {
    "ir",
    "opset",
    "structure",
    "ext_missing",
    "ext_range",
    "ext_policy",
    "interface_type",
}
"""Families of error texts about the whole model."""
CONTEXT_FAMILIES = frozenset({"shape_inference", "constructor", ""})
"""Families of error texts that may be caused by isolating a node."""
FAMILIES_BY_RULE: Mapping[str, frozenset[str]] = {
    "unknown-domain": frozenset({"no_op", "no_import"}),
    "unknown-operator": frozenset({"no_op"}),
    "deprecated-operator": frozenset({"deprecated"}),
    "missing-kernel": frozenset({"no_kernel"}),
    "type-mismatch": frozenset({"type"}),
    "attribute-unsupported": frozenset({"attribute", "attribute_missing", "arity", "constructor", "shape_inference"}),
}
"""Rule -> families of error texts that confirm the prediction of the rule."""
_WORD = re.compile(r"\w+")
IsolatedOutcome = Literal["refused", "loads", "unknown"]


@dataclass(frozen=True, slots=True)
class LevelRefusal:
    """Refusal of the model by one runtime at one optimization level."""

    level: Optimization
    failure: Failure
    node: str  # the node named in the error text

    @property
    def gist(self) -> tuple[str, ...]:
        """Normalized error text, for comparison with other error texts."""
        return classification.failure_key(self.failure.text)

    @property
    def family(self) -> str:
        """Family of the error text."""
        return self.gist[0]

    def is_about(self, families: frozenset[str]) -> bool:
        """Return whether the error text belongs to one of these families, or the memory limit was reached."""
        return self.failure.memory or self.family in families


@dataclass(frozen=True, slots=True)
class RefusingRuntime:
    """A runtime that refuses the model, with the refusals and the predicted refusals."""

    refusals: tuple[LevelRefusal, ...]
    prediction: RefusedOperations | None
    in_full: bool  # the kernels of the runtime are known

    @property
    def is_hopeless(self) -> bool:
        """Whether isolated nodes would be refused as well, because of the file, the machine or the opset."""
        is_opset_refused = any(refusal.family == "opset" and "ai.onnx" in refusal.gist for refusal in self.refusals)
        is_opset_too_new = self.prediction is not None and "ai.onnx" in self.prediction.opsets_too_new
        return is_opset_refused or is_opset_too_new or all(refusal.is_about(FILE_FAMILIES) for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class IsolatedLoad:
    """Outcome of an isolated node at all optimization levels at which the model is refused."""

    outcome: IsolatedOutcome
    failure: Failure | None = None

    @property
    def gist(self) -> tuple[str, ...]:
        """Normalized error text of the refusal; empty if the node loads."""
        if self.outcome != "refused" or self.failure is None:
            return ()
        return classification.failure_key(self.failure.text)


LoadsByKind = Mapping[NodeKind, IsolatedLoad]


def find_refusing_runtimes(
    runs: Iterable[ObservedRun],
    model: ModelView,
    predictions: Mapping[PlannedRuntime, RefusedOperations | None],
    harvested: Mapping[str, BuildSupport],
) -> dict[PlannedRuntime, RefusingRuntime]:
    """Return the runtimes that refuse to load the model, with their error texts at each optimization level.

    Runtimes whose error text lists all unsupported operators are left out, because isolated nodes would add no
    information.
    """
    refusals: dict[str, tuple[LevelRefusal, ...]] = {}
    for run in runs:
        if not isinstance(run.observation, Refused):
            continue
        failure = run.observation.failure
        if failure.type == PROVIDER_NOT_USED or classification.list_unsupported_operators(failure.text):
            continue
        name = classification.find_node_name(failure.text) or ""
        refusal = LevelRefusal(run.job.optimization, failure, name if find_node(model, name) is not None else "")
        refusals[run.runtime] = (*refusals.get(run.runtime, ()), refusal)
    refusing = {}
    for planned, prediction in predictions.items():
        if planned.name in refusals:
            data = look_up_runtime(planned, harvested) if prediction is not None else None
            in_full = data is not None and data.depth == "all"
            refusing[planned] = RefusingRuntime(refusals[planned.name], prediction, in_full)
    return refusing


def combine_levels(observations: Sequence[Observation]) -> IsolatedLoad:
    """Combine the outcomes of all levels. The result is a refusal if the node is refused at any level."""
    for observation in observations:
        if isinstance(observation, Refused):
            failure = observation.failure
            is_of_node = not failure.memory and classification.failure_family(failure.text) not in MODEL_FAMILIES
            return IsolatedLoad("refused" if is_of_node else "unknown", failure)
    is_loaded = bool(observations) and all(isinstance(observation, Completed) for observation in observations)
    return IsolatedLoad("loads" if is_loaded else "unknown")


def select_predicted_kinds(refusing: RefusingRuntime, kinds: Sequence[NodeKind]) -> list[NodeKind]:
    """Select one node kind per operation that is predicted to be refused."""
    refused = {operation for operations in _group_predictions(refusing).values() for operation in operations}
    first: dict[Operation, NodeKind] = {}
    for kind in kinds:
        if kind.operation in refused:
            first.setdefault(kind.operation, kind)
    return list(first.values())


def select_remaining_kinds(refusing: RefusingRuntime, kinds: Sequence[NodeKind], loads: LoadsByKind) -> list[NodeKind]:
    """Select the node kinds that must also be loaded.

    These are all remaining kinds if the kernels of the runtime or the cause of a refusal are unknown, otherwise none.
    """
    remaining = [kind for kind in kinds if kind not in loads]
    if not refusing.in_full:
        return remaining
    results = _match_claims(refusing, kinds, loads)
    unexplained = (
        refusal for refusal in refusing.refusals if not refusal.is_about(MODEL_FAMILIES) and not refusal.node
    )
    return remaining if any(not any(result.is_cause(refusal) for result in results) for refusal in unexplained) else []


def evaluate_isolated_nodes(
    refusing: RefusingRuntime, kinds: Sequence[NodeKind], loads: LoadsByKind, model: ExecutedModel
) -> tuple[IsolatedNode, ...]:
    """Return the evidence from isolated nodes about why one runtime refuses the model."""
    claims = _match_claims(refusing, kinds, loads)
    claimed = {kind for result in claims for kind in result.kinds}
    rest = (_IsolatedResult((kind,), loads[kind]) for kind in kinds if kind in loads and kind not in claimed)
    results = [*claims, *(result for result in rest if result.is_refused(refusing))]
    return tuple(_create_evidence(result, results, refusing, model) for result in results)


@dataclass(frozen=True, slots=True, eq=False)
class _IsolatedResult:
    """A prediction, or a node kind without a prediction, with the outcome of loading its nodes in isolation."""

    kinds: tuple[NodeKind, ...]
    loaded: IsolatedLoad
    rule: str = ""
    claim: str = ""
    is_all: bool = False  # all nodes with these operators are included

    @property
    def nodes(self) -> list[TypedNode]:
        return [node for kind in self.kinds for node in kind.nodes]

    @property
    def concerns_neighbors(self) -> bool:
        """Whether the nodes are refused only next to other nodes, so that their outcome in isolation has no meaning."""
        return any(kind.operation.traits.concerns_neighbors for kind in self.kinds)

    @property
    def _failing_operators(self) -> set[str]:
        """Operators that the prediction names, such as the `Concat` that fails after a `Squeeze`."""
        return {name.rpartition(".")[2] for name in re.findall(r"`([\w.]+)`", self.claim)} - {"axes", "Transpose"}

    def is_refused(self, refusing: RefusingRuntime) -> bool:
        """Return whether the node itself is refused, and not because of its missing context or an inner node."""
        gist, first = self.loaded.gist, self.kinds[0].first
        if not gist or (first.inner and first.operation.name not in gist):
            return False
        in_context = gist[0] in CONTEXT_FAMILIES and self.rule != "attribute-unsupported"
        return not in_context or any(gist == refusal.gist for refusal in refusing.refusals)

    def is_named(self, refusal: LevelRefusal) -> bool:
        """Return whether the refusal confirms the prediction for these nodes or their operator."""
        if refusal.family not in FAMILIES_BY_RULE.get(self.rule, ()):
            return False
        if self.concerns_neighbors:
            return any(name in self._failing_operators for name in _WORD.findall(refusal.failure.text))
        if refusal.node:
            return refusal.node in {node.name for node in self.nodes}
        return self.is_all and any(kind.operation.name in refusal.gist for kind in self.kinds)

    def is_cause(self, refusal: LevelRefusal) -> bool:
        """Return whether the model and these nodes are refused for the same reason."""
        return self.loaded.gist == refusal.gist or self.is_named(refusal)


def _match_claims(refusing: RefusingRuntime, kinds: Sequence[NodeKind], loads: LoadsByKind) -> list[_IsolatedResult]:
    """Match each prediction with the outcome of its nodes in isolation."""
    results = []
    for (rule, claim), operations in _group_predictions(refusing).items():
        own = tuple(kind for kind in kinds if kind.operation in operations)
        if own:
            names = {(kind.operation.domain, kind.operation.name) for kind in own}
            of_operators = [kind for kind in kinds if (kind.operation.domain, kind.operation.name) in names]
            own_loads = [loads[kind] for kind in own if kind in loads]
            refused = next((load for load in own_loads if load.outcome == "refused"), None)
            is_loaded = bool(own_loads) and all(load.outcome == "loads" for load in own_loads)
            combined = refused or IsolatedLoad("loads" if is_loaded else "unknown")
            results.append(_IsolatedResult(own, combined, rule, claim, len(of_operators) == len(own)))
    return results


def _group_predictions(refusing: RefusingRuntime) -> dict[tuple[str, str], list[Operation]]:
    """Group the operations by predicted refusal."""
    claims: dict[tuple[str, str], list[Operation]] = {}
    for gap, operation in refusing.prediction.gaps if refusing.prediction else ():
        claims.setdefault((gap.rule, gap.problem), []).append(operation)
    return claims


def _create_evidence(
    result: _IsolatedResult, results: Sequence[_IsolatedResult], refusing: RefusingRuntime, model: ExecutedModel
) -> IsolatedNode:
    outcome = _decide_outcome(result, results, refusing)
    first, output = result.nodes[0], next(filter(None, result.nodes[0].proto.output), "")
    refusal = Refusal()
    explains: tuple[Optimization, ...] = ()
    if outcome == "refused":
        explains = tuple(model_refusal.level for model_refusal in refusing.refusals if result.is_cause(model_refusal))
        if failure := result.loaded.failure:
            refusal = Refusal(
                failure=failure,
                family=classification.failure_family(failure.text),
                fix=classification.describe_fix(failure.text),
            )
    return IsolatedNode(
        operator=first.operation.label,
        words=describe_nodes(first.name, output, len(result.nodes) - 1, first.within),
        outcome=outcome,
        node=first.name,
        place=find_source_line(first.proto, model.root, model.folder),
        rule=result.rule,
        claim=result.claim,
        explains=explains,
        refusal=refusal,
    )


def _decide_outcome(
    result: _IsolatedResult, results: Sequence[_IsolatedResult], refusing: RefusingRuntime
) -> IsolatedOutcome:
    if result.is_refused(refusing) or any(map(result.is_named, refusing.refusals)):
        return "refused"
    if result.concerns_neighbors:
        return "unknown"
    names = {node.name for node in result.nodes}

    def has_other_cause(refusal: LevelRefusal) -> bool:
        is_elsewhere = bool(refusal.node) and refusal.node not in names
        return refusal.is_about(MODEL_FAMILIES) or is_elsewhere or any(other.is_cause(refusal) for other in results)

    loads = result.loaded.outcome == "loads" and all(map(has_other_cause, refusing.refusals))
    return "loads" if loads else "unknown"
