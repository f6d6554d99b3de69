"""What came of each `[[ignore]]` entry of the config: what it met, and whether there is anything left for it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from onnxgate import rules
from onnxgate.config.project import Project
from onnxgate.config.types import Ignore
from onnxgate.evidence.ignores import IgnoreUse
from onnxgate.findings import Stage, Undone
from onnxgate.ignores import Ignores, matches_model

DYNAMIC = frozenset({Stage.RUNTIME, Stage.PARITY, Stage.EXPORT, Stage.BUDGET})
AFTER_RUNS = frozenset({Stage.PARITY, Stage.BUDGET})
EVERY = ""
"""In place of a model: something about all of them."""


@dataclass(slots=True)
class Scope:
    """What was judged: of which models, by which stages, and of which of them a stage did not learn everything."""

    project: Project
    models: frozenset[str]
    stages: frozenset[Stage]
    contents: Mapping[str, str]  # SHA-256 of each model's content, where that is known
    held_to_baseline: bool
    unknown: dict[Stage, set[str]] = field(default_factory=dict)

    def leave_open(self, stages: Iterable[Stage], models: Iterable[str]) -> None:
        """Nothing can be concluded there from what was not found."""
        for stage in stages:
            self.unknown.setdefault(stage, set()).update(models)

    def leave_undone(self, undone: Iterable[Undone]) -> None:
        """Likewise for what could not be done, and for what builds on it."""
        for each in undone:
            after = AFTER_RUNS if each.stage is Stage.RUNTIME else frozenset()
            self.leave_open({each.stage, *after}, [each.model])

    def covers(self, rule_id: str, models: Collection[str]) -> bool:
        """Whether the rule could find what there is to find in these models."""
        rule = rules.by_id.get(rule_id)
        if rule is None or rule.stage not in self.stages or not self.models.issuperset(models):
            return False
        if is_about_change(rule_id) and not self.held_to_baseline:
            return False
        return self.unknown.get(rule.stage, set()).isdisjoint({EVERY, *models})


def is_about_change(rule_id: str) -> bool:
    """Whether the rule is about what a model was at its baseline."""
    rule = rules.by_id.get(rule_id)
    return rule is not None and rule.subject.__name__ == "ModelChange"


def uses(ignores: Ignores, scope: Scope, met: Iterable[Collection[str]], present: Collection[str]) -> list[IgnoreUse]:
    """What came of each entry; `present` are the fingerprints of all that was found, also of what another one says."""
    return [
        _use(index, entry, ignores.expired(index), scope, present if entry.fingerprints else fingerprints)
        for index, (entry, fingerprints) in enumerate(zip(ignores.entries, met, strict=True))
    ]


def decided(uses: Iterable[IgnoreUse], others: Collection[str]) -> list[IgnoreUse]:
    """Those that concern none of the models that are judged elsewhere."""
    return [each for each in uses if not any(matches_model(each.model, path) for path in others)]


def gone(ignores: Ignores, scope: Scope, present: Collection[str]) -> dict[int, frozenset[str]]:
    """For each entry by its number the fingerprints that no finding has, where it is known that none has."""
    found, nothing = {}, [()] * len(ignores.entries)
    for index, (use, entry) in enumerate(zip(uses(ignores, scope, nothing, present), ignores.entries, strict=True)):
        if entry.fingerprints and use.done:
            found[index] = frozenset(entry.fingerprints)
        elif entry.fingerprints and use.stage_ran and use.gone:
            found[index] = frozenset(entry.fingerprints) - frozenset(present)
    return found


def _use(index: int, entry: Ignore, expired: bool, scope: Scope, found: Collection[str]) -> IgnoreUse:
    models = {model.path for model in scope.project.models() if matches_model(entry.model, model.path)}
    listed = entry.fingerprints or ()
    gone = sum(each not in found for each in listed)
    return IgnoreUse(
        place=scope.project.place("ignore", str(index)),
        rule=entry.rule,
        model=entry.model,
        until=entry.until.isoformat() if entry.until else "",
        expired=expired,
        used=gone < len(listed) if listed else bool(found),
        stage_ran=scope.covers(entry.rule, models),
        sha256=entry.sha256 or "",
        content_there=entry.sha256 is None or may_hold(entry.sha256.lower(), models, scope),
        listed=len(listed),
        gone=gone,
    )


def may_hold(sha256: str, models: Collection[str], scope: Scope) -> bool:
    """Whether a model has that content, or may have it for all that is known."""
    contents = {scope.contents.get(model, sha256) for model in models}
    return sha256 in contents
