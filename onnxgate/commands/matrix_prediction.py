"""Predict on which releases models load."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.findings import Level, RuleHit, Stage
from onnxgate.core.matrix import NO_KERNELS, UNCERTAIN_RULES, Entry, MatrixModel, Predicted, Reason
from onnxgate.gate.request import GateOutcome
from onnxgate.gate.results.resolution import resolve_hits
from onnxgate.project.plan import PlannedModel

REFUSING_RULES = frozenset({"not-a-model", "external-data-missing", "external-data-corrupt"})
"""Rules whose findings mean that no release loads the model."""
VERSION_RULES = ("ir-version-too-new", "opset-too-new", "opset-experimental")
"""Rules about version fields of a model. Their findings come first in the list of reasons why it does not load."""


def predict_matrix(outcome: GateOutcome) -> tuple[MatrixModel, ...]:
    """Return all models with the prediction for each release."""
    hits = outcome.gathered.judged
    by_model = _group_by_model(hits)
    causes = _group_by_model([resolved.judged for resolved in resolve_hits(hits)])
    undone: dict[str, dict[str, None]] = {}  # model -> reasons
    for it in outcome.gathered.undone:
        undone.setdefault(it.model, {})[it.reason] = None
    return tuple(
        MatrixModel(
            path=planned.path,
            runtimes=_predict_model(
                outcome,
                planned,
                by_model.get(planned.path, ()),
                causes.get(planned.path, ()),
                tuple(undone.get(planned.path, ())),
            ),
        )
        for planned in outcome.planned
    )


def _group_by_model(hits: Iterable[RuleHit]) -> dict[str, list[RuleHit]]:
    by_model: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        by_model.setdefault(rule_hit.hit.model, []).append(rule_hit)
    return by_model


def _predict_model(
    outcome: GateOutcome,
    planned: PlannedModel,
    hits: Sequence[RuleHit],
    causes: Sequence[RuleHit],
    undone: Sequence[str],
) -> tuple[Entry, ...]:
    """Return the prediction for each release; an error about this model makes all of them unknown.

    `causes` are the hits that do not follow from others, and `undone` the reasons why the model could not be checked.
    """
    with ErrorBoundary() as caught:
        return tuple(_predict_entries(outcome, planned, hits, causes, undone))
    reason = Reason(rule="", node="", message=caught.text)
    return tuple(Entry(runtime=it.name, predicted="unknown", reasons=(reason,)) for it in planned.runtimes)


def _predict_entries(
    outcome: GateOutcome,
    planned: PlannedModel,
    hits: Sequence[RuleHit],
    causes: Sequence[RuleHit],
    undone: Sequence[str],
) -> Iterator[Entry]:
    refused = _unique_reasons(_list_file_errors(causes, REFUSING_RULES) or _list_file_errors(hits, REFUSING_RULES))
    own_faults = _list_file_errors(causes, UNCERTAIN_RULES)
    faults = own_faults or _list_file_errors(hits, UNCERTAIN_RULES)
    faults.sort(key=lambda it: UNCERTAIN_RULES.index(it.rule))
    doubtful = (*_unique_reasons(faults), *(Reason(rule="", node="", message=reason) for reason in undone))
    # Faults that follow from findings of the support stage are not the reason on releases without kernel data.
    is_reason = bool(undone or own_faults)
    by_runtime, causes_by_runtime = _group_by_runtime(hits), _group_by_runtime(causes)
    known: dict[tuple[int, ...], tuple[Reason, ...]] = {}  # reasons by hits, since many releases have the same
    for runtime in planned.runtimes:
        runtime_hits = by_runtime.get(runtime.name, ())
        errors = _list_errors(causes_by_runtime.get(runtime.name, ())) or _list_errors(runtime_hits)
        key = tuple(map(id, errors))
        if key not in known:
            known[key] = refused or _unique_reasons(errors)
        reasons = known[key]
        verdict: Predicted = outcome.gathered.support.verdicts.get((planned.path, runtime.name), "unknown")
        if reasons:
            yield Entry(runtime=runtime.name, predicted="refused", reasons=reasons)
        elif doubtful and (is_reason or verdict == "loads"):
            yield Entry(runtime=runtime.name, predicted="unknown", reasons=doubtful)
        else:
            reasons = () if verdict == "loads" else _unique_reasons(runtime_hits) or (NO_KERNELS,)
            yield Entry(runtime=runtime.name, predicted=verdict, reasons=reasons)


def _list_file_errors(hits: Iterable[RuleHit], rules: Collection[str]) -> list[RuleHit]:
    return [it for it in hits if it.stage is Stage.FILE and it.level is Level.ERROR and it.rule in rules]


def _list_errors(hits: Iterable[RuleHit]) -> list[RuleHit]:
    return [it for it in hits if it.level is Level.ERROR]


def _group_by_runtime(hits: Iterable[RuleHit]) -> dict[str, list[RuleHit]]:
    """Return the hits of the support stage by runtime."""
    by_runtime: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        for runtime in rule_hit.hit.runtimes if rule_hit.stage is Stage.SUPPORT else ():
            by_runtime.setdefault(runtime, []).append(rule_hit)
    return by_runtime


def _unique_reasons(hits: Iterable[RuleHit]) -> tuple[Reason, ...]:
    """Return the distinct reasons why a model does not load, those about version fields first."""
    reasons = (
        Reason(
            rule=rule_hit.rule,
            node=rule_hit.hit.node,
            message=rule_hit.hit.message,
            detail=rule_hit.hit.on.detail if rule_hit.hit.on else "",
            works_since=rule_hit.hit.on.works_since if rule_hit.hit.on else "",
        )
        for rule_hit in sorted(hits, key=_reason_rank)
    )
    return tuple(dict.fromkeys(reasons))


def _reason_rank(rule_hit: RuleHit) -> int:
    return VERSION_RULES.index(rule_hit.rule) if rule_hit.rule in VERSION_RULES else len(VERSION_RULES)
