"""Entries in the config that ignore all current findings, but not later ones."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from onnxgate import rules
from onnxgate.core.findings import UNDECIDED_RULE, Level, Stage, assign_fingerprints
from onnxgate.core.report import Finding
from onnxgate.core.text import pluralize
from onnxgate.gate import pipeline
from onnxgate.gate.request import GateOutcome, GateRequest
from onnxgate.gate.results import resolution
from onnxgate.gate.results.ignore_matching import Ignores, find_stale_fingerprints, is_about_change
from onnxgate.model.reading.external_data import hash_content
from onnxgate.project.config.ignore_entries import IgnoreEdit, edit_ignores, escape_glob, render_entry
from onnxgate.project.config.schema import Ignore
from onnxgate.project.toml import decode, find_key_lines

REASON = "present when onnxgate was adopted"
CONTENT_BOUND_RULES = frozenset({"model-changed"})
"""Rules whose findings are ignored only for the current content of the model, although they need no baseline."""
NON_IGNORABLE_RULES = {
    "policy-weakened": "restore the policy, or have the change approved",
    "policy-changed": "set its level in `[rules]`",
    "lock-stale": "run `onnxgate lock` to update the lock",
    "ignore-expired": "fix the finding, or set a new `until` date",
    "ignore-unused": "remove the entry",
    "not-a-model": "repair the file, or add it to `exclude`",
}
"""Rules that cannot be ignored, each with a hint on how to resolve its findings."""


@dataclass(frozen=True, slots=True)
class IgnoreUpdate:
    """The outcome of the check after ignoring its findings, the new content of the config, and remarks for the user."""

    outcome: GateOutcome
    data: bytes
    remarks: tuple[str, ...]


def accept_findings(
    request: GateRequest, outcome: GateOutcome, data: bytes, until: datetime.date | None
) -> IgnoreUpdate:
    """Ignore every finding of the outcome except notes, and every undecided check that an ignore may accept.

    `data` is the content of the config.

    Ignoring a finding may reveal findings that depend on it, so this is repeated until no new finding appears.

    Raises:
        UsageError: the entries in the config are in a form that cannot be edited.
    """
    project = request.project
    plan = _IgnorePlan(project.config.ignore, request.ignores.today, until)
    while plan.accept(outcome, resolution.list_acceptable_gaps(request, outcome.gathered)):
        request = plan.under(request)
        outcome = pipeline.reapply_ignores(request, outcome)
    refused = tuple(plan.refused(outcome))
    ignores = resolution.select_ignores(request, outcome.gathered)
    scope = resolution.determine_scope(request, outcome.gathered, outcome.blocked, ignores)
    gaps = resolution.list_acceptable_gaps(request, outcome.gathered)
    fingerprints = resolution.collect_fingerprints(assign_fingerprints(outcome.gathered.judged), gaps)
    plan.drop(find_stale_fingerprints(ignores, scope, fingerprints))
    edit = plan.edit
    if edit.listed or edit.added:
        data = edit_ignores(data, project.prefix, edit, project.path.name)
        lines = find_key_lines(decode(data))
        request = plan.under(request)
        checkout = msgspec.structs.replace(request.checkout, project=replace(request.project, lines=lines))
        request = msgspec.structs.replace(request, checkout=checkout)
        # Findings in the config are reported on its new lines.
        moved = any(lines.get(keys) != line for keys, line in project.lines.items() if "ignore" not in keys)
        if moved and any(rule_hit.hit.place.path == project.path.name for rule_hit in outcome.gathered.judged):
            outcome = pipeline.run(request)
        else:
            outcome = pipeline.reapply_ignores(request, outcome)
    return IgnoreUpdate(outcome, data, (plan.describe(project.path.name), *refused))


@dataclass(slots=True)
class _IgnorePlan:
    """Planned changes to the `[[ignore]]` entries: new fingerprints in existing entries, and added entries."""

    entries: tuple[Ignore, ...]
    today: datetime.date
    until: datetime.date | None
    listed: dict[int, set[str]] = field(default_factory=dict)
    added: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)  # model, rule, content
    accepted: int = 0  # findings and undecided checks
    undecided: int = 0
    dropped: int = 0
    _own: dict[Ignore, int] = field(default_factory=dict)  # the added ones, without fingerprints

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            if entry.fingerprints and self._is_current(entry):
                self._own[msgspec.structs.replace(entry, fingerprints=())] = index

    @property
    def edit(self) -> IgnoreEdit:
        """The planned changes: entries with new fingerprints, and entries to add."""
        changed = {
            index: tuple(sorted(marks))
            for index, marks in self.listed.items()
            if marks != set(self.entries[index].fingerprints or ())
        }
        added = [
            _create_entry(*key, marks, reason=REASON, until=self.until)
            for key, marks in sorted(self.added.items())
            if marks
        ]
        return IgnoreEdit(changed, added)

    def under(self, request: GateRequest) -> GateRequest:
        """Return the request with the planned `[[ignore]]` entries in its config."""
        config = msgspec.structs.replace(request.project.config, ignore=self.edit.apply(self.entries))
        project = replace(request.project, config=config)
        return msgspec.structs.replace(request, checkout=msgspec.structs.replace(request.checkout, project=project))

    def accept(self, outcome: GateOutcome, gaps: Iterable[Finding]) -> bool:
        """Add the findings of the outcome to the ignore entries. Return False if there was nothing to add.

        `gaps` are the undecided checks that an ignore may accept.
        """
        before, contents = self.accepted, _content_digests(outcome)
        expired = Ignores([entry for entry in self.entries if not self._is_current(entry)], self.today, contents)
        for finding in (*outcome.findings, *(gap for gap in gaps if gap.fingerprint not in outcome.accepted)):
            if not _is_blocking(finding) or _refusal_reason(finding):
                continue
            if not any(True for _ in expired.matching(finding.rule, finding.model, finding.fingerprint)):
                marks = self._marks(finding, contents)
                self.accepted += finding.fingerprint not in marks
                self.undecided += finding.fingerprint not in marks and finding.rule == UNDECIDED_RULE
                marks.add(finding.fingerprint)
        return self.accepted > before

    def refused(self, outcome: GateOutcome) -> Iterator[str]:
        """Yield a remark for each rule whose findings cannot be ignored, and one about expired ignores."""
        closing = [finding for finding in outcome.findings if _is_blocking(finding)]
        never = [(finding.rule, why) for finding in closing if (why := _refusal_reason(finding))]
        for rule, why in sorted(set(never)):
            yield f"`{rule}` cannot be ignored: {why}"
        if undone := {it.reason for it in outcome.undecided if not it.fingerprint}:
            yield f"{pluralize(len(undone), 'undecided check')} cannot be ignored: the model is not the cause"
        if ended := len(closing) - len(never):
            are = "is" if ended == 1 else "are"
            yield f"{pluralize(ended, 'finding')} {are} no longer ignored: the `until` date has passed"

    def drop(self, stale: Mapping[int, frozenset[str]]) -> None:
        """Remove fingerprints of findings that no longer occur from the ignore entries.

        `stale` contains these fingerprints, keyed by the index of their entry.
        """
        indices = [index for index in range(len(self.entries)) if self.listed.get(index, True)]
        for place, marks in stale.items():
            if place < len(indices) and marks:
                listed = self._listed_marks(indices[place])
                self.dropped += len(listed & marks)
                listed -= marks

    def describe(self, name: str) -> str:
        """Return a summary of the changes to the ignore entries."""
        counts = {"finding": self.accepted - self.undecided, "undecided check": self.undecided}
        kinds = [pluralize(count, what) for what, count in counts.items() if count]
        added = f"added {' and '.join(kinds)}" if kinds else ""
        dropped = f"removed {pluralize(self.dropped, 'resolved finding')}" if self.dropped else ""
        changes = " and ".join(filter(None, (added, dropped)))
        return f"ignores in `{name}`: {changes or 'no changes'}"

    def _listed_marks(self, index: int) -> set[str]:
        return self.listed.setdefault(index, set(self.entries[index].fingerprints or ()))

    def _marks(self, finding: Finding, contents: Mapping[str, str]) -> set[str]:
        """Return the fingerprints of the ignore entry for a finding, as a set that the caller may change.

        This is an entry that `--write-ignores` created earlier or, if there is none, a new entry.
        """
        content = _bound_content(finding, contents)
        index = self._own.get(_create_entry(finding.model, finding.rule, content, reason=REASON, until=self.until))
        if index is not None:
            return self._listed_marks(index)
        return self.added.setdefault((finding.model, finding.rule, content), set())

    def _is_current(self, ignore: Ignore) -> bool:
        return ignore.until is None or ignore.until >= self.today


def _is_blocking(finding: Finding) -> bool:
    return finding.level != Level.NOTE.value and not finding.ignored


def _refusal_reason(finding: Finding) -> str:
    """Return a hint on how to resolve a finding that cannot be ignored; "" if it can be ignored."""
    return NON_IGNORABLE_RULES.get(finding.rule, "")


def _content_digests(outcome: GateOutcome) -> dict[str, str]:
    return {path: hash_content(facts) for path, facts in outcome.gathered.facts.items()}


def _bound_content(finding: Finding, contents: Mapping[str, str]) -> str:
    """Return the digest of the model content that an ignore entry for the finding is limited to; "" for any content."""
    of_one = finding.rule in CONTENT_BOUND_RULES or is_about_change(finding.rule)
    return contents.get(finding.model, "") if of_one else ""


def _create_entry(
    model: str, rule: str, content: str, marks: Iterable[str] = (), *, reason: str, until: datetime.date | None = None
) -> Ignore:
    return Ignore(
        rule=rule,
        model=escape_glob(model) if model else "**",
        reason=reason,
        until=until,
        sha256=content or None,
        fingerprints=tuple(sorted(marks)),
    )


def render_ignore_snippets(request: GateRequest, outcome: GateOutcome) -> dict[str, tuple[str, ...]]:
    """Return the config lines that would accept each finding and undecided check, keyed by fingerprint.

    The user fills in the reason.
    """
    contents, lines = _content_digests(outcome), {}
    for finding in (*outcome.findings, *resolution.list_acceptable_gaps(request, outcome.gathered)):
        rule = rules.by_id.get(finding.rule)
        if finding.rule == UNDECIDED_RULE or (rule is not None and rule.stage is not Stage.GATE):
            content = _bound_content(finding, contents)
            ignore = _create_entry(finding.model, finding.rule, content, [finding.fingerprint], reason="")
            lines[finding.fingerprint] = tuple(render_entry(ignore, request.project.prefix).split("\n"))
    return lines
