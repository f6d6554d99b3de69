"""Support stage: match the operations of models with the support data of each required runtime."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import msgspec
from msgspec.structs import replace

from onnxgate.core.findings import Place, is_release_within, version_sort_key
from onnxgate.evidence.support import (
    ALL_REQUIRED,
    DataProblem,
    ExperimentalOperation,
    ExternalDataOnRuntime,
    ModelOnRuntime,
    NodeGroup,
    PredictionGap,
    ProviderFallback,
    RefusedOperation,
    RuntimeSupport,
    WaysOut,
)
from onnxgate.model.facts import ModelFacts
from onnxgate.model.parsed_weights import list_parsed_weights
from onnxgate.model.reading.external_data import (
    DataLayout,
    classify_layout,
    find_data_files,
    find_spellings,
    inspect_data_file,
    is_spelling,
    read_external_entries,
)
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import describe_nodes, find_source_line
from onnxgate.model.subgraphs.reduced_models import list_unread_weights, list_unused_weights
from onnxgate.model.validity import CheckedModel, find_missing_operators, is_shape_contradiction, supports_opset
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.plan import PlannedRuntime
from onnxgate.support import limits, operators
from onnxgate.support.limits import Limits, find_layout_span, supports_layout
from onnxgate.support.matching.kernels import (
    CPU_PROVIDER,
    WEB_ENGINE,
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
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import Implementation, Schema

if TYPE_CHECKING:
    from onnxgate.support.harvest import BuildSupport
    from onnxgate.support.suggestions.search import RequiredRelease


ONNXRUNTIME = "onnxruntime"
GPU_ENGINE = "onnxruntime-gpu"
"""Build with the same limits and schemas as the CPU build of the same version, but different kernels."""
NO_HARVESTS: Mapping[str, BuildSupport] = {}
UPDATE_HINT = "update onnxgate"
RUN_HINT = "run `onnxgate check` without `--static`, which loads the model on this runtime"
HARVEST_HINT = "run `onnxgate check` once without `--static` to cache the support data of this build"
EXTENSION_DOUBT = "an extension may register this operator; the runtime stage checks this"
PROVIDER_DOUBT = "a provider of the target may have a kernel; the runtime stage checks this"
UNCERTAIN_SHAPE = "a declared shape differs from the inferred shape, so that ONNX Runtime Web may refuse the model"
"""Doubt about models on ONNX Runtime Web, which never falls back to the inferred shape.

Source: 88 models of the backend tests with a wrong shape, loaded on 1.20.1, 1.22.0, 1.24.3 and 1.30.0: it refuses all;
ONNX Runtime 1.30.0 loads 65 of them.
"""
UNCLEAR_ENTRIES = "its external data has entries that the runtime may refuse, or read differently from other runtimes"
UNCLEAR_USE = "shape inference needs its external data, which the runtime may not read for this"
_WRONG_CONSTANTS = frozenset({"constants", "divisor"})
"""What problems of nodes with wrong constants are about (`SupportGap.about`)."""
MISSING_PREDICTIONS = {"schemas": "kernel support is not predicted", "versions": "operator support is not predicted"}
"""Kind of available support data -> message that names the missing predictions."""
NodeKey = tuple[str, str, tuple[str, ...]]


class RuntimeSupportData(msgspec.Struct, frozen=True):
    """Support data of one runtime."""

    planned: PlannedRuntime
    limits: Limits
    engine: str  # the engine whose table lists the runtime's releases
    implementation: Implementation | None = None
    depth: Literal["all", "schemas", "versions"] = "all"  # predictions that the data allows
    reason: str = ""  # why predictions are missing, as a phrase that continues the runtime name

    @property
    def name(self) -> str:
        """Name of the runtime in messages."""
        return self.planned.name

    @property
    def full_implementation(self) -> Implementation | None:
        """Implementation of the runtime, if its kernels are known."""
        return self.implementation if self.depth == "all" else None


def look_up_runtime(planned: PlannedRuntime, harvested: Mapping[str, BuildSupport]) -> RuntimeSupportData | None:
    """Return the support data of one runtime, or None. `harvested` contains collected data by runtime name."""
    runtime, engine = planned.runtime, find_table_engine(planned.runtime.engine)
    own = harvested.get(planned.name)
    if own is not None and own.implementation is not None:
        return RuntimeSupportData(planned, own.limits, ONNXRUNTIME, own.implementation)
    if own is not None:
        return RuntimeSupportData(planned, own.limits, ONNXRUNTIME, None, "versions", "does not report its kernels")
    release_limits = limits.get_limits(runtime.release, engine) if engine else None
    if release_limits is None:
        return None
    implementation = operators.get_implementation(runtime.release, engine)
    if runtime.environment:
        reason = "is a custom build with unknown kernels"
        return RuntimeSupportData(planned, release_limits, engine, None, "versions", reason)
    if implementation is None:
        oldest = operators.list_known_releases(engine)[0]
        reason = f"is older than {_shorten_release(oldest)}, the first release with kernel data"
        return RuntimeSupportData(planned, release_limits, engine, None, "versions", reason)
    if runtime.engine == GPU_ENGINE:
        reason = "is a build for which onnxgate has no kernel data"
        return RuntimeSupportData(planned, release_limits, engine, implementation, "schemas", reason)
    return RuntimeSupportData(planned, release_limits, engine, implementation)


def _shorten_release(release: str) -> str:
    """Return the minor release if this is its first patch: `1.16` for `1.16.0`."""
    return release.removesuffix(".0") if release.count(".") == 2 else release


def find_table_engine(engine: str) -> str:
    """Return the engine whose shipped table lists the releases of an engine or one of its builds; "" if none does."""
    engine = ONNXRUNTIME if engine == GPU_ENGINE else engine
    return engine if engine in limits.list_table_engines() else ""


def collect_prediction_gaps(
    runtimes: Sequence[PlannedRuntime],
    place: Place,
    harvested: Mapping[str, BuildSupport] = NO_HARVESTS,
    *,
    runs_models: bool = False,
) -> Iterator[PredictionGap]:
    """Yield a gap for each runtime without complete support data.

    With `runs_models`, the check also loads the models and collects missing support data, so this is not suggested.
    """
    for runtime in runtimes:
        data = look_up_runtime(runtime, harvested)
        engine = runtime.runtime.engine
        run_hint = HARVEST_HINT if engine == ONNXRUNTIME else RUN_HINT
        if data is None:
            has_table = engine in limits.list_table_engines()
            reason = "is unknown to this version of onnxgate" if has_table else "has no support data"
            ways = [UPDATE_HINT] if has_table else []
            oldest = next(iter(limits.load_limit_table(engine).releases), "0")
            if version_sort_key(runtime.runtime.release) < version_sort_key(oldest):
                reason, ways = f"is older than {oldest}, the first release with support data", []
            ways += [] if runs_models else [run_hint]
            fix = ", or ".join(ways)
            yield PredictionGap(place, "nothing can be predicted", reason, runtime.runtime.name, fix=fix)
        elif data.reason:
            is_collectable = runtime.name not in harvested and find_table_engine(engine) == ONNXRUNTIME
            fix = "" if runs_models else HARVEST_HINT if runtime.runtime.environment and is_collectable else RUN_HINT
            what = MISSING_PREDICTIONS[data.depth]
            yield PredictionGap(place, what, data.reason, runtime.runtime.name, fix=fix, about=data.depth)


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


class ModelPrediction(msgspec.Struct, frozen=True):
    """Predictions for one model."""

    subjects: tuple[object, ...] = ()  # evidence for the rules
    predictions: Mapping[str, Prediction] = msgspec.field(default_factory=dict)  # by runtime, if there is one


def collect_model_evidence(
    model: LocatedModel,
    facts: ModelFacts,
    content: CheckedModel | None,
    runtimes: Sequence[PlannedRuntime],
    harvested: Mapping[str, BuildSupport] = NO_HARVESTS,
) -> ModelPrediction:
    """Predict the support of a model's version fields and operators on each runtime with support data.

    `content` is None for a model whose file is a Git LFS pointer.
    """
    supports = [data for runtime in runtimes if (data := look_up_runtime(runtime, harvested)) is not None]
    if not supports:
        return ModelPrediction()
    if content is None:
        # The facts come from the lock, and can only prove that a runtime refuses the model.
        typed = TypedModel(facts.ir_version, facts.needed_opsets, ())
        predictions = {data.name: predict(typed, None, data.limits) for data in supports}
        what = "operator support cannot be predicted: the file is a Git LFS pointer (content not fetched)"
        gap = PredictionGap(model.place, what, model=facts.path, about="lfs-pointer", follows_from=("lfs-pointer",))
        return ModelPrediction(
            (*_compare_limits(facts, model.place, supports, {}), gap),
            {name: prediction for name, prediction in predictions.items() if prediction.verdict == "refused"},
        )
    typed, external = infer_model_types(content.view, content.inferred), _group_external_data(model, content.view)
    required = _describe_required(runtimes)
    operator_predictions = OperatorPredictions(
        model,
        typed,
        supports,
        required,
        for_all_runtimes=len(supports) == len(runtimes),
        doubts=_find_doubts(external, supports, has_wrong_shape=is_shape_contradiction(content.fault)),
    )
    subjects, predictions = operator_predictions.collect()
    experimental = {data.name: operator_predictions.find_experimental(data) for data in supports}
    return ModelPrediction(
        (
            *_compare_limits(
                facts,
                model.place,
                supports,
                experimental,
                required=required,
                is_convertible=supports_opset(facts.opsets),
            ),
            *subjects,
            *_find_refused_external_data(model, content.view, external, supports),
            *operator_predictions.find_provider_fallbacks(),
        ),
        predictions,
    )


def _describe_required(runtimes: Sequence[PlannedRuntime]) -> str:
    """Return subject and verb of a sentence about the required runtimes."""
    return f"{runtimes[0].name} supports" if len(runtimes) == 1 else ALL_REQUIRED


def _compare_limits(
    facts: ModelFacts,
    place: Place,
    supports: Sequence[RuntimeSupportData],
    experimental: Mapping[str, tuple[ExperimentalOperation, ...]],
    *,
    required: str = ALL_REQUIRED,
    is_convertible: bool = True,
) -> Iterator[ModelOnRuntime]:
    common_opsets: dict[str, int] = {}
    for data in supports:
        for domain, version in data.limits.opsets.items():
            common_opsets[domain] = min(version, common_opsets.get(domain, version))
    common = common_opsets.get("ai.onnx")
    if is_convertible and common is not None and facts.opsets.get("ai.onnx", 0) > common:
        is_convertible = not find_missing_operators(facts.operators, common)
    for data in supports:
        newest, unreleased = data.limits.opsets, data.limits.dev_opsets
        imported = facts.needed_opsets.items()
        yield ModelOnRuntime(
            model=facts,
            place=place,
            runtime=RuntimeSupport(data.name, data.limits.ir, newest),
            common_ir=min((data.limits.ir for data in supports if data.limits.ir is not None), default=None),
            common_opsets=common_opsets,
            ir_works_since=limits.find_first_release_for_ir(facts.ir_version, data.engine),
            opset_works_since={
                domain: limits.find_first_release_for_opset(domain, version, data.engine)
                for domain, version in imported
                if version > newest.get(domain, version)
            },
            required=required,
            is_convertible=is_convertible,
            experimental=experimental.get(data.name, ()),
            experimental_opsets={d: v for d, v in imported if newest.get(d, v) < v <= unreleased.get(d, 0)},
        )


_ExternalTensors = Mapping[tuple[str, DataProblem], Sequence[str]]
"""Location and possible problem of external data -> names of the tensors, in the order of the model."""


def _group_external_data(model: LocatedModel, view: ModelView) -> _ExternalTensors:
    if not view.external:
        return {}
    parsed = list_parsed_weights(view, model.selected.absolute)
    files = find_data_files(view, model.selected.absolute)
    layouts: dict[str, DataLayout] = {it: classify_layout(model.selected.absolute, it) for it in files}
    unfound, idle = _find_unfound_weights(model, view), _find_idle_weights(view)
    groups: dict[tuple[str, DataProblem], list[str]] = {}
    for name, tensor in view.external:
        location = read_external_entries(tensor).get("location", "")
        size = files[location].size_bytes if location else None
        found: set[DataProblem] = {layouts.get(location, "inside"), *find_spellings(tensor, size)}
        if name in parsed:
            found.add("parsed")
        if id(tensor) in unfound:
            found.add("unfound")
        if id(tensor) in unfound or id(tensor) in idle:
            found.discard("second-location")
        for problem in found:
            groups.setdefault((location, problem), []).append(name)
    return dict(sorted(groups.items()))


def _find_refused_external_data(
    model: LocatedModel, view: ModelView, groups: _ExternalTensors, supports: Sequence[RuntimeSupportData]
) -> Iterator[ExternalDataOnRuntime]:
    """Yield each external data file together with each runtime that refuses its path, use or spelling.

    Only tract reads the data of unused weights. Source: such models, loaded on all releases of OpenVINO (since 2026.0)
    and tract in `support/data`, and on ONNX Runtime as in `list_unread_weights`.
    """
    if not groups:
        return
    unread = list_unread_weights(view)
    for (location, problem), names in groups.items():
        for data in supports:
            read = tuple(name for name in names if data.engine == "tract" or name not in unread)
            span = _find_refused_span(problem, data)
            if read and span is not None:
                yield ExternalDataOnRuntime(model.path, model.place, data.name, location, problem, read, *span)


def _find_refused_span(problem: DataProblem, data: RuntimeSupportData) -> tuple[str, str] | None:
    """Return the first and last release that reads data with this problem; None if the runtime itself reads it."""
    if problem in ("parsed", "unfound"):
        return ("", "") if data.engine == ONNXRUNTIME and not _is_unclear(problem, data) else None
    if is_spelling(problem):
        refuses = limits.refuses_spelling(data.planned.runtime.release, problem, data.engine)
        return limits.find_spelling_span(problem, data.engine) if refuses else None
    layout = cast("DataLayout", problem)
    return find_layout_span(layout, data.engine) if supports_layout(data.limits, layout) is False else None


def _find_doubts(
    groups: _ExternalTensors, supports: Sequence[RuntimeSupportData], *, has_wrong_shape: bool
) -> dict[str, str]:
    """Return why a runtime may refuse the model as a whole, by its name."""
    doubts = {data.name: UNCERTAIN_SHAPE for data in supports if has_wrong_shape and data.engine == WEB_ENGINE}
    for _, problem in groups:
        for data in supports:
            if _is_unclear(problem, data):
                doubts[data.name] = UNCLEAR_USE if problem == "parsed" else UNCLEAR_ENTRIES
    return doubts


def _is_unclear(problem: DataProblem, data: RuntimeSupportData) -> bool:
    """Return whether a runtime may refuse external data with a problem, so that nothing is predicted.

    Source: Reshape and Unsqueeze with external data as a shape or axis, and 4 models whose branches have a weight with
    two locations, the first of which is missing, loaded on 1.15.1; `list_parsed_weights` and `_find_unfound_weights`
    name newer releases.
    """
    release = data.planned.runtime.release
    if problem in ("parsed", "unfound"):
        return data.engine == ONNXRUNTIME and is_release_within(release, *limits.UNMEASURED)
    return is_spelling(problem) and limits.is_spelling_unclear(release, problem, data.engine)


def _find_unfound_weights(model: LocatedModel, view: ModelView) -> frozenset[int]:
    """Return the `id()` of each tensor in a subgraph that names another file first, which does not exist.

    Releases of ONNX Runtime that accept a second location require the first file, but only in subgraphs.
    Source: 15 models, loaded on 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0, and 6 with a weight of the same or another
    name in the main graph on 1.16.3, 1.24.4 and 1.32.0.
    """
    own = {id(tensor) for tensor in view.proto.graph.initializer}
    found = set()
    for _, tensor in view.external:
        locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
        is_inner = len(locations) > 1 and id(tensor) not in own
        if is_inner and inspect_data_file(model.selected.absolute, locations[0]).problem:
            found.add(id(tensor))
    return frozenset(found)


def _find_idle_weights(view: ModelView) -> frozenset[int]:
    """Return the `id()` of each unused weight of a subgraph; it may have two locations.

    Source: 4 models with weights of the same name in both branches, used and unused, loaded on ONNX Runtime 1.16.3,
    1.30.0 and 1.32.0.
    """
    scopes = ((graph.proto, list_unused_weights(graph.proto)) for graph in view.graphs[1:])
    return frozenset(id(tensor) for graph, unused in scopes for tensor in graph.initializer if tensor.name in unused)


@functools.lru_cache(maxsize=64)
def _remember_implemented(builds: tuple[tuple[Implementation, tuple[str, ...]], ...]) -> set[Operation]:
    """Return the mutable set of operations that all these builds implement; all models share this set."""
    return set()


class OperatorPredictions(msgspec.Struct, dict=True):
    """Predictions for the operators of a model on each runtime."""

    model: LocatedModel
    typed: TypedModel
    supports: Sequence[RuntimeSupportData]
    required: str  # subject and verb of a sentence about the required runtimes
    for_all_runtimes: bool  # `supports` has every runtime that the model requires
    doubts: Mapping[str, str] = msgspec.field(default_factory=dict)  # see `_find_doubts`
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
        for data, own in zip(self.supports, complete, strict=True):
            prediction = restrict_to_known(own, data)
            if data.name in self.doubts and prediction.verdict == "loads":
                prediction = replace(prediction, unknown_reason=self.doubts[data.name])
            subjects += self._find_refused(data, prediction, wrong)
            subjects += self._find_refused_interface(data, prediction)
            subjects += self._find_unknown(data.name, prediction)
            if data.depth == "all" or prediction.verdict == "refused":
                predictions[data.name] = prediction
        return subjects, predictions

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

    def _find_refused(
        self, data: RuntimeSupportData, prediction: Prediction, wrong: Mapping[str, Sequence[NodeProblem]]
    ) -> Iterator[RefusedOperation]:
        groups: dict[tuple[str, str], list[NodeProblem]] = {}
        for problem in prediction.found:
            if problem.miss is not None:
                groups.setdefault((problem.miss.rule, problem.miss.problem), []).append(problem)
        for group in groups.values():
            gap = group[0].miss
            assert gap is not None
            named = wrong.get(gap.problem, group)
            first = named[0].node
            ways = self._find_ways_out(gap, named, data.engine)
            is_probed = data.implementation is not None and data.implementation.is_probed
            if is_probed and is_release_within(data.planned.runtime.release, ways.works_since, ways.works_until):
                ways = replace(ways, works_since="", works_until="")  # other nodes cause the refusal
            yield RefusedOperation(
                rule=gap.rule,
                model=self.model.path,
                place=self._place(first),
                runtime=data.name,
                problem=gap.problem,
                detail=gap.detail,
                operator=first.operation.label,
                about=gap.about,
                nodes=self._describe_nodes(problem.node for problem in named),
                ways=ways,
                opset_too_new=first.operation.domain in prediction.opsets_too_new,
                extensions=data.planned.extensions,
            )

    def _find_refused_interface(self, data: RuntimeSupportData, prediction: Prediction) -> Iterator[RefusedOperation]:
        """Yield the inputs and outputs of the model with types that the runtime refuses."""
        opset = self.typed.opsets.get("ai.onnx", 0)
        for value in prediction.refused_interface:
            since, until = limits.find_interface_type_span(value.type, data.engine, is_tensor=value.kind == "tensor")
            yield RefusedOperation(
                rule="type-mismatch",
                model=self.model.path,
                place=self.model.place,
                runtime=data.name,
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

    def find_experimental(self, data: RuntimeSupportData) -> tuple[ExperimentalOperation, ...]:
        """Return the operators that a release marks as experimental."""
        if not any(_name_experimental(node, data.implementation) for node in self.questionable_kinds):
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
    schema = _find_schema(operation, implementation)
    is_about_kernels = gap.rule in ("missing-kernel", "attribute-unsupported") and (
        schema is not None and find_schema_violation(operation, schema) is None
    )
    if not is_about_kernels:
        return problem
    if data.depth == "schemas":
        return None
    accelerators = set(data.planned.providers) - {CPU_PROVIDER}
    if accelerators and accelerators - list_kernel_providers(implementation):
        return NodeProblem(problem.node, None, f"{gap.problem}, but {PROVIDER_DOUBT}")
    return problem
