"""Predict on which releases models load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.bug_reports import ErrorBoundary
from onnxgate.core.findings import Level, RuleHit, Stage, assign_fingerprints
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
    hits = assign_fingerprints(outcome.gathered.judged)  # first, because `resolve_hits` would copy hits without one
    causes = {id(resolve_hit.judged) for resolve_hit in resolve_hits(hits)}
    by_model: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        by_model.setdefault(rule_hit.hit.model, []).append(rule_hit)
    return tuple(
        MatrixModel(
            path=planned.path,
            runtimes=_predict_model(outcome, planned, by_model.get(planned.path, ()), causes),
        )
        for planned in outcome.planned
    )


def _predict_model(
    outcome: GateOutcome, planned: PlannedModel, hits: Sequence[RuleHit], causes: set[int]
) -> tuple[Entry, ...]:
    """Return the prediction for each release; an error about this model makes all of them unknown."""
    with ErrorBoundary() as caught:
        return tuple(_predict_entries(outcome, planned, hits, causes))
    reason = Reason(rule="", node="", message=caught.text)
    return tuple(Entry(runtime=it.name, predicted="unknown", reasons=(reason,)) for it in planned.runtimes)


def _predict_entries(
    outcome: GateOutcome, planned: PlannedModel, hits: Sequence[RuleHit], causes: set[int]
) -> Iterator[Entry]:
    errors = [it for it in hits if it.stage is Stage.FILE and it.level is Level.ERROR]
    refused = _select_reasons(
        [it for it in errors if it.rule in REFUSING_RULES],
        causes,
    )
    faults = [error for rule in UNCERTAIN_RULES for error in errors if error.rule == rule]
    unread = dict.fromkeys(it.reason for it in outcome.gathered.undone if it.model == planned.path)
    doubtful = (*_select_reasons(faults, causes), *(Reason(rule="", node="", message=reason) for reason in unread))
    # Faults that follow from findings of the support stage are not the reason on releases without kernel data.
    is_reason = bool(unread) or any(id(fault) in causes for fault in faults)
    by_runtime: dict[str, list[RuleHit]] = {}
    for rule_hit in hits:
        if rule_hit.stage is Stage.SUPPORT:
            by_runtime.setdefault(rule_hit.hit.runtime, []).append(rule_hit)
    for runtime in planned.runtimes:
        runtime_hits = by_runtime.get(runtime.name, [])
        reasons = refused or _select_reasons(
            [rule_hit for rule_hit in runtime_hits if rule_hit.level is Level.ERROR], causes
        )
        verdict: Predicted = outcome.gathered.support.verdicts.get((planned.path, runtime.name), "unknown")
        if reasons:
            yield Entry(runtime=runtime.name, predicted="refused", reasons=reasons)
        elif doubtful and (is_reason or verdict == "loads"):
            yield Entry(runtime=runtime.name, predicted="unknown", reasons=doubtful)
        else:
            reasons = () if verdict == "loads" else _unique_reasons(runtime_hits) or (NO_KERNELS,)
            yield Entry(runtime=runtime.name, predicted=verdict, reasons=reasons)


def _select_reasons(hits: Sequence[RuleHit], causes: set[int]) -> tuple[Reason, ...]:
    """Return the distinct reasons why a model does not load. Hits that only follow from others are skipped."""
    return _unique_reasons([rule_hit for rule_hit in hits if id(rule_hit) in causes] or hits)


def _unique_reasons(hits: Sequence[RuleHit]) -> tuple[Reason, ...]:
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
