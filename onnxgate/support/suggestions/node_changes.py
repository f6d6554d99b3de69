"""Search for changes to the inputs, outputs and attributes of a node after which probed engines accept the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from onnxgate.support.matching.operations import ChangeKind, FeatureChange, NodeChange, TypedNode
from onnxgate.support.matching.probed.node_features import MODEL_INPUT, MODEL_OUTPUT
from onnxgate.support.matching.probed.node_matching import describe_features, match_features
from onnxgate.support.operators import MIXED, OPTIONAL, VARIADIC, Implementation, Schema

_MAX_CHANGES = 4
"""Maximum number of changes to one node; tract requires 4 parameters of BatchNormalization to be constant."""
_BETTER: Mapping[ChangeKind, ChangeKind] = {"omitted": "constant", "unset": "value"}
"""Kind of change -> kind that replaces it if both suffice: removals come last."""


class _Candidate(msgspec.Struct, frozen=True):
    change: FeatureChange
    removed: frozenset[str]  # features that the node no longer has after the change
    added: frozenset[str]


def find_node_changes(node: TypedNode, implementations: Sequence[Implementation]) -> list[NodeChange]:
    """Return changes after which all releases accept the node: single ones or, if none suffices, one set of changes."""
    schema, features = describe_features(node)
    if schema is None or not implementations:
        return []
    candidates = [*_list_input_changes(schema, features), *_list_attribute_changes(schema, features)]

    def is_accepted(chosen: Sequence[_Candidate]) -> bool:
        changed = features.difference(*(it.removed for it in chosen)).union(*(it.added for it in chosen))
        return all(match_features(node.operation, changed, release) is None for release in implementations)

    if is_accepted(()):
        return []  # the features are not the reason, but for example a dynamic size
    single = [it.change for it in candidates if is_accepted([it])]
    better = {it: FeatureChange(_BETTER[it.kind], it.name) for it in single if it.kind in _BETTER}
    useful = [it for it in single if better.get(it) not in single]
    if useful:
        return [NodeChange((change,)) for change in useful]
    needed = [it for it in candidates if it.change.kind in ("constant", "value", "given", "set")]
    if not is_accepted(needed):
        return []
    for candidate in tuple(needed):
        rest = [it for it in needed if it != candidate]
        needed = rest if is_accepted(rest) else needed
    constant = {it.change.name for it in needed if it.change.kind == "constant"}
    is_computed = all(f"{formal.name}: dynamic" not in features or formal.name in constant for formal in schema.inputs)
    return [NodeChange(tuple(it.change for it in needed))] if len(needed) <= _MAX_CHANGES and not is_computed else []


def _list_input_changes(schema: Schema, features: frozenset[str]) -> Iterator[_Candidate]:
    for formal in schema.inputs:
        name, state = formal.name, _select(features, formal.name)
        if formal.option in (VARIADIC, MIXED):
            continue
        constant = frozenset({f"{name}: constant"})
        if f"{name}: dynamic" in features:
            yield _Candidate(FeatureChange("constant", name), frozenset({f"{name}: dynamic"}), constant)
        if f"{name}: rank unknown" in features:
            yield _Candidate(FeatureChange("rank", name), frozenset({f"{name}: rank unknown"}), frozenset())
        if f"{name}: {MODEL_INPUT}" in features:
            yield _Candidate(FeatureChange("not model input", name), frozenset({f"{name}: {MODEL_INPUT}"}), frozenset())
        if f"{name}: omitted" in features:
            yield _Candidate(FeatureChange("given", name), state, constant | {f"{name}: given"})
        elif formal.option == OPTIONAL:
            yield _Candidate(FeatureChange("omitted", name), state, frozenset({f"{name}: omitted"}))
    for name in (formal.name for formal in schema.outputs):
        if f"{name}: {MODEL_OUTPUT}" in features:
            removed = frozenset({f"{name}: {MODEL_OUTPUT}"})
            yield _Candidate(FeatureChange("not model output", name), removed, frozenset())
        if f"{name}: used" in features:
            yield _Candidate(
                FeatureChange("unused", name), frozenset({f"{name}: used"}), frozenset({f"{name}: unused"})
            )


def _list_attribute_changes(schema: Schema, features: frozenset[str]) -> Iterator[_Candidate]:
    for name, (_, is_required) in schema.attributes.items():
        state, present = _select(features, name), frozenset({f"{name}: set"})
        if f"{name}: unset" in features:
            yield _Candidate(FeatureChange("set", name), state, present)
        elif f"{name}: set" in features:
            yield _Candidate(FeatureChange("value", name), state, present)
            if not is_required:
                yield _Candidate(FeatureChange("unset", name), state, frozenset({f"{name}: unset"}))


def _select(features: Iterable[str], name: str) -> frozenset[str]:
    """Return the features of the named input or attribute."""
    return frozenset(feature for feature in features if feature.startswith((f"{name}: ", f"{name}=")))
