"""Find the conditions on which an engine refuses an operator, from the features of probe models and their loads."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxgate.support.matching.probed.node_matching import NOT_CONSTANT

_MIN_PROBES = (0, 1, 3, 4)
"""Minimum number of refused probes with all features of a condition, by the number of inputs and attributes."""
_MAX_CANDIDATES = 60
_MIN_CONSTANT_PROBES = 3
"""Minimum number of refused probes if the only feature is that an input is constant."""


@dataclass(frozen=True)
class Probe:
    """Features of a probe model, and the releases that load it as a bit mask."""

    features: frozenset[str]
    loads: int


@dataclass(frozen=True)
class Condition:
    """Features of nodes that the releases refuse."""

    features: tuple[str, ...]
    releases: int


def find_conditions(probes: Sequence[Probe], releases: int) -> list[Condition]:
    """Return conditions that explain refused probes and that no loaded probe fulfills.

    `releases` is the mask of the releases to explain. Conditions with few features that explain many probes are
    preferred.
    """
    by_feature: dict[str, list[int]] = defaultdict(list)
    for index, probe in enumerate(probes):
        for feature in probe.features:
            by_feature[feature].append(index)
    members = {
        feature: frozenset(indices)
        for feature, indices in by_feature.items()
        if len(indices) < len(probes) and not feature.endswith((": symbolic", ": static"))  # follow from other inputs
    }
    refused = {index: releases & ~probe.loads for index, probe in enumerate(probes)}
    missing = {index: mask for index, mask in refused.items() if mask}
    isolated = _find_isolated(probes, sorted(missing))
    found: list[Condition] = []
    for size in (1, 2, 3):
        while missing:
            best = max(_list_candidates(members, isolated, missing, refused, releases, size), key=_rank, default=None)
            if best is None:
                break
            _, features, mask, covered = best
            found.append(Condition(_confine(features, [probes[index].features for index in covered], probes), mask))
            for index in covered & missing.keys():
                missing[index] &= ~mask
                if not missing[index]:
                    del missing[index]
    return found


def _confine(features: tuple[str, ...], covered: Sequence[frozenset[str]], probes: Sequence[Probe]) -> tuple[str, ...]:
    """Add the values of attributes and the optional inputs that all probes with these features, but not others, have.

    The refusals can be due to them: all probes of DequantizeLinear of rank 3 have `block_size`, which OpenVINO refuses.
    Types are not confined, because each of them is probed with few forms of an operator.
    Source: of about 2,400 models that are not probes, loaded on OpenVINO 2024.6.0, 2025.3.0 and 2026.4.1, unconfined
    conditions refuse 64 that load, and confined ones 1. Of 5,239 backend models, they refuse the same ones.
    """
    if all("=" in it and it.endswith(")") for it in features):
        return features
    shared = frozenset.intersection(*covered) - frozenset.intersection(*(probe.features for probe in probes))
    described = {*features, *filter(_is_attribute, shared)}
    named = {_subject(it) for it in described}
    added = (it for it in shared if it.endswith((": set", ": given")) and _subject(it) not in named)
    return tuple(sorted({*described, *added}))


def _find_isolated(probes: Sequence[Probe], refused: Sequence[int]) -> dict[str, frozenset[int]]:
    """Return by feature the refused probes that differ from a loaded probe only in one input, type or attribute."""
    found: dict[str, set[int]] = defaultdict(set)
    dependent = _list_dependent_outputs(probes)
    counted = _list_counted_attributes(probes)
    loaded = [probe.features for probe in probes if probe.loads]
    for index in refused:
        for features in loaded:
            different = probes[index].features ^ features
            different -= _list_own_types(probes[index].features, features)
            if any("=seq(" in it or "=optional(" in it for it in different):  # has no rank
                different = {it for it in different if not it.endswith("rank unknown")}
            if any(_is_attribute(it) for it in different):
                different = {it for it in different if _subject(it) not in dependent}
            if counted and _list_counts(probes[index].features) != _list_counts(features):
                different = {it for it in different if _subject(it) not in counted}
            sources = {it for it in different if it.endswith((": constant", ": dynamic", ": not constant"))}
            if sources == different and NOT_CONSTANT in probes[index].features - features:
                found[NOT_CONSTANT].add(index)
            different = {it for it in different if not it.startswith("inputs: ")}
            if not all(map(_is_shape, different)):
                different = {it for it in different if not _is_shape(it)}
            subjects = {_subject(feature) for feature in different}
            if len(subjects) > 1 and all(map(_is_shape, different)):  # the inputs have ranks that belong together
                different = {it for it in different if ": rank" in it}
            if len(subjects) == 1 or all(": rank" in it for it in different):
                for feature in different & probes[index].features:
                    found[feature].add(index)
    return {feature: frozenset(indices) for feature, indices in found.items()}


def _list_dependent_outputs(probes: Sequence[Probe]) -> set[str]:
    """Return the outputs that nodes have only, and always, with a certain value of an attribute."""
    with_feature: dict[str, list[int]] = defaultdict(list)
    for index, probe in enumerate(probes):
        for feature in probe.features:
            if _is_attribute(feature) or feature.endswith(": used"):
                with_feature[feature].append(index)
    values = {tuple(indices) for feature, indices in with_feature.items() if _is_attribute(feature)}
    return {_subject(it) for it, indices in with_feature.items() if it.endswith(": used") and tuple(indices) in values}


def _list_counted_attributes(probes: Sequence[Probe]) -> set[str]:
    """Return the required attributes whose values occur only with a certain number of inputs, such as `equation`."""
    counts: dict[str, set[frozenset[str]]] = defaultdict(set)
    for probe in probes:
        for value in filter(_is_attribute, probe.features):
            counts[value].add(_list_counts(probe.features))
    names = {_subject(value) for value in counts}
    names = {name for name in names if all(f"{name}: set" in probe.features for probe in probes)}
    if len(frozenset[frozenset[str]]().union(*counts.values())) < 2:
        return set()
    return {
        name for name in names if all(len(found) == 1 for value, found in counts.items() if _subject(value) == name)
    }


def _list_counts(features: frozenset[str]) -> frozenset[str]:
    """Return the numbers of values of variadic inputs and outputs."""
    numbers = (it for it in features if it.endswith(" or more") or it.partition(": ")[2].isdigit())
    return frozenset(it for it in numbers if f"{_subject(it)}: set" not in features)


def _is_attribute(feature: str) -> bool:
    """Return whether a feature is the value of an attribute."""
    return "=" in feature and not feature.endswith(")")


def _is_constant(feature: str) -> bool:
    return feature.endswith(": constant")


def _list_own_types(features: frozenset[str], others: frozenset[str]) -> set[str]:
    """Return the types of parameters that only one of two probes has, because of an optional input or output."""
    typed = [{it for it in side if "=" in it and it.endswith(")")} for side in (features, others)]
    names = [{_subject(it) for it in side} for side in typed]
    return {it for it in typed[0] | typed[1] if _subject(it) not in names[0] & names[1]}


def _is_shape(feature: str) -> bool:
    """Return whether a feature describes the shape of an input. A form with another shape may need other attributes."""
    return ": rank" in feature or feature.endswith((": static", ": symbolic", "element", "elements", "empty"))


def _subject(feature: str) -> str:
    """Return the type parameter, input, output or attribute that a feature describes."""
    return feature.partition("=")[0].partition(":")[0]


_Candidate = tuple[int, tuple[str, ...], int, frozenset[int]]
"""Number of explained loads, the features, the releases, and the probes with these features."""


def _rank(candidate: _Candidate) -> tuple[int, int, list[str]]:
    """Return a key: of the candidates that explain as many loads, the one with the most specific features is best."""
    gain, features, _, _ = candidate
    vague = sum(2 * _is_shape(it) - (": rank" in it) + 2 * it.endswith(": set") for it in features)
    return gain, -vague, [_invert(feature) for feature in features]


def _invert(text: str) -> str:
    """Return a key that sorts in the opposite order, so that the first of equal candidates is chosen."""
    return "".join(chr(0x10FFFF - ord(letter)) for letter in text) + "\U0010ffff"


def _list_candidates(
    members: dict[str, frozenset[int]],
    isolated: dict[str, frozenset[int]],
    missing: dict[int, int],
    refused: dict[int, int],
    releases: int,
    size: int,
) -> Iterable[_Candidate]:
    useful = sorted(feature for feature, indices in members.items() if indices & missing.keys())
    if size > 2:
        useful.sort(key=lambda feature: (-len(members[feature] & missing.keys()), feature))
        useful = sorted(useful[:_MAX_CANDIDATES])
    for features in itertools.combinations(useful, size):
        covered = members[features[0]]
        for feature in features[1:]:
            covered = covered & members[feature]
        if size == 1 and len(covered) < _MIN_CONSTANT_PROBES and _is_constant(features[0]):
            continue
        has_rank = size > 1 and any(": rank" in feature for feature in features)
        subjects = {_subject(feature) for feature in features}
        if len(covered) < _MIN_PROBES[size if has_rank else min(size, len(subjects))]:
            continue
        if any(covered.isdisjoint(isolated.get(feature, ())) for feature in features):
            continue
        mask = releases
        for index in covered:
            mask &= refused[index]
            if not mask:
                break
        if not mask:
            continue
        gain = sum((missing[index] & mask).bit_count() for index in covered if index in missing)
        if gain:
            yield gain, features, mask, covered
