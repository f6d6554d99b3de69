"""Advice about models without a config: `onnxgate fix` needs a target, and there is no config to edit."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from onnxgate.core.advice import Advice, render_advice_without_config
from onnxgate.core.findings import Stage, assign_fingerprints
from onnxgate.core.report import Finding
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.model.facts import ModelFacts
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.types import Lock, LockedTarget
from onnxgate.support import limits

EVALUATED_DOMAINS = frozenset({"", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training"})
"""Domains whose operators the reference evaluator of onnx implements; "" for the default domain.

Source: onnx 1.23, reference_evaluator.py.
"""
MOVABLE_DATA_RULES = frozenset({"external-data-escapes", "external-data-refused"})
"""Rules about external data that `onnxgate fix` can move into the model, if the data is in the repository."""


def advise_without_config(
    findings: Sequence[Finding], outcome: GateOutcome, request: GateRequest, target: str | None
) -> list[Finding]:
    """Return the findings with fixes that work without a config.

    Without the requirement `target`, the fixes of errors are those for the newest release, because no other release is
    required.
    """
    advice = _collect_advice(outcome)
    if target is None:
        advice |= _collect_newest_advice(findings, request)
    table, facts = limits.load_limit_table(), outcome.gathered.facts
    models = {model.path: model for model in request.models}
    required = target or f"{table.engine}=={list(table.releases)[-1]}"

    @functools.cache
    def is_fixable(rule: str, model: str) -> bool:
        return model in facts and _is_fixable(rule, facts[model], models[model], request.project)

    def advise(finding: Finding) -> Finding:
        if not finding.fix or finding.fingerprint not in advice:
            return finding
        is_repairable = is_fixable(finding.rule, finding.model)
        fix = render_advice_without_config(advice[finding.fingerprint], required, is_fixable=is_repairable)
        return msgspec.structs.replace(finding, fix=fix)

    return [advise(finding) for finding in findings]


def _collect_advice(outcome: GateOutcome) -> dict[str, Advice]:
    """Return the advice of each finding by fingerprint."""
    return {it.fingerprint: it.hit.fix for it in assign_fingerprints(outcome.gathered.judged)}


def _collect_newest_advice(findings: Sequence[Finding], request: GateRequest) -> Mapping[str, Advice]:
    """Return the advice of the support stage if only the newest release is required, for models with errors."""
    failing = {it.model for it in findings if it.stage == Stage.SUPPORT.value and it.level == "error"}
    if not failing:
        return {}
    checkout = request.checkout
    (target,) = checkout.lock.targets
    newest = checkout.lock.targets[target].runtimes[-1]
    checkout = msgspec.structs.replace(
        checkout,
        models=tuple(model for model in checkout.models if model.path in failing),
        lock=Lock(targets={target: LockedTarget(policy="", runtimes=(newest,))}),
    )
    static = msgspec.structs.replace(request.static, report_reuse=None)
    outcome = pipeline.run(msgspec.structs.replace(request, checkout=checkout, static=static))
    judged = [it for it in assign_fingerprints(outcome.gathered.judged) if it.stage is Stage.SUPPORT]
    return {it.fingerprint: it.hit.fix for it in judged}


def _is_fixable(rule: str, facts: ModelFacts, model: SelectedModel, project: Project) -> bool:
    """Return whether `onnxgate fix` may be able to repair a finding about a model without a config.

    Without a config, it verifies repairs only with the reference evaluator of onnx, which does not implement operators
    of other domains. Data outside the repository or, if there is none, the current folder is not moved into the model.
    """
    operators = facts.operators.keys() - set(facts.functions)
    if any(name.rpartition(".")[0] not in EVALUATED_DOMAINS for name in operators):
        return False
    if rule not in MOVABLE_DATA_RULES:
        return True
    if any("\0" in location for location in facts.unread):  # not a path
        return False
    root = project.root if model.absolute.is_relative_to(project.root) else model.absolute.parent
    places = (os.path.realpath(model.absolute.parent / location) for location in facts.unread)
    return all(Path(place).is_relative_to(os.path.realpath(root)) for place in places)
