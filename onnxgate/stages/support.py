"""The support stage: what each locked runtime implements, matched with what the models ask for. Nothing is executed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from onnxgate.config.project import SelectedModel
from onnxgate.evidence.support import ExperimentalOperation, ModelOnRuntime, RuntimeSupport, Unpredicted
from onnxgate.findings import Place
from onnxgate.lock.types import LockedRuntime
from onnxgate.model.facts import ModelFacts
from onnxgate.model.structure import UnreadableModel, read_lightly
from onnxgate.plan import PlannedRuntime
from onnxgate.stages.operators import Model, Operators
from onnxgate.stages.supported import Known, known_support
from onnxgate.stages.surroundings import external_data, fallbacks
from onnxgate.support import limits
from onnxgate.support.operations import Prediction, Prepared
from onnxgate.support.predict import predict
from onnxgate.support.typing import prepare

if TYPE_CHECKING:
    from onnxgate.support.harvested import Kept

NOTHING_KEPT: Mapping[str, Kept] = {}
UPDATE = "update onnxgate, or run the runtime stage: it keeps what the build implements for the next static check"
JUDGED = {"schemas": "kernels are not predicted", "stamps": "operators are not predicted"}
"""What is said to be missing, by what is judged."""
RUN = "run the runtime stage: it loads the model there"
KEEP = "run the runtime stage: it keeps what the build implements for the next static check"


@dataclass(frozen=True, slots=True)
class Predicted:
    """What is said of one model before anything runs."""

    subjects: tuple[object, ...] = ()  # what the rules judge
    predictions: Mapping[str, Prediction] = field(default_factory=dict)  # by runtime; one that is not there has none


def gather_model(
    model: SelectedModel,
    facts: ModelFacts,
    place: Place,
    project_root: Path,
    folder: Path,
    runtimes: Sequence[PlannedRuntime],
    kept: Mapping[str, Kept] = NOTHING_KEPT,
) -> Predicted:
    """The model beside each of its runtimes that there is data of: its stamps, and what its operators ask for.

    `kept` is what was harvested of runtimes that the shipped table does not know, by their names.
    """
    known = [support for runtime in runtimes if (support := known_support(runtime, kept)) is not None]
    if not known:
        return Predicted()
    try:
        proto = read_lightly(model.absolute)
    except (OSError, UnreadableModel):
        return Predicted((*_stamps(facts, place, known), _unread(facts.path, place)), _by_stamps(facts, known))
    where = Model(model, place, project_root, folder)
    operators = Operators(where, prepare(proto), known, everywhere=len(known) == len(runtimes))
    found, predictions = operators.gather()
    stamps = _stamps(facts, place, known, {each.name: operators.experimental(each) for each in known})
    return Predicted((*stamps, *found, *external_data(where, proto, known), *fallbacks(operators)), predictions)


def _by_stamps(facts: ModelFacts, known: Sequence[Known]) -> dict[str, Prediction]:
    """Of a model that is not here, as far as the lock knows it: only that it is refused can be told."""
    prepared = Prepared(facts.ir_version, facts.needed_opsets, ())
    predictions = {each.name: predict(prepared, None, each.limits) for each in known}
    return {name: prediction for name, prediction in predictions.items() if prediction.verdict == "refused"}


def _unread(path: str, place: Place) -> Unpredicted:
    what = "its operators are not predicted: its content is not here"
    return Unpredicted(place, what, model=path, follows_from=("lfs-pointer",))


def _stamps(
    facts: ModelFacts,
    place: Place,
    known: Sequence[Known],
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
            ir_works_since=limits.ir_works_since(facts.ir_version),
            opset_works_since={d: limits.opset_works_since(d, v) for d, v in facts.needed_opsets.items()},
            experimental=(experimental or {}).get(each.name, ()),
        )


def _common_opsets(known: Sequence[Known]) -> dict[str, int]:
    opsets = [each.limits.opsets for each in known]
    domains = {domain for each in opsets for domain in each}
    return {domain: min(each[domain] for each in opsets if domain in each) for domain in domains}


def gather_unpredicted(
    runtimes: Sequence[PlannedRuntime], place: Place, kept: Mapping[str, Kept] = NOTHING_KEPT
) -> Iterator[Unpredicted]:
    """The runtimes of which nothing is known, or their limits alone."""
    for runtime in runtimes:
        support = known_support(runtime, kept)
        if support is None:
            yield _nothing(runtime.runtime, place)
        elif support.reason:
            fix = KEEP if runtime.runtime.environment and runtime.name not in kept else RUN
            yield Unpredicted(place, JUDGED[support.judged], support.reason, runtime.name, fix=fix)


def _nothing(runtime: LockedRuntime, place: Place) -> Unpredicted:
    if runtime.engine == limits.table().engine:
        reason = "is not in the support data of this onnxgate"
        return Unpredicted(place, "nothing is predicted", reason, runtime.name, fix=UPDATE)
    reason = "has no support data"
    return Unpredicted(place, "nothing is predicted", reason, runtime.name, fix=RUN)
