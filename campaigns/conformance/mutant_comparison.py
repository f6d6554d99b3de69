"""Compare the static stages with real loads of mutants, most of which are invalid."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from campaigns.conformance import environments
from campaigns.conformance.load_outcome import BACKEND, real
from campaigns.conformance.real_loads import CRASHED, TIMED_OUT, load_all, observed

MUTANTS = "mutants"
CHECKED = "onnx.checker: "
STATIC_CHILD = Path(__file__).with_name("static_child.py")
MAX_MISSED_SHARE = 0.003
"""Maximum share of the refused mutants that may pass the static stages."""


@dataclass(slots=True)
class MutantCounts:
    """Results for the mutants on one release. Mutants that crash the runtime or onnx are not counted."""

    release: str
    loads: int = 0
    found: int = 0  # refused, and found by the static stages
    undecided: int = 0
    misses: list[str] = field(default_factory=list)  # refused, and passed by the static stages
    checker_refuses: int = 0  # number of misses that `onnx.checker` refuses
    false_alarms: list[str] = field(default_factory=list)  # load, but are refused by a prediction or by own checks only
    invalid: int = 0  # load, but `onnx.checker` and the static stages report them as invalid

    @property
    def refused(self) -> int:
        """Number of mutants that the release refuses."""
        return self.found + self.undecided + len(self.misses)

    @property
    def is_good(self) -> bool:
        """Whether nothing was refused wrongly, and few refused mutants pass, none of which `onnx.checker` refuses."""
        few = len(self.misses) <= MAX_MISSED_SHARE * self.refused
        return few and not self.false_alarms and not self.checker_refuses

    def line(self) -> str:
        """Return the results as one line."""
        return (
            f"{self.release}: {self.refused} refused, {self.undecided} of them undecided and {len(self.misses)} missed "
            f"({100 * len(self.misses) / max(1, self.refused):.2f} %; onnx.checker refuses {self.checker_refuses}); "
            f"{self.loads} load, {len(self.false_alarms)} of them refused wrongly and {self.invalid} invalid"
        )


def compare_mutants(corpus: Path, releases: Sequence[str], cache: Path) -> Iterator[MutantCounts]:
    """Yield the results for each release."""
    static = check_statically(corpus, releases, cache)
    for release in releases:
        stored = cache / "observed" / f"{release}-{corpus.stem}.json"
        texts = observed(environments.python_of(release, cache), corpus, stored)
        yield count(release, static, texts)


def check_statically(corpus: Path, releases: Sequence[str], cache: Path) -> dict[str, str]:
    """Return the result of the static stages for each mutant, as JSON; or how the check crashed."""
    return load_all(Path(sys.executable), corpus, cache / f"{corpus.stem}.lines", ",".join(releases), STATIC_CHILD)


def count(release: str, static: Mapping[str, str], texts: Mapping[str, str]) -> MutantCounts:
    """Return the results for one release."""
    counts = MutantCounts(release)
    for name, text in texts.items():
        if real(BACKEND, name, text).outcome != "excluded" and not static[name].startswith((CRASHED, TIMED_OUT)):
            _add(counts, name, json.loads(static[name]), " ".join(text.split()))
    return counts


def _add(counts: MutantCounts, name: str, result: dict[str, object], text: str) -> None:
    predicted = result["predicted"]
    assert isinstance(predicted, dict)
    verdict, *reasons = predicted.get(counts.release, ["loads"])
    if not text:
        counts.loads += 1
        counts.invalid += bool(result["fault"] and result["checker"])
        if verdict == "refused":
            counts.false_alarms.append(f"{name}: {', '.join(reasons)}")
        elif result["fault"] and not result["checker"]:
            counts.false_alarms.append(f"{name}: {result['fault']}")
    elif result["fault"] or verdict == "refused":
        counts.found += 1
    elif verdict == "unknown" or result["unchecked"]:
        counts.undecided += 1
    else:
        counts.checker_refuses += bool(result["checker"])
        counts.misses.append(f"{name}: {text}" + (f" ({CHECKED}{result['checker']})" if result["checker"] else ""))
