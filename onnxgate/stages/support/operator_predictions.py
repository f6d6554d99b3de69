"""Predictions for the operators of a model on each runtime."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from onnxgate.core.findings import Place, is_release_within
from onnxgate.evidence.support import (
    ExperimentalOperation,
    NodeGroup,
    PredictionGap,
    ProviderFallback,
    RefusedOperation,
    WaysOut,
)
from onnxgate.model.subgraphs.node_context import describe_nodes, find_source_line
from onnxgate.project.config.project import SelectedModel
from onnxgate.stages.support.runtime_data import RUN_HINT, RuntimeSupportData
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import (
    CPU_PROVIDER,
    SingleProviderImplementation,
    list_kernel_providers,
    match_node,
    predict,
)
from onnxgate.support.matching.node_checks import find_schema_violation
from onnxgate.support.matching.operations import (
    NodeProblem,
    Operation,
    Prediction,
    SupportGap,
    TypedModel,
    TypedNode,
)
from onnxgate.support.operators import Implementation, Schema

if TYPE_CHECKING:
    from onnxgate.support.suggestions.search import RequiredRelease


EXTENSION_DOUBT = "an extension may register this operator; the runtime stage checks this"
PROVIDER_DOUBT = "a provider of the target may have a kernel; the runtime stage checks this"
_WRONG_CONSTANTS = frozenset({"constants", "divisor"})
"""What problems of nodes with wrong constants are about (`SupportGap.about`)."""
NodeKey = tuple[str, str, tuple[str, ...]]


class LocatedModel(msgspec.Struct, frozen=True):
    """A model, and the folders that its places are relative to."""

    selected: SelectedModel
    place: Place
    root: Path  # repository root
    folder: Path  # config folder; places are relative to it

    @property
    def path(self) -> str:
        """Path of the model, relative to the config folder."""
        return self.selected.path


@functools.lru_cache(maxsize=64)
def _remember_implemented(builds: tuple[tuple[Implementation, tuple[str, ...]], ...]) -> set[Operation]:
    """Return the mutable set of operations that all these builds implement; all models share this set."""
    return set()


class _Refusal(msgspec.Struct):
    """A refused operation, with the names of the releases that refuse it."""

    subject: RefusedOperation  # without runtimes
    names: list[str]
    first: TypedNode | None  # its first node, from which its place in the order follows; None if it has one release


_Refusals = dict[tuple[object, ...], _Refusal]
"""Refused operations by what their releases have in common."""


class OperatorPredictions(msgspec.Struct, dict=True):
    """Predictions for the operators of a model on each runtime."""

    model: LocatedModel
    typed: TypedModel
    supports: Sequence[RuntimeSupportData]
    required: str  # subject and verb of a sentence about the required runtimes
    for_all_runtimes: bool  # `supports` has every runtime that the model requires
    doubts: Mapping[str, str] = msgspec.field(default_factory=dict)  # see `find_doubts`
    _ways: dict[tuple[object, ...], WaysOut] = msgspec.field(default_factory=dict)
    _parents: dict[NodeKey, str] | None = None

    def collect(self) -> tuple[list[object], dict[str, Prediction]]:
        """Return the evidence for refused and undecided nodes, and the predictions by runtime."""
        subjects: list[object] = []
        complete = [
            predict(self.typed, data.implementation, data.limits, data.planned.providers, self.questionable_kinds)
            for data in self.supports
        ]
        wrong, predictions = _find_wrong_constants(complete), {}
        refusals: _Refusals = {}
        for data, own in zip(self.supports, complete, strict=True):
            prediction = restrict_to_known(own, data)
            if data.name in self.doubts and prediction.verdict == "loads":
                prediction = replace(prediction, unknown_reason=self.doubts[data.name])
            self._add_refused(refusals, data, prediction, wrong)
            subjects += self._find_refused_interface(data, prediction)
            subjects += self._find_unknown(data.name, prediction)
            if data.depth == "all" or prediction.verdict == "refused":
                predictions[data.name] = prediction
        return [*self._join_refused(refusals), *subjects], predictions

    @functools.cached_property
    def questionable_kinds(self) -> tuple[TypedNode, ...]:
        """Kinds of nodes that a release may reject, or that it marks as experimental."""
        builds = tuple((it.implementation, it.planned.providers) for it in self.supports if it.implementation)
        implemented = _remember_implemented(builds)
        questionable = []
        for node in self.typed.kinds:
            if node.operation in implemented and not node.calls:
                continue
            if any(
                match_node(node, implementation, providers) is not None or _name_experimental(node, implementation)
                for implementation, providers in builds
            ):
                questionable.append(node)
            elif node.operation.version and not node.calls:  # the result depends only on the operation
                implemented.add(node.operation)
        return tuple(questionable)

    def _add_refused(
        self,
        refusals: _Refusals,
        data: RuntimeSupportData,
        prediction: Prediction,
        wrong: Mapping[str, Sequence[NodeProblem]],
    ) -> None:
        """Add the operations that a release refuses to `refusals`, in the order of their nodes."""
        groups: dict[tuple[str, str], list[NodeProblem]] = {}
        for problem in prediction.found:
            if problem.miss is not None:
                groups.setdefault((problem.miss.rule, problem.miss.problem), []).append(problem)
        for group in groups.values():
            gap = group[0].miss
            assert gap is not None
            named = wrong.get(gap.problem, group)
            first = named[0].node
            opset_too_new = first.operation.domain in prediction.opsets_too_new
            is_probed = data.implementation is not None and data.implementation.is_probed
            planned = data.planned
            key = (
                planned.runtime.engine,
                planned.runtime.release if is_probed else "",
                planned.extensions,
                opset_too_new,
                tuple(map(id, group)),  # `complete` contains all of them
            )
            if key in refusals:
                refusals[key].names.append(data.name)
                continue
            ways = self._find_ways_out(gap, named, data.engine)
            if is_probed and is_release_within(planned.runtime.release, ways.works_since, ways.works_until):
                ways = replace(ways, works_since="", works_until="")  # other nodes cause the refusal
            subject = RefusedOperation(
                rule=gap.rule,
                model=self.model.path,
                place=self._place(first),
                runtimes=(),
                problem=gap.problem,
                detail=gap.detail,
                operator=first.operation.label,
                about=gap.about,
                nodes=self._describe_nodes(problem.node for problem in named),
                ways=ways,
                opset_too_new=opset_too_new,
                extensions=planned.extensions,
            )
            refusals[key] = _Refusal(subject, [data.name], None if is_probed else group[0].node)

    def _join_refused(self, refusals: _Refusals) -> Iterator[RefusedOperation]:
        """Yield the subject of each refusal, so that those of one release are in the order of the model's nodes."""
        detached = self.typed.detached
        nodes = self.typed.all_nodes() if len(refusals) > 1 else ()
        order = {id(detached[node]): index for index, node in enumerate(nodes) if node in detached}
        ordered = sorted(refusals.values(), key=lambda it: order.get(id(it.first), len(order)))
        yield from (replace(it.subject, runtimes=tuple(it.names)) for it in ordered)

    def _find_refused_interface(self, data: RuntimeSupportData, prediction: Prediction) -> Iterator[RefusedOperation]:
        """Yield the inputs and outputs of the model with types that the runtime refuses."""
        opset = self.typed.opsets.get("ai.onnx", 0)
        for value in prediction.refused_interface:
            since, until = limits.find_interface_type_span(value.type, data.engine, is_tensor=value.kind == "tensor")
            yield RefusedOperation(
                rule="type-mismatch",
                model=self.model.path,
                place=self.model.place,
                runtimes=(data.name,),
                problem=f"{value.kind} `{value.name}` of the model has type `{value.type}`",
                detail=f"does not support {'tensors' if value.kind == 'tensor' else 'inputs and outputs'} of this type",
                operator="",
                about=f"{value.kind} {value.name}",
                nodes=NodeGroup("", ""),
                ways=WaysOut((), since, until, required=self.required),
                is_castable=all(release.can_cast(value.type, opset) for release in self._required),
            )

    def _find_ways_out(self, gap: SupportGap, group: Sequence[NodeProblem], engine: str) -> WaysOut:
        """Return the same suggestions for all runtimes, so that equal refusals become one finding.

        The releases that implement the operations are those of the engine.
        """
        from onnxgate.support.suggestions.search import SupportGapGroup, find_implemented_span, find_suggestions

        operations = tuple(dict.fromkeys(problem.node.operation for problem in group))
        nodes: tuple[TypedNode, ...] = ()
        if any(data.implementation is not None and data.implementation.is_probed for data in self.supports):
            nodes = tuple(self._complete_nodes[_node_key(problem.node)] for problem in group)
            operations = tuple(node.operation for node in nodes)
        key = (gap.rule, gap.problem, operations, engine)
        if key not in self._ways:
            releases = (operators.get_implementation(name, engine) for name in operators.list_known_releases(engine))
            since, until = find_implemented_span(operations, [*filter(None, releases)], nodes)
            without_kernels = [data.limits for data in self.supports if data.full_implementation is None]
            suggestions = find_suggestions(
                SupportGapGroup(gap, operations, nodes), self.typed, self._required, without_kernels
            )
            everywhere = self.for_all_runtimes and not without_kernels
            self._ways[key] = WaysOut(suggestions, since, until, everywhere, self.required)
        return self._ways[key]

    @functools.cached_property
    def _required(self) -> list[RequiredRelease]:
        """The required releases with known kernels."""
        from onnxgate.support.suggestions.search import RequiredRelease

        return [
            RequiredRelease(data.full_implementation, data.limits, data.planned.providers)
            for data in self.supports
            if data.full_implementation is not None
        ]

    @functools.cached_property
    def _complete_nodes(self) -> Mapping[NodeKey, TypedNode]:
        """The nodes with what predictions drop to save memory: attributes, and types and sources of values."""
        return {_node_key(node): node for node in self.typed.all_nodes()}

    def _find_unknown(self, runtime: str, prediction: Prediction) -> Iterator[PredictionGap]:
        """Yield a gap that names the first node without a prediction, and counts the others, and a gap of the model."""
        if prediction.unknown_reason and prediction.verdict == "unknown":
            what, place, path = prediction.unknown_reason, self.model.place, self.model.path
            yield PredictionGap(place, what, "", runtime, path, fix=RUN_HINT, about="shape")
        problems = [problem for problem in prediction.found if problem.miss is None]
        if not problems:
            return
        first, nodes = problems[0], self._describe_nodes(problem.node for problem in problems)
        yield PredictionGap(
            place=self._place(first.node),
            what=f"has no prediction for {nodes.words}: {first.unknown}",
            runtime=runtime,
            model=self.model.path,
            node=first.node.name,
            fix=RUN_HINT,
            about=first.node.operation.label,
            follows_from=("unknown-domain", "unknown-operator"),
        )

    @functools.cached_property
    def _known_kinds(self) -> tuple[TypedNode, ...]:
        """Those of `questionable_kinds` whose operator is in the table of a required release."""
        builds = {it.engine: it.implementation for it in self.supports if it.implementation is not None}
        operations = ((node, node.operation) for node in self.questionable_kinds)
        return tuple(node for node, it in operations if any(own.knows(it.domain, it.name) for own in builds.values()))

    def find_experimental(self, data: RuntimeSupportData) -> tuple[ExperimentalOperation, ...]:
        """Return the operators that a release marks as experimental."""
        if not any(_name_experimental(node, data.implementation) for node in self._known_kinds):
            return ()
        groups: dict[str, list[TypedNode]] = {}
        for node in self.typed.all_nodes():
            if name := _name_experimental(node, data.implementation):
                groups.setdefault(name, []).append(node)
        return tuple(
            ExperimentalOperation(self._place(nodes[0]), name, self._describe_nodes(nodes))
            for name, nodes in groups.items()
        )

    def find_provider_fallbacks(self) -> Iterator[ProviderFallback]:
        """Yield each provider of a target with the nodes that fall back to the CPU, for builds with known kernels."""
        for data in self.supports:
            implementation = data.full_implementation
            if implementation is None or set(data.planned.providers) <= {CPU_PROVIDER}:
                continue
            with_kernels = list_kernel_providers(implementation)
            for provider in data.planned.providers:
                if provider == CPU_PROVIDER or provider not in with_kernels:
                    continue
                alone = SingleProviderImplementation(implementation, provider)
                leaves = (node for node in self.typed.all_nodes() if not node.calls and not node.inner)
                nodes = [node for node in leaves if alone.leaves(node.operation)]
                if nodes:
                    yield ProviderFallback(
                        model=self.model.path,
                        place=self._place(nodes[0]),
                        runtime=data.name,
                        provider=provider,
                        runs_on=CPU_PROVIDER,
                        operators=dict(sorted(Counter(node.operation.label for node in nodes).items())),
                        nodes=self._describe_nodes(nodes),
                    )

    def _place(self, node: TypedNode) -> Place:
        """Return the source line that created a node, or the place of the model."""
        return find_source_line(node.proto, self.model.root, self.model.folder) or self.model.place

    def _describe_nodes(self, nodes: Iterable[TypedNode]) -> NodeGroup:
        distinct: dict[NodeKey, TypedNode] = {}
        for node in nodes:
            distinct.setdefault(_node_key(node), node)
        first = next(iter(distinct.values()))
        if self._parents is None:
            self._parents = dict(_find_parents(self.typed.nodes, ""))
        parent = self._parents.get(_node_key(first), "")
        words = describe_nodes(first.name, _first_output(first), len(distinct) - 1, first.within, parent)
        return NodeGroup(first.name, words, first.within)


def _find_wrong_constants(predictions: Iterable[Prediction]) -> dict[str, list[NodeProblem]]:
    """Return all nodes with wrong constants by problem. Each is wrong, although a release may refuse only some."""
    found: dict[str, dict[TypedNode, NodeProblem]] = {}
    for prediction in predictions:
        for problem in prediction.found:
            if problem.miss is not None and problem.miss.about in _WRONG_CONSTANTS:
                found.setdefault(problem.miss.problem, {}).setdefault(problem.node, problem)
    return {problem: [*nodes.values()] for problem, nodes in found.items()}


def _node_key(node: TypedNode) -> NodeKey:
    return node.within, node.name, tuple(node.proto.output)


def _first_output(node: TypedNode) -> str:
    return next(filter(None, node.proto.output), "")


def _find_parents(nodes: Iterable[TypedNode], parent: str) -> Iterator[tuple[NodeKey, str]]:
    """Yield each node with the name of the node whose subgraph contains it."""
    for node in nodes:
        yield _node_key(node), parent
        yield from _find_parents(node.inner, "" if node.calls else node.name or _first_output(node))


def _find_schema(operation: Operation, implementation: Implementation) -> Schema | None:
    operator = implementation.operator(operation.domain, operation.name)
    return operator.schema(operation.version or 1) if operator is not None else None


def _name_experimental(node: TypedNode, implementation: Implementation | None) -> str:
    """Return the operator and its version if the release marks its schema as experimental, otherwise ""."""
    if node.calls or implementation is None:
        return ""
    schema = _find_schema(node.operation, implementation)
    return f"{node.operation.label}({schema.since})" if schema is not None and schema.experimental else ""


def restrict_to_known(prediction: Prediction, data: RuntimeSupportData) -> Prediction:
    """Drop predictions that may be wrong because of extensions or because of kernels without support data."""
    implementation = data.implementation
    if implementation is None:
        return prediction
    problems = (_restrict_problem(problem, data, implementation) for problem in prediction.found)
    return replace(prediction, found=tuple(problem for problem in problems if problem is not None))


def _restrict_problem(
    problem: NodeProblem, data: RuntimeSupportData, implementation: Implementation
) -> NodeProblem | None:
    gap, operation = problem.miss, problem.node.operation
    if gap is None:
        return problem if data.depth == "all" else None
    if data.planned.extensions and gap.rule in ("unknown-domain", "unknown-operator"):
        return NodeProblem(problem.node, None, f"{gap.problem}, but {EXTENSION_DOUBT}")
    if gap.rule not in ("missing-kernel", "attribute-unsupported"):
        return problem
    schema = _find_schema(operation, implementation)
    if schema is None or find_schema_violation(operation, schema) is not None:  # not about kernels
        return problem
    if data.depth == "schemas":
        return None
    accelerators = set(data.planned.providers) - {CPU_PROVIDER}
    if accelerators and accelerators - list_kernel_providers(implementation):
        return NodeProblem(problem.node, None, f"{gap.problem}, but {PROVIDER_DOUBT}")
    return problem
