"""What a repository has today, accepted: entries for all findings that are there, and none for those that come."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from onnxgate import rules
from onnxgate.core.findings import Level, Stage
from onnxgate.core.fingerprints import assign_fingerprints
from onnxgate.core.report import Finding
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
"""Rules that are about one content without being about a baseline: whether a model is the locked one."""
NON_IGNORABLE_RULES = {
    "lock-stale": "it says that the lock is not about what the config promises: run `onnxgate lock`",
    "ignore-expired": "somebody set that date: repair what the entry hides, or give it a new date and a reason",
    "ignore-unused": "the entry can be removed",
    "not-a-model": "nothing of such a file can be judged: repair it, or name it in `exclude`",
    "lfs-pointer": "it says what this checkout lacks, and not what is wrong with the model",
}
"""Why some rules are left to close the gate."""


@dataclass(frozen=True, slots=True)
class IgnoreUpdate:
    """The outcome under the new entries, the config that has them, and what there is to say of it."""

    outcome: GateOutcome
    data: bytes
    remarks: tuple[str, ...]


def accept_findings(
    request: GateRequest, outcome: GateOutcome, data: bytes, until: datetime.date | None
) -> IgnoreUpdate:
    """
    Accept every finding of the outcome that is no note, until nothing new comes to light. `data` is the config.

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
    """The outcome with the lines that the config has now; where a finding of a model is on one that moved, as run."""
    project = request.project
    request = replace(request, checkout=replace(request.checkout, project=replace(project, lines=lines)))
    moved = any(lines.get(keys) != line for keys, line in project.lines.items() if "ignore" not in keys)
    if moved and any(each.hit.place.path == project.path.name for each in outcome.gathered.judged):
        return pipeline.run(request)
    return pipeline.reapply_ignores(request, outcome)


def _find_stale_fingerprints(request: GateRequest, outcome: GateOutcome) -> dict[int, frozenset[str]]:
    """For each entry by its number the fingerprints that it lists and that no finding has any more."""
    ignores = resolution.select_ignores(request, outcome.gathered)
    scope = resolution.determine_scope(request, outcome.gathered, outcome.blocked, ignores)
    return find_stale_fingerprints(
        ignores,
        scope,
        {assign_fingerprint.fingerprint for assign_fingerprint in assign_fingerprints(outcome.gathered.judged)},
    )


@dataclass(slots=True)
class _IgnorePlan:
    """The entries that there are, with what they list from now on, and those that are added."""

    entries: tuple[Ignore, ...]
    today: datetime.date
    until: datetime.date | None
    listed: dict[int, set[str]] = field(default_factory=dict)
    added: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)  # model, rule, content
    accepted: int = 0
    dropped: int = 0
    _own: dict[Ignore, int] = field(default_factory=dict)  # entries like those that are added, but for what they list

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            if entry.fingerprints and self._holds(entry):
                self._own[msgspec.structs.replace(entry, fingerprints=())] = index

    @property
    def edit(self) -> IgnoreEdit:
        """The entries afterwards; one that lists the same as before is not touched."""
        changed = {
            index: tuple(sorted(marks))
            for index, marks in self.listed.items()
            if marks != set(self.entries[index].fingerprints or ())
        }
        return IgnoreEdit(changed, [self._entry(*key, marks) for key, marks in sorted(self.added.items()) if marks])

    def under(self, request: GateRequest) -> GateRequest:
        """The request with the entries as they are to be."""
        config = msgspec.structs.replace(request.project.config, ignore=self.edit.apply(self.entries))
        project = replace(request.project, config=config)
        return replace(request, checkout=replace(request.checkout, project=project))

    def accept(self, outcome: GateOutcome) -> bool:
        """Add what the outcome has; False where all that can be is accepted."""
        before = self.accepted
        contents = _content_digests(outcome)
        for finding in self._open(outcome):
            marks = self._marks(finding, contents)
            self.accepted += finding.fingerprint not in marks
            marks.add(finding.fingerprint)
        return self.accepted > before

    def _open(self, outcome: GateOutcome) -> Iterator[Finding]:
        """What is to be accepted: not what an entry accepted for a while that is over; nobody asked to prolong that."""
        over = Ignores(
            [entry for entry in self.entries if not self._holds(entry)], self.today, _content_digests(outcome)
        )
        for finding in outcome.findings:
            ended = any(True for _ in over.about(finding.rule, finding.model, finding.fingerprint))
            if _is_blocking(finding) and not _refusal_reason(finding) and not ended:
                yield finding

    def left(self, outcome: GateOutcome) -> Iterator[str]:
        """What is there and was not accepted, and why."""
        closing = [finding for finding in outcome.findings if _is_blocking(finding)]
        never = [(finding.rule, why) for finding in closing if (why := _refusal_reason(finding))]
        for rule, why in sorted(set(never)):
            yield f"`{rule}` is not accepted by `--write-ignores`: {why}"
        if ended := len(closing) - len(never):
            yield f"{_count(ended, 'finding')} not accepted again: the ignore of each has ended"

    def drop(self, stale: Mapping[int, frozenset[str]]) -> None:
        """Take out what is no longer there, of the entries as they are to be."""
        kept = [index for index in range(len(self.entries)) if self.listed.get(index, True)]
        for place, marks in stale.items():
            if place < len(kept) and marks:
                index = kept[place]
                left = self.listed.setdefault(index, set(self.entries[index].fingerprints or ()))
                self.dropped += len(left & marks)
                left -= marks

    def said(self, name: str) -> str:
        """What was done, in words."""
        done = []
        if self.accepted:
            done.append(f"accepts {_count(self.accepted, 'finding')} that {_are(self.accepted)} there now")
        if self.dropped:
            done.append(f"no longer lists {_count(self.dropped, 'finding')} that {_are(self.dropped)} gone")
        if not done:
            return f"`{name}` is as it was: there is nothing to accept, and nothing that it lists is gone"
        return f"`{name}` {', and '.join(done)}"

    def _marks(self, finding: Finding, contents: Mapping[str, str]) -> set[str]:
        """The list that the finding belongs into: of an entry that we wrote, else of a new one."""
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
    """Why a finding is not to be accepted, "" where it may be."""
    is_pointer = finding.rule == "external-data-corrupt" and "git lfs pull" in finding.fix
    return NON_IGNORABLE_RULES.get("lfs-pointer" if is_pointer else finding.rule, "")


def _content_digests(outcome: GateOutcome) -> dict[str, str]:
    return {path: hash_content(facts) for path, facts in outcome.gathered.facts.items()}


def _bound_content(finding: Finding, contents: Mapping[str, str]) -> str:
    """The content that an entry is to hold for, "" where it need not be held to one."""
    of_one = finding.rule in CONTENT_BOUND_RULES or is_about_change(finding.rule)
    return contents.get(finding.model, "") if of_one else ""


def render_ignore_snippets(request: GateRequest, outcome: GateOutcome) -> dict[str, tuple[str, ...]]:
    """For each finding, by its fingerprint, the lines to paste into the config; the reason is left to be said."""
    contents, made = _content_digests(outcome), {}
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
            made[finding.fingerprint] = tuple(render_entry(ignore, request.project.prefix).split("\n"))
    return made


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"
