"""Compare the classification of error texts with the expected catalogue entries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from onnxgate.diagnostics.classification import classify


@dataclass(frozen=True, slots=True)
class Scored:
    """One error text, with the expected catalogue entries and the entry that matched."""

    where: str
    case: str
    expected: str
    got: str
    text: str

    @property
    def is_right(self) -> bool:
        """Whether the text matched an expected entry."""
        return self.got in self.expected.split("|")


def scored(files: Iterable[Path]) -> Iterator[Scored]:
    """Yield the result for each text in the files."""
    for path in files:
        content = json.loads(path.read_bytes())
        for case, each in content["texts"].items():
            known = classify(each["text"])
            got = known.entry.name if known else "(unknown)"
            yield Scored(f"{content['emitter']} {content['release']}", case, each["entry"], got, each["text"])


def report(files: Iterable[Path]) -> int:
    """Print wrong matches and the score of each release; return 1 if a match is wrong."""
    every = list(scored(files))
    wrong = [each for each in every if not each.is_right]
    for problem in wrong:
        place = f"{problem.where} {problem.case}"
        print(f"{place}: expected {problem.expected}, got {problem.got}\n    {problem.text[-600:]!r}")
    by_release: dict[str, list[bool]] = {}
    for each in every:
        by_release.setdefault(each.where, []).append(each.is_right)
    for where, right in by_release.items():
        print(f"{where}: {sum(right)} of {len(right)} correct")
    print(f"total: {len(every) - len(wrong)} of {len(every)} correct")
    return 1 if wrong else 0
