"""Compare predictions with real loads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from campaigns.conformance.load_outcome import KERNEL_IS_THERE, Real, real
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import NodeProblem, Prediction, TypedModel
from onnxgate.support.operators import get_implementation

Kind = Literal["refused but loads", "loads but refused", "unknown"]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A model whose prediction differs from its real load."""

    corpus: str
    optimization: str
    release: str
    name: str
    kind: Kind
    predicted: str  # reason of the predicted refusal, or why it is unknown
    text: str

    def line(self) -> str:
        """Return the disagreement as one line."""
        predicted, really = self.predicted or "loads", " ".join(self.text.split()) or "loads"
        return f"{self.release} {self.name}: {self.kind}; predicted: {predicted}; observed: {really}"


@dataclass(slots=True)
class Comparison:
    """Results for one corpus on one release, at one optimization level."""

    corpus: str
    optimization: str
    release: str
    engine: str = "onnxruntime"
    right: Counter[str] = field(default_factory=Counter)  # by outcome
    excluded: dict[str, str] = field(default_factory=dict)  # name -> reason
    disagreements: list[Disagreement] = field(default_factory=list)

    @property
    def counted(self) -> int:
        """Number of compared models."""
        return self.right.total() + len(self.disagreements)

    def number(self, kind: Kind) -> int:
        """Return the number of disagreements of a kind."""
        return sum(disagreement.kind == kind for disagreement in self.disagreements)


def compare(comparison: Comparison, prepared: Iterable[tuple[str, TypedModel]], texts: Mapping[str, str]) -> Comparison:
    """Return the comparison of all models."""
    implemented = get_implementation(comparison.release, comparison.engine)
    limits = get_limits(comparison.release, comparison.engine)
    assert implemented is not None
    assert limits is not None
    for name, each in prepared:
        prediction = predict(each, implemented, limits)
        if comparison.optimization == "disabled" and _is_about_fusion(prediction):
            comparison.excluded[name] = "the release refuses a node that only its optimizer creates"
            continue
        _judge(comparison, name, prediction, real(comparison.corpus, name, texts[name]))
    return comparison


def _is_about_fusion(prediction: Prediction) -> bool:
    traits = [found.node.operation.traits for found in prediction.found]
    return any(each.fusion or each.float8_fusion for each in traits)


def _judge(comparison: Comparison, name: str, prediction: Prediction, observed: Real) -> None:
    kind = _kind(prediction, observed)
    if kind is not None:
        where = (comparison.corpus, comparison.optimization, comparison.release)
        comparison.disagreements.append(Disagreement(*where, name, kind, why(prediction), observed.text))
    elif observed.outcome == "excluded":
        comparison.excluded[name] = observed.reason
    else:
        comparison.right[observed.outcome] += 1


def _kind(prediction: Prediction, observed: Real) -> Kind | None:
    """Return how a prediction differs from the real load; None if they agree."""
    if observed.outcome == "excluded":
        return "refused but loads" if observed.reason == KERNEL_IS_THERE and _lacks_a_kernel(prediction) else None
    if prediction.verdict == observed.outcome:
        return None
    if prediction.verdict == "unknown":
        return "unknown"
    return "refused but loads" if prediction.verdict == "refused" else "loads but refused"


def _lacks_a_kernel(prediction: Prediction) -> bool:
    return any(found.miss and found.miss.rule != "attribute-unsupported" for found in prediction.found)


def why(prediction: Prediction) -> str:
    """Return the first reason of a prediction; "" if the model is predicted to load."""
    if prediction.ir_too_new:
        return "IR version too new"
    if prediction.refused_interface:
        return f"{prediction.refused_interface[0].kind} of type {prediction.refused_interface[0].type}"
    if prediction.opsets_too_new:
        return f"opset too new in {', '.join(prediction.opsets_too_new)}"
    ordered = sorted(prediction.found, key=lambda each: each.miss is None)
    return next(map(_reason, ordered), prediction.unknown_reason)


def _reason(actual: NodeProblem) -> str:
    return f"{actual.miss.rule}: {actual.miss.problem}" if actual.miss else actual.unknown
