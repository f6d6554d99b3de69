"""Ignore entries for all current findings, and for no later ones."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from onnxgate import rules
from onnxgate.core.findings import Level, Stage
from onnxgate.core.fingerprints import assign_fingerprints
from onnxgate.core.report import Finding
from onnxgate.core.text import pluralize
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.gate.results import resolution
from onnxgate.gate.results.ignore_matching import Ignores, find_stale_fingerprints, is_about_change
from onnxgate.model.reading.external_data import hash_content
from onnxgate.project.config.ignore_entries import IgnoreEdit, edit_ignores, escape_glob, render_entry
from onnxgate.project.config.schema import Ignore
from onnxgate.project.toml import Keys, decode, find_key_lines

REASON = "present when the gate was adopted"
CONTENT_BOUND_RULES = frozenset({"model-changed"})
"""Rules about one content of a model without a baseline: if it is the locked one."""
NON_IGNORABLE_RULES = {
    "lock-stale": "it says that the lock is not about what the config promises: run `onnxgate lock`",
    "ignore-expired": "somebody set that date: repair what the entry hides, or give it a new date and a reason",
    "ignore-unused": "the entry can be removed",
    "not-a-model": "nothing of such a file can be judged: repair it, or name it in `exclude`",
    "lfs-pointer": "it says what this checkout lacks, and not what is wrong with the model",
}
"""Why some rules cannot be accepted."""


@dataclass(frozen=True, slots=True)
class IgnoreUpdate:
    """Outcome under the new entries, the config with them, and remarks."""

    outcome: GateOutcome
    data: bytes
    remarks: tuple[str, ...]


def accept_findings(
    request: GateRequest, outcome: GateOutcome, data: bytes, until: datetime.date | None
) -> IgnoreUpdate:
    """
    Accept every finding of the outcome except notes, until no new one appears. `data` is the config.

    To accept a cause shows what follows from it, and to accept that a file is broken lets it be run.

    Raises:
        UsageError: the entries of the config cannot be edited as they are written there.
    """
    project = request.project
    plan = _IgnorePlan(project.config.ignore, request.ignores.today, until)
    while plan.accept(outcome):
        request = plan.under(request)
        outcome = pipeline.reapply_ignores(request, outcome)
    left = tuple(plan.left(outcome))
    plan.drop(_find_stale_fingerprints(request, outcome))
    edit = plan.edit
    if edit.listed or edit.added:
        data = edit_ignores(data, project.prefix, edit, project.path.name)
        outcome = _refresh_lines(plan.under(request), outcome, find_key_lines(decode(data)))
    return IgnoreUpdate(outcome, data, (plan.said(project.path.name), *left))


def _refresh_lines(request: GateRequest, outcome: GateOutcome, lines: Mapping[Keys, int]) -> GateOutcome:
    """Return the outcome with the line numbers of the new config for findings that are shown there."""
    project = request.project
    request = replace(request, checkout=replace(request.checkout, project=replace(project, lines=lines)))
    moved = any(lines.get(keys) != line for keys, line in project.lines.items() if "ignore" not in keys)
    if moved and any(rule_hit.hit.place.path == project.path.name for rule_hit in outcome.gathered.judged):
        return pipeline.run(request)
    return pipeline.reapply_ignores(request, outcome)


def _find_stale_fingerprints(request: GateRequest, outcome: GateOutcome) -> dict[int, frozenset[str]]:
    """Return by the number of each entry the fingerprints in it that no finding has any more."""
    ignores = resolution.select_ignores(request, outcome.gathered)
    scope = resolution.determine_scope(request, outcome.gathered, outcome.blocked, ignores)
    return find_stale_fingerprints(
        ignores,
        scope,
        {assign_fingerprint.fingerprint for assign_fingerprint in assign_fingerprints(outcome.gathered.judged)},
    )


@dataclass(slots=True)
class _IgnorePlan:
    """The existing entries with their new fingerprints, and the added ones."""

    entries: tuple[Ignore, ...]
    today: datetime.date
    until: datetime.date | None
    listed: dict[int, set[str]] = field(default_factory=dict)
    added: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)  # model, rule, content
    accepted: int = 0
    dropped: int = 0
    _own: dict[Ignore, int] = field(default_factory=dict)  # the added ones, without fingerprints

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            if entry.fingerprints and self._holds(entry):
                self._own[msgspec.structs.replace(entry, fingerprints=())] = index

    @property
    def edit(self) -> IgnoreEdit:
        """Return all entries; one whose list did not change is not touched."""
        changed = {
            index: tuple(sorted(marks))
            for index, marks in self.listed.items()
            if marks != set(self.entries[index].fingerprints or ())
        }
        return IgnoreEdit(changed, [self._entry(*key, marks) for key, marks in sorted(self.added.items()) if marks])

    def under(self, request: GateRequest) -> GateRequest:
        """Return the request with the new entries."""
        config = msgspec.structs.replace(request.project.config, ignore=self.edit.apply(self.entries))
        project = replace(request.project, config=config)
        return replace(request, checkout=replace(request.checkout, project=project))

    def accept(self, outcome: GateOutcome) -> bool:
        """Add the findings of the outcome; return False if all that can be accepted is."""
        before = self.accepted
        contents = _content_digests(outcome)
        for finding in self._open(outcome):
            marks = self._marks(finding, contents)
            self.accepted += finding.fingerprint not in marks
            marks.add(finding.fingerprint)
        return self.accepted > before

    def _open(self, outcome: GateOutcome) -> Iterator[Finding]:
        """Yield the findings to accept, without those of an expired entry, which is not prolonged."""
        over = Ignores(
            [entry for entry in self.entries if not self._holds(entry)], self.today, _content_digests(outcome)
        )
        for finding in outcome.findings:
            ended = any(True for _ in over.matching(finding.rule, finding.model, finding.fingerprint))
            if _is_blocking(finding) and not _refusal_reason(finding) and not ended:
                yield finding

    def left(self, outcome: GateOutcome) -> Iterator[str]:
        """Yield the current findings that were not accepted, and why."""
        closing = [finding for finding in outcome.findings if _is_blocking(finding)]
        never = [(finding.rule, why) for finding in closing if (why := _refusal_reason(finding))]
        for rule, why in sorted(set(never)):
            yield f"`{rule}` is not accepted by `--write-ignores`: {why}"
        if ended := len(closing) - len(never):
            yield f"{pluralize(ended, 'finding')} not accepted again: the ignore of each has ended"

    def drop(self, stale: Mapping[int, frozenset[str]]) -> None:
        """Remove findings that are gone from the new entries."""
        kept_indices = [index for index in range(len(self.entries)) if self.listed.get(index, True)]
        for place, marks in stale.items():
            if place < len(kept_indices) and marks:
                index = kept_indices[place]
                left = self.listed.setdefault(index, set(self.entries[index].fingerprints or ()))
                self.dropped += len(left & marks)
                left -= marks

    def said(self, name: str) -> str:
        """Describe the changes."""
        done = []
        if self.accepted:
            done.append(f"accepts {pluralize(self.accepted, 'finding')} that {_are(self.accepted)} there now")
        if self.dropped:
            done.append(f"no longer lists {pluralize(self.dropped, 'finding')} that {_are(self.dropped)} gone")
        if not done:
            return f"`{name}` is as it was: there is nothing to accept, and nothing that it lists is gone"
        return f"`{name}` {', and '.join(done)}"

    def _marks(self, finding: Finding, contents: Mapping[str, str]) -> set[str]:
        """Return the fingerprints of the entry for a finding: an existing one that we wrote, or a new one."""
        wanted = self._entry(finding.model, finding.rule, _bound_content(finding, contents), ())
        index = self._own.get(wanted)
        if index is not None:
            return self.listed.setdefault(index, set(self.entries[index].fingerprints or ()))
        return self.added.setdefault((finding.model, finding.rule, wanted.sha256 or ""), set())

    def _entry(self, model: str, rule: str, content: str, marks: Iterable[str]) -> Ignore:
        return Ignore(
            rule=rule,
            model=escape_glob(model) if model else "**",
            reason=REASON,
            until=self.until,
            sha256=content or None,
            fingerprints=tuple(sorted(marks)),
        )

    def _holds(self, ignore: Ignore) -> bool:
        return ignore.until is None or ignore.until >= self.today


def _is_blocking(finding: Finding) -> bool:
    return finding.level != Level.NOTE.value and not finding.ignored


def _refusal_reason(finding: Finding) -> str:
    """Return why a finding cannot be accepted, "" if it can be."""
    is_pointer = finding.rule == "external-data-corrupt" and "git lfs pull" in finding.fix
    return NON_IGNORABLE_RULES.get("lfs-pointer" if is_pointer else finding.rule, "")


def _content_digests(outcome: GateOutcome) -> dict[str, str]:
    return {path: hash_content(facts) for path, facts in outcome.gathered.facts.items()}


def _bound_content(finding: Finding, contents: Mapping[str, str]) -> str:
    """Return the digest that an entry is limited to, "" for no limit."""
    of_one = finding.rule in CONTENT_BOUND_RULES or is_about_change(finding.rule)
    return contents.get(finding.model, "") if of_one else ""


def render_ignore_snippets(request: GateRequest, outcome: GateOutcome) -> dict[str, tuple[str, ...]]:
    """Return by fingerprint the lines to paste into the config; the reason is left to fill in."""
    contents, lines = _content_digests(outcome), {}
    for finding in outcome.findings:
        rule = rules.by_id.get(finding.rule)
        if rule is not None and rule.stage is not Stage.GATE:
            ignore = Ignore(
                rule=finding.rule,
                model=escape_glob(finding.model) if finding.model else "**",
                reason="",
                sha256=_bound_content(finding, contents) or None,
                fingerprints=(finding.fingerprint,),
            )
            lines[finding.fingerprint] = tuple(render_entry(ignore, request.project.prefix).split("\n"))
    return lines


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
