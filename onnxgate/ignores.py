"""The `[[ignore]]` entries of a config: which findings each of them accepts, and what came of each."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from onnxgate.config import globs
from onnxgate.config.types import Ignore
from onnxgate.findings import Judged
from onnxgate.report import Finding


@dataclass(slots=True)
class Ignores:
    """Entries, by rule and by what they list. `contents` has each model's content, where that is known."""

    entries: Sequence[Ignore]
    today: datetime.date
    contents: Mapping[str, str] = field(default_factory=dict)
    _by_key: dict[tuple[str, str], list[int]] = field(default_factory=dict)  # rule; fingerprint, "" for any

    def __post_init__(self) -> None:
        for index, entry in enumerate(self.entries):
            for fingerprint in ("",) if entry.fingerprints is None else entry.fingerprints:
                self._by_key.setdefault((entry.rule, fingerprint), []).append(index)

    def accepts(self, judged: Judged) -> bool:
        """Whether an entry that holds is about a hit, which has its fingerprint."""
        about = self.about(judged.rule, judged.hit.model, judged.fingerprint)
        return any(not self.expired(index) for index in about)

    def apply(self, findings: Sequence[Finding]) -> tuple[list[Finding], list[frozenset[str]]]:
        """Findings with the reason of the first entry that holds, and for each entry the fingerprints that it met.

        An entry that has ended accepts nothing, and still meets what it is about; so does one that lists
        fingerprints where another one accepts the finding first.
        """
        met: list[set[str]] = [set() for _ in self.entries]
        weighed = []
        for finding in findings:
            accepting = None
            for index in self.about(finding.rule, finding.model, finding.fingerprint):
                holds = not self.expired(index)
                if not holds or accepting is None or self.entries[index].fingerprints is not None:
                    met[index].add(finding.fingerprint)
                if holds and accepting is None:
                    accepting = index
            weighed.append(finding if accepting is None else _ignored(finding, self.entries[accepting].reason))
        return weighed, [frozenset(each) for each in met]

    def expired(self, index: int) -> bool:
        """The end date is the last day on which the entry holds."""
        until = self.entries[index].until
        return until is not None and until < self.today

    def about(self, rule: str, model: str, fingerprint: str) -> Iterator[int]:
        """The entries that are about a finding; one about no model (the lock) is matched by its rule alone."""
        plain, listing = self._by_key.get((rule, ""), ()), self._by_key.get((rule, fingerprint or "none"), ())
        for index in sorted((*plain, *listing)):
            entry = self.entries[index]
            if entry.sha256 is not None and (not model or self.contents.get(model) != entry.sha256.lower()):
                continue
            if not model or matches_model(entry.model, model):
                yield index


def matches_model(glob: str, model: str) -> bool:
    """Whether the glob of an entry is about a model; `**` alone is about all."""
    return globs.matches(glob, model)


def _ignored(finding: Finding, reason: str) -> Finding:
    import msgspec

    return msgspec.structs.replace(finding, ignored=reason)
