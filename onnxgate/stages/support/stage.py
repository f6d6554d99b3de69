"""Support stage: match the operations of models with the support data of each required runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from onnxgate.core.findings import Place
from onnxgate.evidence.support import (
    ALL_REQUIRED,
    ExperimentalOperation,
    ModelOnRuntime,
    PredictionGap,
    RuntimeSupport,
)
from onnxgate.model.facts import ModelFacts
from onnxgate.model.validity import CheckedModel, find_missing_operators, is_shape_contradiction, supports_opset
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.support.external_data import find_doubts, find_refused_external_data, group_external_data
from onnxgate.stages.support.operator_predictions import LocatedModel, OperatorPredictions
from onnxgate.stages.support.runtime_data import NO_HARVESTS, RuntimeSupportData, look_up_runtime
from onnxgate.support import limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import Prediction, TypedModel
from onnxgate.support.matching.type_inference import infer_model_types

if TYPE_CHECKING:
    from onnxgate.support.harvest import BuildSupport


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
    typed, external = (
        infer_model_types(content.view, content.inferred),
        group_external_data(model.selected.absolute, content.view),
    )
    required = _describe_required(runtimes)
    operator_predictions = OperatorPredictions(
        model,
        typed,
        supports,
        required,
        for_all_runtimes=len(supports) == len(runtimes),
        doubts=find_doubts(external, supports, has_wrong_shape=is_shape_contradiction(content.fault)),
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
            *find_refused_external_data(model.path, model.place, content.view, external, supports),
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
