"""Support stage: match the operations of models with the support data of each locked runtime. Static."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.core.findings import Place
from onnxgate.evidence.support import (
    ExperimentalOperation,
    ExternalDataOnRuntime,
    ModelOnRuntime,
    PredictionGap,
    ProviderFallback,
    RuntimeSupport,
)
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import classify_layout, is_external, read_external_entries
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import iter_tensors, read_light_structure
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.support.predictions import KnownRuntime, LocatedModel, OperatorPredictions, look_up_runtime
from onnxgate.support import limits
from onnxgate.support.limits import find_layout_span, supports_layout
from onnxgate.support.matching.kernels import CPU_PROVIDER, SingleProviderImplementation, list_kernel_providers, predict
from onnxgate.support.matching.operations import Prediction, TypedModel, TypedNode
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.operators import Implementation

if TYPE_CHECKING:
    from onnx import ModelProto

    from onnxgate.support.harvest import BuildSupport


NO_HARVESTS: Mapping[str, BuildSupport] = {}
UPDATE_HINT = "update onnxgate, or run the runtime stage: it keeps what the build implements for the next static check"
MISSING_PREDICTIONS = {"schemas": "kernels are not predicted", "stamps": "operators are not predicted"}
"""Scope of support data -> the description of what is missing."""
RUN_HINT = "run the runtime stage: it loads the model there"
HARVEST_HINT = "run the runtime stage: it keeps what the build implements for the next static check"


@dataclass(frozen=True, slots=True)
class ModelPrediction:
    """Predictions for one model."""

    subjects: tuple[object, ...] = ()  # what the rules judge
    predictions: Mapping[str, Prediction] = field(default_factory=dict)  # by runtime; one that is not there has none


def collect_model_evidence(
    model: SelectedModel,
    facts: ModelFacts,
    place: Place,
    project_root: Path,
    folder: Path,
    runtimes: Sequence[PlannedRuntime],
    kept: Mapping[str, BuildSupport] = NO_HARVESTS,
) -> ModelPrediction:
    """Return subjects for the model on each runtime with data: its versions and its operators.

    `kept` is what was harvested of runtimes that the shipped table does not know, by their names.
    """
    known = [support for runtime in runtimes if (support := look_up_runtime(runtime, kept)) is not None]
    if not known:
        return ModelPrediction()
    try:
        proto = read_light_structure(model.absolute)
    except (OSError, UnreadableModel):
        return ModelPrediction(
            (*_compare_limits(facts, place, known), _create_content_gap(facts.path, place)),
            _predict_from_facts(facts, known),
        )
    where = LocatedModel(model, place, project_root, folder)
    operators = OperatorPredictions(where, infer_model_types(proto), known, everywhere=len(known) == len(runtimes))
    found, predictions = operators.gather()
    stamps = _compare_limits(facts, place, known, {each.name: operators.experimental(each) for each in known})
    return ModelPrediction(
        (*stamps, *found, *find_refused_external_data(where, proto, known), *find_provider_fallbacks(operators)),
        predictions,
    )


def _predict_from_facts(facts: ModelFacts, known: Sequence[KnownRuntime]) -> dict[str, Prediction]:
    """Return subjects for a missing model from its lock entry, which can only prove a refusal."""
    prepared = TypedModel(facts.ir_version, facts.needed_opsets, ())
    predictions = {each.name: predict(prepared, None, each.limits) for each in known}
    return {name: prediction for name, prediction in predictions.items() if prediction.verdict == "refused"}


def _create_content_gap(path: str, place: Place) -> PredictionGap:
    what = "its operators are not predicted: its content is not here"
    return PredictionGap(place, what, model=path, follows_from=("lfs-pointer",))


def _compare_limits(
    facts: ModelFacts,
    place: Place,
    known: Sequence[KnownRuntime],
    experimental: Mapping[str, tuple[ExperimentalOperation, ...]] | None = None,
) -> Iterator[ModelOnRuntime]:
    common_opsets = _common_opsets(known)
    for each in known:
        yield ModelOnRuntime(
            model=facts,
            place=place,
            runtime=RuntimeSupport(each.name, each.limits.ir, each.limits.opsets, each.limits.dev_opsets),
            common_ir=min(other.limits.ir for other in known),
            common_opsets=common_opsets,
            ir_works_since=limits.find_first_release_for_ir(facts.ir_version),
            opset_works_since={d: limits.find_first_release_for_opset(d, v) for d, v in facts.needed_opsets.items()},
            experimental=(experimental or {}).get(each.name, ()),
        )


def _common_opsets(known: Sequence[KnownRuntime]) -> dict[str, int]:
    opsets = [each.limits.opsets for each in known]
    domains = {domain for opset in opsets for domain in opset}
    return {domain: min(opset[domain] for opset in opsets if domain in opset) for domain in domains}


def collect_prediction_gaps(
    runtimes: Sequence[PlannedRuntime], place: Place, kept: Mapping[str, BuildSupport] = NO_HARVESTS
) -> Iterator[PredictionGap]:
    """Yield a gap per runtime without support data, or with limits alone."""
    for runtime in runtimes:
        support = look_up_runtime(runtime, kept)
        if support is None:
            yield _create_runtime_gap(runtime.runtime, place)
        elif support.reason:
            fix = HARVEST_HINT if runtime.runtime.environment and runtime.name not in kept else RUN_HINT
            yield PredictionGap(place, MISSING_PREDICTIONS[support.judged], support.reason, runtime.name, fix=fix)


def _create_runtime_gap(runtime: LockedRuntime, place: Place) -> PredictionGap:
    if runtime.engine == limits.load_limit_table().engine:
        reason = "is not in the support data of this onnxgate"
        return PredictionGap(place, "nothing is predicted", reason, runtime.name, fix=UPDATE_HINT)
    reason = "has no support data"
    return PredictionGap(place, "nothing is predicted", reason, runtime.name, fix=RUN_HINT)


def find_refused_external_data(
    model: LocatedModel, proto: ModelProto, known: Sequence[KnownRuntime]
) -> Iterator[ExternalDataOnRuntime]:
    """Yield each file of external data with each runtime that does not read it at its path."""
    uses = Counter(
        read_external_entries(tensor).get("location", "") for _, tensor in iter_tensors(proto) if is_external(tensor)
    )
    for location, tensor_count in uses.items():
        where = classify_layout(model.selected.absolute, location) if location else "inside"
        if where == "inside":
            continue
        since, until = find_layout_span(where)
        for each in known:
            if supports_layout(each.limits, where) is False:
                yield ExternalDataOnRuntime(
                    model.path, model.place, each.name, location, where, tensor_count, since, until
                )


def find_provider_fallbacks(operators: OperatorPredictions) -> Iterator[ProviderFallback]:
    """Each provider of a target with the nodes that it leaves to the processor, of builds whose kernels are known."""
    for each in operators.known:
        asked = [provider for provider in each.planned.providers if provider != CPU_PROVIDER]
        if each.whole is None or not asked:
            continue
        for provider in (provider for provider in asked if provider in list_kernel_providers(each.whole)):
            left = _nodes_left_to_cpu(operators, each.whole, provider)
            if left:
                yield _create_fallback(operators, each, provider, left)


def _nodes_left_to_cpu(operators: OperatorPredictions, whole: Implementation, provider: str) -> list[TypedNode]:
    alone = SingleProviderImplementation(whole, provider)
    nodes = operators.prepared.all_nodes()
    return [node for node in nodes if not node.calls and not node.inner and alone.leaves(node.operation)]


def _create_fallback(
    operators: OperatorPredictions, known: KnownRuntime, provider: str, left: Sequence[TypedNode]
) -> ProviderFallback:
    return ProviderFallback(
        model=operators.model.path,
        place=operators.place(left[0]),
        runtime=known.name,
        provider=provider,
        runs_on=CPU_PROVIDER,
        operators=dict(sorted(Counter(node.operation.label for node in left).items())),
        nodes=operators.nodes(left),
    )
