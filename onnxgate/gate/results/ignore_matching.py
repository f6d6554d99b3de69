"""Match the `[[ignore]]` entries in the config with findings, and determine which entries are used."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from onnxgate import rules
from onnxgate.core.findings import DYNAMIC_STAGES, UNDECIDED_RULE, RuleHit, Stage
from onnxgate.core.report import Finding
from onnxgate.evidence.policy import IgnoreUse
from onnxgate.project.config import globs
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Ignore


class Ignores(msgspec.Struct):
    """`[[ignore]]` entries by rule and fingerprint. `contents` maps models to known SHA-256 hashes.

    `new` are the indexes of entries that accept more than the config of the baseline.
    """

    entries: Sequence[Ignore]
    today: datetime.date
    contents: Mapping[str, str] = msgspec.field(default_factory=dict)
    new: frozenset[int] = frozenset()
    _by_key: dict[tuple[str, str], list[int]] = msgspec.field(default_factory=dict)  # rule; fingerprint, "" for any

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            for fingerprint in ("",) if entry.fingerprints is None else entry.fingerprints:
                self._by_key.setdefault((entry.rule, fingerprint), []).append(index)

    def accepts(self, judged: RuleHit) -> bool:
        """Return whether an unexpired entry matches a hit."""
        matching = self.matching(judged.rule, judged.hit.model, judged.fingerprint)
        return any(not self.expired(index) for index in matching)

    def apply(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[frozenset[str]]]:
        """Add to each finding the reason from the first valid entry that matches it.

        Also return the fingerprints that each entry matches.

        Expired entries match findings but do not accept them. The same applies to entries with fingerprints if another
        entry has already accepted the finding.
        """
        met: list[set[str]] = [set() for _ in self.entries]
        applied = []
        for finding in findings:
            accepting = None
            for index in self.matching(finding.rule, finding.model, finding.fingerprint):
                entry, is_valid = self.entries[index], not self.expired(index)
                if not is_valid or accepting is None or entry.fingerprints is not None:
                    met[index].add(finding.fingerprint)
                if is_valid and accepting is None:
                    accepting = index
            applied.append(finding if accepting is None else self._mark(finding, accepting))
        return applied, [frozenset(fingerprints) for fingerprints in met]

    def _mark(self, finding: Finding, index: int) -> Finding:
        """Return the finding, accepted by an entry."""
        return msgspec.structs.replace(finding, ignored=self.entries[index].reason, newly_ignored=index in self.new)

    def expired(self, index: int) -> bool:
        """Return whether an entry has expired. It is still valid on its end date."""
        until = self.entries[index].until
        return until is not None and until < self.today

    def matching(self, rule: str, model: str, fingerprint: str) -> Iterator[int]:
        """Yield the entries that match a finding; a finding without a model is matched by its rule only."""
        plain, listing = self._by_key.get((rule, ""), ()), self._by_key.get((rule, fingerprint or "none"), ())
        for index in sorted((*plain, *listing)):
            entry = self.entries[index]
            if entry.sha256 is not None and (not model or self.contents.get(model) != entry.sha256.lower()):
                continue
            if not model or globs.matches(entry.model, model):
                yield index


DYNAMIC_RULE_STAGES = frozenset({Stage.RUNTIME, Stage.PARITY, Stage.EXPORT, Stage.BUDGET})
STAGES_AFTER_RUNS = frozenset({Stage.PARITY, Stage.BUDGET})
ALL_MODELS = ""
"""Model name of an incomplete check that applies to all models."""


class CheckScope(msgspec.Struct):
    """Models and stages of a check, with the models for which a stage is incomplete."""

    project: Project
    models: frozenset[str]
    stages: frozenset[Stage]
    contents: Mapping[str, str]  # known SHA-256 of each model's content
    held_to_baseline: bool
    unknown: dict[Stage, set[str]] = msgspec.field(default_factory=dict)
    unanswered: set[str] = msgspec.field(default_factory=set)  # models with undecided checks that no ignore can accept

    def leave_open(self, stages: Iterable[Stage], models: Iterable[str]) -> None:
        """Record that stages are incomplete for models. Their ignores may be needed even without a finding."""
        for stage in stages:
            self.unknown.setdefault(stage, set()).update(models)

    def covers(self, rule_id: str, models: Collection[str]) -> bool:
        """Return whether the rule was applied to these models with complete evidence."""
        rule = rules.by_id.get(rule_id)
        if rule_id == UNDECIDED_RULE:
            is_complete = self.stages.issuperset(DYNAMIC_STAGES) and self.models.issuperset(models)
            return is_complete and self.unanswered.isdisjoint({ALL_MODELS, *models})
        if rule is None or rule.stage not in self.stages or not self.models.issuperset(models):
            return False
        if is_about_change(rule_id) and not self.held_to_baseline:
            return False
        return self.unknown.get(rule.stage, set()).isdisjoint({ALL_MODELS, *models})


def is_about_change(rule_id: str) -> bool:
    """Return whether the rule compares a model with its baseline."""
    rule = rules.by_id.get(rule_id)
    return rule is not None and rule.subject.__name__ == "ModelChange"


def find_ignore_uses(
    ignores: Ignores, scope: CheckScope, met: Iterable[Collection[str]], present: Collection[str]
) -> list[IgnoreUse]:
    """Return how each entry is used. `present` are the fingerprints of all hits, including redundant hits."""
    uses = []
    for index, (entry, met_by_entry) in enumerate(zip(ignores.entries, met, strict=True)):
        models = {model.path for model in scope.project.models() if globs.matches(entry.model, model.path)}
        listed = entry.fingerprints or ()
        unmatched = sum(fingerprint not in present for fingerprint in listed)
        use = IgnoreUse(
            place=scope.project.place("ignore", str(index)),
            rule=entry.rule,
            model=entry.model,
            until=entry.until.isoformat() if entry.until else "",
            expired=ignores.expired(index),
            used=unmatched < len(listed) if listed else bool(met_by_entry),
            stage_ran=scope.covers(entry.rule, models),
            sha256=entry.sha256 or "",
            content_there=may_have_content(entry, models, scope),
            listed=len(listed),
            resolved=unmatched,
        )
        uses.append(use)
    return uses


def find_stale_fingerprints(ignores: Ignores, scope: CheckScope, present: Collection[str]) -> dict[int, frozenset[str]]:
    """Return, by entry index, the fingerprints that match no finding of a complete check."""
    stale, nothing = {}, [()] * len(ignores.entries)
    for index, (use, entry) in enumerate(
        zip(find_ignore_uses(ignores, scope, nothing, present), ignores.entries, strict=True)
    ):
        if entry.fingerprints and use.is_spent:
            stale[index] = frozenset(entry.fingerprints)
        elif entry.fingerprints and use.stage_ran and use.resolved:
            stale[index] = frozenset(entry.fingerprints) - frozenset(present)
    return stale


def may_have_content(entry: Ignore, models: Iterable[str], scope: CheckScope) -> bool:
    """Return whether a model has, or may have, the content to which an entry is limited."""
    return entry.sha256 is None or any(
        scope.contents.get(model, entry.sha256.lower()) == entry.sha256.lower() for model in models
    )
