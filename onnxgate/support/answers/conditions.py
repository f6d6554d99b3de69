"""Conditions on which releases of probed engines accept an operator, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from onnxgate.core.text import join_phrases
from onnxgate.support.matching.probed import openvino_sequences, tract_unpredictable_models
from onnxgate.support.matching.probed.node_features import word_features
from onnxgate.support.operators import Implementation

ONLY_CONSTANT = "only if all inputs are constant"
_ABSENT = re.compile(r"(\w+): (?:unset|omitted)")
"""Pattern of a missing attribute or input in the features of a condition."""
_COMPUTED = re.compile(r"with (.+) that is not constant")
"""Pattern of the use of an input that must be constant."""
_FEATURE = re.compile(r"\w+(?:=|: )")
"""Pattern of the beginning of a feature; uses are sentences."""


def list_refused_uses(name: str, release: Implementation) -> tuple[str, ...]:
    """Return the uses of an operator that a release refuses because of other nodes, such as "outside of `Loop`"."""
    if release.engine == "openvino":
        return openvino_sequences.list_refused_uses(name, release.release)
    if release.engine == tract_unpredictable_models.ENGINE:
        return tract_unpredictable_models.list_refused_uses(name, release.release)
    return ()


def describe_limits(name: str, release: Implementation) -> str:
    """Return which models a release refuses, or often refuses, although it supports the operator; "" if none."""
    uses = [_word_limit(use) for use in list_refused_uses(name, release) if not word_requirement([use])]
    is_tract = release.engine == tract_unpredictable_models.ENGINE
    models = tract_unpredictable_models.describe_refused_models(name) if is_tract else ""
    return "; ".join(filter(None, (*uses, models)))


def _word_limit(use: str) -> str:
    """Return what a release requires if it refuses a use, such as "`position` must be constant"."""
    computed = _COMPUTED.fullmatch(use)
    return f"{computed[1]} must be constant" if computed else f"not {use}"


def find_absent_names(features: str) -> list[str]:
    """Return the names of attributes and inputs that features state as missing."""
    return _ABSENT.findall(features)


def word_required(groups: Iterable[Sequence[str]]) -> str:
    """Return the condition that a node has an attribute or input of each group, such as "only with `seed`"."""
    alternatives = (" or ".join(f"`{name}`" for name in names) for names in groups)
    return f"only with {join_phrases(list(alternatives))}"


def word_requirement(features: Iterable[str]) -> str:
    """Return the opposite of refused features, such as "only with `seed`"; "" if it depends on what a node has.

    No features means all nodes, unless all inputs are constant.
    """
    listed = sorted(features)
    if not listed:
        return ONLY_CONSTANT
    if len(listed) == 1 and listed[0].startswith(openvino_sequences.OUTSIDE):
        return f"only in a {listed[0].removeprefix(openvino_sequences.OUTSIDE).strip()}"
    names = [name for feature in listed for name in find_absent_names(feature)]
    return word_required([names]) if len(names) == len(listed) else ""


def word_refusal(features: Iterable[str]) -> str:
    """Return refused features, such as "with `mode` = `cubic`", "without `axes`" or "outside of `Loop`"."""
    listed = sorted(features)
    if not listed:
        return "with inputs that are not constant"
    if len(listed) == 1 and not _FEATURE.match(listed[0]):
        return listed[0]  # a use, which is in words
    words = word_features(listed)
    return words.replace("no `", "without `") if words.startswith("no ") else f"with {words}"
