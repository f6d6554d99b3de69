"""The nodes of a model, each kind once, that can be loaded alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from onnxgate.core.jobs import Completed, Failure, Observation, Optimization, Refused
from onnxgate.diagnostics.classification import (
    describe_fix,
    failure_family,
    failure_key,
    find_node_name,
    list_unsupported_operators,
)
from onnxgate.evidence.runtime import IsolatedNode, Refusal
from onnxgate.evidence.support import NodeGroup
from onnxgate.model.facts import canonical_domain
from onnxgate.model.reading.structure import iter_subgraphs
from onnxgate.model.subgraphs.node_context import find_node, find_source_line
from onnxgate.model.subgraphs.reduced_models import (
    FunctionKey,
    NodeSurroundings,
    called_function_key,
    extract_node,
    function_key,
)
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.runtime.stage import PROVIDER_NOT_USED, ExecutedModel, ObservedRun
from onnxgate.stages.support.predictions import look_up_runtime
from onnxgate.support.matching.operations import Operation, RefusedOperations, TypedNode
from onnxgate.support.matching.type_inference import infer_model_types

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TensorProto

    from onnxgate.support.harvest.cache import BuildSupport


Constants = Mapping[str, "TensorProto | NodeProto"]


@dataclass(slots=True, eq=False)
class NodeKind:
    """Nodes with equal requirements, represented by the first."""

    first: TypedNode
    around: NodeSurroundings
    nodes: list[TypedNode] = field(default_factory=list)

    @property
    def operation(self) -> Operation:
        """The operation that the nodes require."""
        return self.first.operation

    def model(self, ir_version: int) -> bytes | None:
        """Return the first node as a model of its own; None if it cannot be isolated."""
        return extract_node(self.first.proto, self.around, ir_version)


def collect_node_kinds(proto: ModelProto) -> tuple[NodeKind, ...]:
    """Each kind of node once, in the order of the graph; what is inside a node comes before it.

    A call of a local function is what the function consists of.
    """
    walk = _NodeKindCollector({function_key(function): function for function in proto.functions})
    imports = _opset_imports(proto)
    constants = {tensor.name: tensor for tensor in proto.graph.initializer}
    walk.enter(infer_model_types(proto).nodes, constants, imports)
    return tuple(walk.found.values())


def _opset_imports(holder: ModelProto | FunctionProto) -> dict[str, int]:
    return {canonical_domain(opset.domain): opset.version for opset in holder.opset_import}


@dataclass(slots=True, eq=False)
class _NodeKindCollector:
    functions: Mapping[FunctionKey, FunctionProto]
    found: dict[tuple[Operation, bytes], NodeKind] = field(default_factory=dict)
    entered: set[int] = field(default_factory=set)  # bodies of functions, which equal calls share

    def enter(self, nodes: Sequence[TypedNode], constants: Constants, imports: Mapping[str, int]) -> None:
        """Take all nodes of a graph or a body."""
        visible = {**constants, **dict(_find_constant_nodes(nodes))}
        for node in nodes:
            if node.calls:
                self._enter_call(node)
            else:
                self.enter(node.inner, {**visible, **_find_initializers(node.proto)}, imports)
                self._take(node, visible, imports)

    def _enter_call(self, node: TypedNode) -> None:
        function = self.functions[called_function_key(node.proto)]
        if id(node.inner) not in self.entered:
            self.entered.add(id(node.inner))
            self.enter(node.inner, {}, _opset_imports(function))

    def _take(self, node: TypedNode, constants: Constants, imports: Mapping[str, int]) -> None:
        key = (node.operation, node.proto.SerializeToString(deterministic=True) if node.inner else b"")
        if key not in self.found:
            around = NodeSurroundings(_required_imports(node, imports), node.type_of, constants, self.functions)
            self.found[key] = NodeKind(node, around)
        self.found[key].nodes.append(node)


def _required_imports(node: TypedNode, imports: Mapping[str, int]) -> dict[str, int]:
    """The imports that the node and what is inside it need, and ai.onnx, which function bodies are written in."""
    if any(each.calls for each in node.every()):
        return dict(imports)
    domains = {"ai.onnx", *(each.operation.domain for each in node.every())}
    return {domain: version for domain, version in imports.items() if domain in domains}


def _find_constant_nodes(nodes: Sequence[TypedNode]) -> Iterator[tuple[str, NodeProto]]:
    """Nodes `Constant` by what they make; branches may make values of the same name, which are then none."""
    made = Counter(name for node in nodes for name in node.proto.output)
    for node in nodes:
        operation = node.operation
        if (operation.domain, operation.name) == ("ai.onnx", "Constant") and len(node.proto.output) == 1:
            name = node.proto.output[0]
            if made[name] == 1:
                yield name, node.proto


def _find_initializers(node: NodeProto) -> dict[str, TensorProto]:
    graphs = [graph for attribute in node.attribute for graph in iter_subgraphs(attribute)]
    made = Counter(tensor.name for graph in graphs for tensor in graph.initializer)
    return {tensor.name: tensor for graph in graphs for tensor in graph.initializer if made[tensor.name] == 1}


FILE_FAMILIES = frozenset({"protobuf", "no_graph", "no_file", "raw_size", "locale"})
"""Families of texts about the file, or about the machine: no node is the cause."""
MODEL_FAMILIES = FILE_FAMILIES | {"ir", "opset", "structure", "ext_missing", "ext_range", "ext_policy"}
"""Families of texts about the model as a whole."""
CONTEXT_FAMILIES = frozenset({"shape_inference", "constructor", ""})
"""Families of texts that may be about what a node alone lacks."""
FAMILIES_BY_RULE: Mapping[str, frozenset[str]] = {
    "unknown-domain": frozenset({"no_op", "no_import"}),
    "unknown-operator": frozenset({"no_op"}),
    "deprecated-operator": frozenset({"deprecated"}),
    "missing-kernel": frozenset({"no_kernel"}),
    "type-mismatch": frozenset({"type"}),
    "attribute-unsupported": frozenset({"attribute", "arity", "constructor", "shape_inference"}),
}
"""Rule -> families of the texts with which a runtime refuses what the rule predicts."""
IsolatedOutcome = Literal["refused", "loads", "unknown"]


@dataclass(frozen=True, slots=True)
class LevelRefusal:
    """The refusal of the model at one level of one runtime."""

    level: Optimization
    failure: Failure
    node: str  # the node of the model that the text names

    @property
    def gist(self) -> tuple[str, ...]:
        """The meaning of the text, comparable between texts."""
        return failure_key(self.failure.text)

    @property
    def family(self) -> str:
        """The family of the text."""
        return self.gist[0]

    @property
    def is_of_model(self) -> bool:
        """Whether the model as a whole is the cause."""
        return self.failure.memory or self.family in MODEL_FAMILIES

    @property
    def is_of_file(self) -> bool:
        """Whether the file or the machine is the cause, so that isolated nodes prove nothing."""
        return self.failure.memory or self.family in FILE_FAMILIES


@dataclass(frozen=True, slots=True)
class RefusingRuntime:
    """One runtime that refuses the model, and what was predicted of it."""

    refusals: tuple[LevelRefusal, ...]
    prediction: RefusedOperations | None
    in_full: bool  # its kernels are known

    @property
    def is_hopeless(self) -> bool:
        """Whether nodes alone would be refused for the same: for the file, the machine, or the opset that all need."""
        domains = self.prediction.opsets_too_new if self.prediction else ()
        said = any(refusal.family == "opset" and "ai.onnx" in refusal.gist for refusal in self.refusals)
        return said or "ai.onnx" in domains or all(refusal.is_of_file for refusal in self.refusals)

    @property
    def is_ir_refused(self) -> bool:
        """Whether a node needs an older IR version than the model."""
        return any(refusal.family == "ir" for refusal in self.refusals)

    @property
    def levels(self) -> tuple[Optimization, ...]:
        """The levels at which the model is refused."""
        return tuple(refusal.level for refusal in self.refusals)


@dataclass(frozen=True, slots=True)
class IsolatedLoad:
    """Outcome of an isolated node over all levels at which the model is refused."""

    outcome: IsolatedOutcome
    failure: Failure | None = None

    @property
    def gist(self) -> tuple[str, ...]:
        """The meaning of its refusal; empty if it is not refused."""
        return failure_key(self.failure.text) if self.outcome == "refused" and self.failure is not None else ()


LoadsByKind = Mapping[NodeKind, IsolatedLoad]


def find_refusing_runtimes(
    ran: Iterable[ObservedRun],
    proto: ModelProto,
    predictions: Mapping[PlannedRuntime, RefusedOperations | None],
    kept: Mapping[str, BuildSupport],
) -> dict[PlannedRuntime, RefusingRuntime]:
    """The runtimes that refuse to load the model, with what they say at each level."""
    said: dict[str, tuple[LevelRefusal, ...]] = {}
    for each in ran:
        if isinstance(each.observation, Refused) and _is_unspecific(each.observation.failure):
            refusal = _create_refusal(each.job.optimization, each.observation.failure, proto)
            said[each.runtime] = (*said.get(each.runtime, ()), refusal)
    return {
        planned: RefusingRuntime(
            said[planned.name], prediction, prediction is not None and _has_known_kernels(planned, kept)
        )
        for planned, prediction in predictions.items()
        if planned.name in said
    }


def _is_unspecific(failure: Failure) -> bool:
    """Whether there may be more to learn from nodes alone: not where the text lists all that is not supported."""
    return failure.type != PROVIDER_NOT_USED and not list_unsupported_operators(failure.text)


def _create_refusal(level: Optimization, failure: Failure, proto: ModelProto) -> LevelRefusal:
    name = find_node_name(failure.text) or ""
    return LevelRefusal(level, failure, name if find_node(proto, name) is not None else "")


def _has_known_kernels(planned: PlannedRuntime, kept: Mapping[str, BuildSupport]) -> bool:
    known = look_up_runtime(planned, kept)
    return known is not None and known.judged == "all"


def combine_levels(observations: Sequence[Observation]) -> IsolatedLoad:
    """The outcome of all levels: refused at one of them is refused."""
    for observation in observations:
        if isinstance(observation, Refused):
            told = not observation.failure.memory and failure_family(observation.failure.text) not in MODEL_FAMILIES
            return IsolatedLoad("refused" if told else "unknown", observation.failure)
    every = bool(observations) and all(isinstance(each, Completed) for each in observations)
    return IsolatedLoad("loads" if every else "unknown")


def select_predicted_kinds(refusing: RefusingRuntime, singles: Sequence[NodeKind]) -> list[NodeKind]:
    """What is to be witnessed: the first node of each operation that is predicted to be refused."""
    missed = {operation for operations in _group_predictions(refusing).values() for operation in operations}
    first: dict[Operation, NodeKind] = {}
    for single in singles:
        if single.operation in missed:
            first.setdefault(single.operation, single)
    return list(first.values())


def select_remaining_kinds(refusing: RefusingRuntime, singles: Sequence[NodeKind], seen: LoadsByKind) -> list[NodeKind]:
    """Select the remaining nodes to try: all, if kernels or the cause of a refusal are not known."""
    others = [single for single in singles if single not in seen]
    if not refusing.in_full:
        return others
    told = _match_claims(refusing, singles, seen)
    lost = (refusal for refusal in refusing.refusals if not refusal.is_of_model and not refusal.node)
    return others if any(not any(other.is_cause(each) for other in told) for each in lost) else []


def evaluate_isolated_nodes(
    refusing: RefusingRuntime, singles: Sequence[NodeKind], seen: LoadsByKind, model: ExecutedModel
) -> tuple[IsolatedNode, ...]:
    """Return the evidence of isolated nodes about one runtime's refusal."""
    told = _match_claims(refusing, singles, seen)
    claimed = {single for each in told for single in each.singles}
    rest = [_IsolatedResult((single,), seen[single]) for single in singles if single in seen and single not in claimed]
    every = [*told, *(each for each in rest if each.is_refused(refusing))]
    return tuple(_create_evidence(each, every, refusing, model) for each in every)


@dataclass(frozen=True, slots=True, eq=False)
class _IsolatedResult:
    """One prediction, or one kind of node without one, with the outcome of loading it alone."""

    singles: tuple[NodeKind, ...]
    loaded: IsolatedLoad
    rule: str = ""
    claim: str = ""
    is_all: bool = False  # no other node of the model has one of these operators

    @property
    def nodes(self) -> list[TypedNode]:
        return [node for single in self.singles for node in single.nodes]

    def is_refused(self, refusing: RefusingRuntime) -> bool:
        """Return whether it is refused for itself, and not for missing context or for an inner node."""
        said = self.loaded.gist
        if not said or (self.singles[0].first.inner and self.singles[0].operation.name not in said):
            return False
        in_context = said[0] in CONTEXT_FAMILIES and self.rule != "attribute-unsupported"
        return not in_context or any(said == refusal.gist for refusal in refusing.refusals)

    def is_named(self, refusal: LevelRefusal) -> bool:
        """Return whether the refusal confirms the prediction for these nodes or their operator."""
        if refusal.family not in FAMILIES_BY_RULE.get(self.rule, ()):
            return False
        if refusal.node:
            return refusal.node in {node.name for node in self.nodes}
        return self.is_all and any(single.operation.name in refusal.gist for single in self.singles)

    def is_cause(self, refusal: LevelRefusal) -> bool:
        """Return whether the model is refused for the same reason as these nodes."""
        return self.loaded.gist == refusal.gist or self.is_named(refusal)


def _match_claims(refusing: RefusingRuntime, singles: Sequence[NodeKind], seen: LoadsByKind) -> list[_IsolatedResult]:
    """Match each prediction with the outcome of its nodes."""
    made = []
    for (rule, claim), operations in _group_predictions(refusing).items():
        own = tuple(single for single in singles if single.operation in operations)
        if own:
            names = {(each.operation.domain, each.operation.name) for each in own}
            same = [single for single in singles if (single.operation.domain, single.operation.name) in names]
            results = _combine_loads([seen[each] for each in own if each in seen])
            made.append(_IsolatedResult(own, results, rule, claim, len(same) == len(own)))
    return made


def _group_predictions(refusing: RefusingRuntime) -> dict[tuple[str, str], list[Operation]]:
    """Return the predicted refusals with their operations."""
    claims: dict[tuple[str, str], list[Operation]] = {}
    for gap, operation in refusing.prediction.gaps if refusing.prediction else ():
        claims.setdefault((gap.rule, gap.problem), []).append(operation)
    return claims


def _combine_loads(results: Sequence[IsolatedLoad]) -> IsolatedLoad:
    refused = next((result for result in results if result.outcome == "refused"), None)
    if refused is not None:
        return refused
    return IsolatedLoad("loads" if results and all(result.outcome == "loads" for result in results) else "unknown")


def _create_evidence(
    each: _IsolatedResult, every: Sequence[_IsolatedResult], refusing: RefusingRuntime, model: ExecutedModel
) -> IsolatedNode:
    outcome = _decide_outcome(each, every, refusing)
    first = each.nodes[0]
    failure = each.loaded.failure if outcome == "refused" else None
    causing = [refusal for refusal in refusing.refusals if outcome == "refused" and each.is_cause(refusal)]
    return IsolatedNode(
        operator=first.operation.label,
        words=NodeGroup(
            first.name, next(filter(None, first.proto.output), ""), len(each.nodes) - 1, first.within
        ).words,
        outcome=outcome,
        node=first.name,
        place=find_source_line(first.proto, model.root, model.folder),
        rule=each.rule,
        claim=each.claim,
        explains=tuple(refusal.level for refusal in causing),
        refusal=Refusal(failure=failure, family=failure_family(failure.text), fix=describe_fix(failure.text))
        if failure
        else Refusal(),
    )


def _decide_outcome(
    each: _IsolatedResult, every: Sequence[_IsolatedResult], refusing: RefusingRuntime
) -> IsolatedOutcome:
    if each.is_refused(refusing) or any(each.is_named(refusal) for refusal in refusing.refusals):
        return "refused"
    if each.loaded.outcome == "loads" and all(_is_explained(refusal, each, every) for refusal in refusing.refusals):
        return "loads"
    return "unknown"


def _is_explained(refusal: LevelRefusal, witness: _IsolatedResult, every: Iterable[_IsolatedResult]) -> bool:
    """Return whether the refusal has a known cause other than this node, which loads."""
    named = {node.name for node in witness.nodes}
    elsewhere = bool(refusal.node) and refusal.node not in named
    return refusal.is_of_model or elsewhere or any(each.is_cause(refusal) for each in every)
