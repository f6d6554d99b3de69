"""Fingerprints that identify a finding across commits: rule, model and problem, without runtimes, lines or figures."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace

from onnxgate.core.findings import RuleHit, mask_numbers, runtime_sort_key

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
            fields = (hit.level, hit.stage, hit.hit.message, hit.hit.place, hit.hit.fix)  # all but the runtime
            by_identity.setdefault(_finding_identity(hit), {}).setdefault(fields, []).append(index)
    marked = list(hits)
    for base, apart in by_identity.items():
        members = list(apart.values())
        if len(members) > 1:
            members.sort(key=lambda indices: min(_hit_sort_key(hits[index]) for index in indices))
        for number, indices in enumerate(members):
            text = "\0".join((*base, *([str(number)] if number else [])))  # a second finding does not change the first
            fingerprint = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]
            for index in indices:
                marked[index] = replace(hits[index], fingerprint=fingerprint)
    return marked


def _finding_identity(judged: RuleHit) -> FindingIdentity:
    hit = judged.hit
    words = re.sub(r",? and \d+ more\b", "", hit.message)  # how many others there are
    if hit.node:
        words = words.replace(f"`{hit.node}`", f"`{mask_numbers(hit.node)}`")
    return judged.rule, hit.model or hit.place.path, hit.identity or words


def _hit_sort_key(judged: RuleHit) -> tuple[object, ...]:
    hit = judged.hit
    return (runtime_sort_key(hit.runtime), hit.message, hit.place, hit.fix, judged.level.value)
