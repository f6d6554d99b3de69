"""Fingerprints that identify a finding across commits: rule, model and problem, without runtimes, lines or figures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from onnxgate.core.findings import Hit, RuleHit, mask_numbers, runtime_sort_key

FindingIdentity = tuple[str, str, str]  # rule; model, or file if it is about none; problem


def assign_fingerprints(hits: Sequence[RuleHit]) -> list[RuleHit]:
    """
    Return the hits with fingerprints, equal for hits that become one finding.

    Findings that nothing tells apart but what a new export changes are counted, in the order of the oldest runtime
    and of their words: it is their number that is known, and one more is new.
    """
    if all(hit.fingerprint or hit.silent for hit in hits):
        return list(hits)
    by_identity: dict[FindingIdentity, dict[tuple[object, ...], list[int]]] = {}
    for index, hit in enumerate(hits):
        if not hit.silent:
            by_identity.setdefault(_finding_identity(hit), {}).setdefault(_distinguishing_fields(hit), []).append(index)
    marked = list(hits)
    for base, apart in by_identity.items():
        members = list(apart.values())
        if len(members) > 1:
            members.sort(key=lambda indices: min(_hit_sort_key(hits[index]) for index in indices))
        for number, indices in enumerate(members):
            fingerprint = _hash_identity(base, number)
            for index in indices:
                marked[index] = replace(hits[index], fingerprint=fingerprint)
    return marked


def _finding_identity(judged: RuleHit) -> FindingIdentity:
    hit = judged.hit
    return judged.rule, hit.model or hit.place.path, hit.identity or _stable_message(hit)


def _stable_message(hit: Hit) -> str:
    """Return the message without the numbers of its node and without the count of others."""
    words = re.sub(r",? and \d+ more\b", "", hit.message)
    return words.replace(f"`{hit.node}`", f"`{mask_numbers(hit.node)}`") if hit.node else words


def _distinguishing_fields(judged: RuleHit) -> tuple[object, ...]:
    """Return the fields that, with the runtime aside, make two hits two findings."""
    hit = judged.hit
    return (judged.level, judged.stage, hit.message, hit.place, hit.fix)


def _hit_sort_key(judged: RuleHit) -> tuple[object, ...]:
    hit = judged.hit
    return (runtime_sort_key(hit.runtime), hit.message, hit.place, hit.fix, judged.level.value)


def _hash_identity(base: FindingIdentity, number: int) -> str:
    """Hash an identity. The first finding has no number, so that a second one does not change it."""
    text = "\0".join((*base, *([str(number)] if number else [])))
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
