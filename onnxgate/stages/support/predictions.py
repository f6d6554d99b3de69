"""Predict which operations each required runtime of a model refuses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from onnxgate.core.findings import Place
from onnxgate.evidence.support import ExperimentalOperation, NodeGroup, PredictionGap, RefusedOperation
from onnxgate.model.subgraphs.node_context import find_source_line
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.support import limits, operators
from onnxgate.support.limits import Limits
from onnxgate.support.matching.kernels import CPU_PROVIDER, list_kernel_providers, predict
from onnxgate.support.matching.node_checks import find_schema_violation
from onnxgate.support.matching.operations import NodeProblem, Prediction, Suggestion, SupportGap, TypedModel, TypedNode
from onnxgate.support.operators import Implementation

if TYPE_CHECKING:
    from onnxgate.support.harvest import BuildSupport
    from onnxgate.support.suggestions import RequiredRelease


GPU_ENGINE = "onnxruntime-gpu"
"""A build with the limits and schemas of the release of the same number, and with kernels of its own."""
PredictionDepth = Literal["all", "schemas", "stamps"]


@dataclass(frozen=True, slots=True)
class KnownRuntime:
    """One runtime, and how much of it is known."""

    planned: PlannedRuntime
    limits: Limits
    implementation: Implementation | None
    judged: PredictionDepth
    reason: str = ""  # why that is not all, as a verb phrase

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.planned.name

    @property
    def whole(self) -> Implementation | None:
        """What it implements, where its kernels are known."""
        return self.implementation if self.judged == "all" else None


def look_up_runtime(planned: PlannedRuntime, kept: Mapping[str, BuildSupport]) -> KnownRuntime | None:
    """Return the support data of one runtime, or None. `kept` has harvested data by the runtime's name."""
    runtime = planned.runtime
    own = kept.get(planned.name)
    if own is not None:
        return _harvested_runtime(planned, own)
    measured = limits.get_limits(runtime.release) if has_release_limits(runtime) else None
    if measured is None:
        return None
    implementation = operators.get_implementation(runtime.release)
    if runtime.environment:
        return KnownRuntime(planned, measured, None, "stamps", "is a build of one's own, whose kernels are not known")
    if implementation is None:
        return KnownRuntime(
            planned, measured, None, "stamps", "has no kernels in the support data: wheels tell them since 1.16"
        )
    if runtime.engine == GPU_ENGINE:
        return KnownRuntime(
            planned, measured, implementation, "schemas", "is a build of whose kernels there is no data"
        )
    return KnownRuntime(planned, measured, implementation, "all")


def _harvested_runtime(planned: PlannedRuntime, own: BuildSupport) -> KnownRuntime:
    if own.implementation is None:
        return KnownRuntime(planned, own.limits, None, "stamps", "does not say which kernels it has")
    return KnownRuntime(planned, own.limits, own.implementation, "all")


def has_release_limits(runtime: LockedRuntime) -> bool:
    """Return whether the table of ONNX Runtime's releases applies to the runtime."""
    return runtime.engine in (limits.load_limit_table().engine, GPU_ENGINE)


NodeKey = tuple[str, str, tuple[str, ...]]
EXTENSION_DOUBT = "an extension may register it; the runtime stage looks"
PROVIDER_DOUBT = "a provider of the target may have a kernel; the runtime stage looks"


@dataclass(frozen=True, slots=True)
class LocatedModel:
    """A model, and what places its nodes."""

    selected: SelectedModel
    place: Place
    root: Path  # git's root
    folder: Path  # the config's folder, which places are relative to

    @property
    def path(self) -> str:
        """The model's path, relative to the config's folder."""
        return self.selected.path


@dataclass(slots=True)
class OperatorPredictions:
    """The model's operators, judged on one runtime after the other."""

    model: LocatedModel
    prepared: TypedModel
    known: Sequence[KnownRuntime]
    everywhere: bool  # the model requires no other runtime
    _ways: dict[tuple[object, ...], tuple[tuple[Suggestion, ...], str, str]] = field(default_factory=dict)
    _parents: dict[NodeKey, str] | None = None

    def gather(self) -> tuple[list[object], dict[str, Prediction]]:
        """What each runtime refuses or leaves open, and the predictions themselves."""
        subjects: list[object] = []
        predictions = {}
        for each in self.known:
            prediction = restrict_to_known(
                predict(self.prepared, each.implementation, each.limits, each.planned.providers), each
            )
            subjects += self._refused(each, prediction)
            subjects += self._unknown(each, prediction)
            if each.judged == "all" or prediction.verdict == "refused":
                predictions[each.name] = prediction
        return subjects, predictions

    def _refused(self, known: KnownRuntime, prediction: Prediction) -> Iterator[RefusedOperation]:
        groups: dict[tuple[str, str], list[NodeProblem]] = {}
        for found in prediction.found:
            if found.miss is not None:
                groups.setdefault((found.miss.rule, found.miss.problem), []).append(found)
        for group in groups.values():
            miss, first = group[0].miss, group[0].node
            assert miss is not None
            ways, since, until = self._ways_out(miss, group)
            yield RefusedOperation(
                rule=miss.rule,
                model=self.model.path,
                place=self.place(first),
                runtime=known.name,
                problem=miss.problem,
                detail=miss.detail,
                operator=first.operation.label,
                domain=first.operation.domain,
                nodes=self.nodes(each.node for each in group),
                ways=ways,
                works_since=since,
                works_until=until,
                opset_too_new=first.operation.domain in prediction.opsets_too_new,
                everywhere=self.everywhere and all(each.whole is not None for each in self.known),
            )

    def _ways_out(self, miss: SupportGap, group: Sequence[NodeProblem]) -> tuple[tuple[Suggestion, ...], str, str]:
        """The same for all runtimes, so that what they refuse alike is one finding."""
        from onnxgate.support.suggestions import SupportGapGroup, find_implemented_span, find_suggestions

        operations = tuple(dict.fromkeys(found.node.operation for found in group))
        key = (miss.rule, miss.problem, operations)
        if key not in self._ways:
            every = [
                each
                for name in operators.list_known_releases()
                if (each := operators.get_implementation(name)) is not None
            ]
            since, until = find_implemented_span(operations, every)
            missed = SupportGapGroup(miss, operations, since)
            others = [each.limits for each in self.known if each.whole is None]
            self._ways[key] = find_suggestions(missed, self.prepared, self._asked(), others), since, until
        return self._ways[key]

    def _asked(self) -> list[RequiredRelease]:
        from onnxgate.support.suggestions import RequiredRelease

        return [
            RequiredRelease(each.whole, each.limits, each.planned.providers)
            for each in self.known
            if each.whole is not None
        ]

    def _unknown(self, known: KnownRuntime, prediction: Prediction) -> Iterator[PredictionGap]:
        """Yield one gap per reason, with the first such node and the number of others."""
        open_ones = [found for found in prediction.found if found.miss is None]
        if not open_ones:
            return
        first = open_ones[0]
        nodes = self.nodes(open_one.node for open_one in open_ones)
        yield PredictionGap(
            place=self.place(first.node),
            what=f"is not predicted in full: {first.unknown}: {nodes.words}",
            runtime=known.name,
            model=self.model.path,
            node=first.node.name,
            fix="run the runtime stage: it loads the model there",
            follows_from=("unknown-domain", "unknown-operator"),
        )

    def experimental(self, known: KnownRuntime) -> tuple[ExperimentalOperation, ...]:
        """The operators that a release calls experimental."""
        groups: dict[str, list[TypedNode]] = {}
        some = any(_experimental_operator(node, known.implementation) for node in self.prepared.kinds)
        for node in self.prepared.all_nodes() if some else ():
            name = _experimental_operator(node, known.implementation)
            if name:
                groups.setdefault(name, []).append(node)
        return tuple(
            ExperimentalOperation(self.place(nodes[0]), name, self.nodes(nodes)) for name, nodes in groups.items()
        )

    # Nodes in words

    def place(self, node: TypedNode) -> Place:
        """Return the source line that made a node, or the model's place."""
        return find_source_line(node.proto, self.model.root, self.model.folder) or self.model.place

    def nodes(self, nodes: Iterable[TypedNode]) -> NodeGroup:
        """Nodes in words: the first one, and how many others."""
        distinct: dict[NodeKey, TypedNode] = {}
        for node in nodes:
            distinct.setdefault(_node_key(node), node)
        first = next(iter(distinct.values()))
        output = next(filter(None, first.proto.output), "")
        return NodeGroup(first.name, output, len(distinct) - 1, first.within, self._parent(first))

    def _parent(self, node: TypedNode) -> str:
        """The node in whose subgraph a node is."""
        if self._parents is None:
            self._parents = dict(_find_parents(self.prepared.nodes, ""))
        return self._parents.get(_node_key(node), "")


def _node_key(node: TypedNode) -> NodeKey:
    return node.within, node.name, tuple(node.proto.output)


def _find_parents(nodes: Iterable[TypedNode], parent: str) -> Iterator[tuple[NodeKey, str]]:
    for node in nodes:
        yield _node_key(node), parent
        inside = "" if node.calls else node.name or next(filter(None, node.proto.output), "")
        yield from _find_parents(node.inner, inside)


def _experimental_operator(node: TypedNode, implementation: Implementation | None) -> str:
    """The operator with its version, where the release calls its schema experimental; else ""."""
    if node.calls or implementation is None:
        return ""
    operation = node.operation
    operator = implementation.operator(operation.domain, operation.name)
    schema = operator.schema(operation.version or 1) if operator is not None else None
    return f"{operation.label}({schema.since})" if schema is not None and schema.experimental else ""


def restrict_to_known(prediction: Prediction, known: KnownRuntime) -> Prediction:
    """The prediction without what is not known of this runtime: what extensions register, what other kernels do."""
    if known.implementation is None:
        return prediction
    found = tuple(_restrict_found(each, known, known.implementation) for each in prediction.found)
    return replace(prediction, found=tuple(each for each in found if each is not None))


def _restrict_found(found: NodeProblem, known: KnownRuntime, implementation: Implementation) -> NodeProblem | None:
    if found.miss is None:
        return found if known.judged == "all" else None
    if known.planned.extensions and found.miss.rule in ("unknown-domain", "unknown-operator"):
        return NodeProblem(found.node, None, f"{found.miss.problem}, but {EXTENSION_DOUBT}")
    if not _is_kernel_miss(found, implementation):
        return found
    if known.judged == "schemas":
        return None
    if set(known.planned.providers) - {CPU_PROVIDER} - list_kernel_providers(implementation):
        return NodeProblem(found.node, None, f"{found.miss.problem}, but {PROVIDER_DOUBT}")
    return found


def _is_kernel_miss(found: NodeProblem, implementation: Implementation) -> bool:
    """Return whether a miss is about a release's kernels instead of its schemas."""
    if found.miss is None or found.miss.rule not in ("missing-kernel", "attribute-unsupported"):
        return False
    operation = found.node.operation
    operator = implementation.operator(operation.domain, operation.name)
    schema = operator.schema(operation.version or 1) if operator is not None else None
    return schema is not None and find_schema_violation(operation, schema) is None
