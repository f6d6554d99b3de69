"""What the file and support stages found, as a matrix: a verdict for each model and release, and its reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.findings import Judged, Level, Stage
from onnxgate.judge import weigh
from onnxgate.matrix import NO_KERNELS, Entry, MatrixModel, Predicted, Reason
from onnxgate.plan import PlannedModel, PlannedRuntime
from onnxgate.request import Outcome

REFUSED_FILES = frozenset({"not-a-model", "lfs-pointer", "external-data-missing"})
"""Rules of the file stage by which no release loads a file."""
DOUBTFUL_FILES = frozenset({"invalid-model", "external-data-corrupt", "external-data-escapes"})
"""Rules by which it depends on the release, and nobody predicts on which."""


def predicted(outcome: Outcome) -> tuple[MatrixModel, ...]:
    """Every model with every release that it was judged on, in their order."""
    judged = outcome.gathered.judged
    causes = {id(each.judged) for each in weigh(judged)}
    by_model: dict[str, list[Judged]] = {}
    for each in judged:
        by_model.setdefault(each.hit.model, []).append(each)
    return tuple(
        MatrixModel(
            path=planned.path, runtimes=tuple(_entries(outcome, planned, by_model.get(planned.path, ()), causes))
        )
        for planned in outcome.planned
    )


def _entries(outcome: Outcome, planned: PlannedModel, judged: Sequence[Judged], causes: set[int]) -> Iterator[Entry]:
    errors = [each for each in judged if each.stage is Stage.FILE and each.level is Level.ERROR]
    refused = _reasons([each for each in errors if each.rule in REFUSED_FILES], causes)
    doubtful = (*_reasons([each for each in errors if each.rule in DOUBTFUL_FILES], causes), *_unread(outcome, planned))
    by_runtime: dict[str, list[Judged]] = {}
    for each in judged:
        if each.stage is Stage.SUPPORT:
            by_runtime.setdefault(each.hit.runtime, []).append(each)
    for runtime in planned.runtimes:
        said = by_runtime.get(runtime.name, [])
        reasons = refused or _reasons([each for each in said if each.level is Level.ERROR], causes)
        if reasons:
            yield Entry(runtime=runtime.name, predicted="refused", reasons=reasons)
        elif doubtful:
            yield Entry(runtime=runtime.name, predicted="unknown", reasons=doubtful)
        else:
            yield _by_prediction(outcome, planned.path, runtime, said)


def _reasons(judged: Sequence[Judged], causes: set[int]) -> tuple[Reason, ...]:
    """Each once; what only follows from something else is left out, where that is among them."""
    own = [each for each in judged if id(each) in causes]
    return _each_once(own or judged)


def _unread(outcome: Outcome, planned: PlannedModel) -> Iterator[Reason]:
    """Why nothing is known of a file that could not be opened."""
    for undone in outcome.gathered.undone:
        if undone.model == planned.path:
            yield Reason(rule="", node="", message=undone.reason)


def _by_prediction(outcome: Outcome, path: str, runtime: PlannedRuntime, judged: Sequence[Judged]) -> Entry:
    """There is a prediction only where the kernels are known."""
    verdict: Predicted = outcome.gathered.verdicts.get((path, runtime.name), "unknown")
    if verdict == "loads":
        return Entry(runtime=runtime.name, predicted="loads")
    return Entry(runtime=runtime.name, predicted=verdict, reasons=_each_once(judged) or (NO_KERNELS,))


def _each_once(judged: Sequence[Judged]) -> tuple[Reason, ...]:
    return tuple(dict.fromkeys(map(_reason, judged)))


def _reason(judged: Judged) -> Reason:
    hit = judged.hit
    return Reason(rule=judged.rule, node=hit.node, message=hit.message, detail=hit.detail)
