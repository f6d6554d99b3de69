"""Fingerprints of all rules on all cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from onnxgate.core.findings import RuleHit, assign_fingerprints
from onnxgate.gate.results import resolution
from tests.harness.rule_cases import every_case, findings_of, unfold

NUMBERED_RULES = {"lock-stale"}
"""Rules whose findings of one project may have the same identity, because they cannot be ignored."""


@pytest.mark.parametrize("case", every_case(), ids=lambda case: f"{case.parent.name}/{case.name}")
def test_fingerprints(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Different findings have different identities, and texts do not affect fingerprints."""
    unfold(case, tmp_path)
    seen: list[RuleHit] = []

    def record(hits: Sequence[RuleHit]) -> list[RuleHit]:
        seen.extend(hits)
        return assign_fingerprints(hits)

    monkeypatch.setattr(resolution, "assign_fingerprints", record)
    findings_of(tmp_path)
    hits = list(dict.fromkeys(hit for hit in seen if hit.rule not in NUMBERED_RULES and not hit.silent))
    texts: dict[tuple[str, ...], set[str]] = {}
    for judged in hits:
        hit = judged.hit
        key = (judged.rule, hit.model or hit.place.path, hit.identity)
        texts.setdefault(key, set()).add(hit.message)
    reworded = [replace(it, hit=msgspec.structs.replace(it.hit, message="other")) for it in hits]

    assert {} == {key: found for key, found in texts.items() if len(found) > 1}
    assert _fingerprints(hits) == _fingerprints(reworded)


def _fingerprints(hits: Sequence[RuleHit]) -> list[str]:
    return [hit.fingerprint for hit in assign_fingerprints([replace(it, fingerprint="") for it in hits])]
