"""Attribute values of classical models (trees, linear models, support vectors) that kernels of ONNX Runtime reject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec import structs

from onnxgate.support.matching.attribute_values import AttributeValues, LongList, integers_of, number_of
from onnxgate.support.matching.onnxruntime.attribute_restrictions import (
    ML_DOMAIN,
    POST_TRANSFORMS,
    ReleaseRestriction,
    require,
)

_NODE_LISTS = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
_LEAF_LISTS = ("treeids", "nodeids", "ids")
_MODES = frozenset(
    ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
)
_KERNEL_PARAMETERS = (0, 3)
_UNKNOWN = -1
_INT32_END = 2**31


def _restrict(
    operator: str,
    is_met: Callable[[AttributeValues], bool],
    problem: str,
    attribute: str,
    first: str = "",
    last: str = "",
) -> ReleaseRestriction:
    return ReleaseRestriction((operator,), is_met, problem, first, last, attribute, domain=ML_DOMAIN)


def _count(values: AttributeValues, name: str) -> int:
    """Return the number of elements of a list; 0 if it is absent, -1 if it is unknown."""
    listed = values.get(name, ())
    return len(listed) if isinstance(listed, tuple) else listed.count if isinstance(listed, LongList) else _UNKNOWN


def _differ(values: AttributeValues, prefix: str, suffixes: Sequence[str]) -> bool:
    """Return whether lists of trees have different lengths. Values may be in a tensor instead of a list."""
    names = [f"{prefix}_{suffix}" for suffix in suffixes]
    counts = {_count(values, name) for name in names if f"{name}_as_tensor" not in values}
    return len(counts - {_UNKNOWN}) > 1


def _has_broken_trees(values: AttributeValues, role: str) -> bool:
    """Return whether nodes of trees occur twice, or refer to nodes that do not exist; False if a list is unknown."""
    of_nodes = ("nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids")
    names = (*of_nodes, f"{role}_treeids", f"{role}_nodeids")
    lists = [integers_of(values, name) for name in names]
    trees, nodes, true_nodes, false_nodes, leaf_trees, leaf_nodes = lists
    modes = values.get("nodes_modes")
    if not isinstance(modes, tuple) or not all(isinstance(values.get(name), tuple) for name in names):
        return False
    if len({*map(len, (trees, nodes, true_nodes, false_nodes))}) > 1:
        return False
    known = set(zip(trees, nodes, strict=True))
    branches = [index for index, mode in enumerate(modes[: len(trees)]) if mode != "LEAF"]
    needed = {(trees[index], ids[index]) for ids in (true_nodes, false_nodes) for index in branches}
    needed.update(zip(leaf_trees, leaf_nodes, strict=False))
    is_own = any(ids[index] == nodes[index] for ids in (true_nodes, false_nodes) for index in branches)
    return len(known) < len(trees) or not needed <= known or is_own


def _has_other_modes(values: AttributeValues) -> bool:
    modes = values.get("nodes_modes")
    return isinstance(modes, tuple) and not _MODES.issuperset(modes)


def _has_targets_out_of_range(values: AttributeValues) -> bool:
    targets = integers_of(values, "target_ids")
    count = number_of(values, "n_targets", 0)
    return any(not 0 <= target < count for target in targets)


def _has_negatives(values: AttributeValues, name: str) -> bool:
    return min(integers_of(values, name), default=0) < 0


def _lacks(values: AttributeValues, name: str) -> bool:
    return name not in values


def _has_other_scales(values: AttributeValues) -> bool:
    """Return whether a Scaler has no scales, or another number of offsets."""
    scales, offsets = _count(values, "scale"), _count(values, "offset")
    return scales == 0 or (scales != offsets and _UNKNOWN not in (scales, offsets))


def _lacks_supports(values: AttributeValues) -> bool:
    """Return whether an SVMRegressor has not the coefficients and vectors for its number of supports."""
    supports = int(number_of(values, "n_supports", 0))
    coefficients, vectors = _count(values, "coefficients"), _count(values, "support_vectors")
    if supports <= 0 or _UNKNOWN in (coefficients, vectors):
        return False
    return coefficients < supports or vectors == 0 or vectors % supports != 0


def _labels_other_classes(values: AttributeValues) -> bool:
    """Return whether a LinearClassifier has not the labels for the number of its intercepts."""
    classes = _count(values, "intercepts")
    labels = _count(values, "classlabels_ints") or _count(values, "classlabels_strings")
    if _UNKNOWN in (classes, labels) or not classes:
        return False
    return labels not in (0, 2) if classes == 1 else labels < classes


def _lists_none(values: AttributeValues, *names: str) -> bool:
    """Return whether all lists are absent or empty."""
    return not any(_count(values, name) for name in names)


def _multiplies_other_classes(values: AttributeValues) -> bool:
    """Return whether a LinearClassifier of several classes has not as many coefficients for each of them."""
    classes, coefficients = _count(values, "intercepts"), _count(values, "coefficients")
    return classes > 1 and coefficients > 0 and coefficients % classes != 0


def _separates_other_classes(values: AttributeValues) -> bool:
    """Return whether an SVMClassifier with vectors has not a number of them for each label."""
    vectors = _count(values, "vectors_per_class")
    labels = _count(values, "classlabels_strings") or _count(values, "classlabels_ints")
    return sum(integers_of(values, "vectors_per_class")) > 0 and labels >= 0 and vectors != labels


def _has_classes_out_of_range(values: AttributeValues) -> bool:
    """Return whether a leaf of a TreeEnsembleClassifier belongs to a class without a label."""
    labels = _count(values, "classlabels_strings") or _count(values, "classlabels_int64s")
    return labels > 0 and max(integers_of(values, "class_ids"), default=0) >= labels


def _lacks_vectors(values: AttributeValues) -> bool:
    """Return whether the vectors or coefficients of an SVMClassifier do not fit the number of vectors."""
    listed = integers_of(values, "vectors_per_class")
    vectors, coefficients = _count(values, "support_vectors"), _count(values, "coefficients")
    count = sum(listed)
    if count <= 0 or min(listed) < 0 or _UNKNOWN in (vectors, coefficients):
        return False
    return vectors % count != 0 or coefficients < count * (len(listed) - 1)


def _has_nodes_out_of_range(values: AttributeValues) -> bool:
    """Return whether a TreeEnsemble refers to a node or leaf that does not exist."""
    nodes, leafs = _count(values, "nodes_featureids"), _count(values, "leaf_targetids")
    for ids, flags in (("nodes_truenodeids", "nodes_trueleafs"), ("nodes_falsenodeids", "nodes_falseleafs")):
        pairs = zip(integers_of(values, ids), integers_of(values, flags), strict=False)
        if any(index >= (leafs if is_leaf else nodes) for index, is_leaf in pairs):
            return True
    return any(index >= nodes for index in integers_of(values, "tree_roots"))


def _selects_wrong_features(values: AttributeValues, has_leaf_modes: bool) -> bool:
    """Return whether a node that is not a leaf compares a feature with a negative index, or one beyond 32 bits.

    Source: 33 trees of three operators with 5 wrong indexes, loaded on 14 releases from 1.16.3 to 1.32.0.
    """
    features, modes = integers_of(values, "nodes_featureids"), values.get("nodes_modes")
    listed = modes if isinstance(modes, tuple) else ()
    compared = (
        [it for it, mode in zip(features, listed, strict=False) if mode != "LEAF"] if has_leaf_modes else features
    )
    return any(not 0 <= feature < _INT32_END for feature in compared)


def _has_leafs_out_of_range(values: AttributeValues) -> bool:
    targets = number_of(values, "n_targets", 0)
    return any(not 0 <= target < targets for target in integers_of(values, "leaf_targetids"))


def _differ_anywhere(values: AttributeValues) -> bool:
    has_weights = _count(values, "class_weights") > 0 and _differ(values, "class", ("ids", "weights"))
    lists = (("nodes", (*_NODE_LISTS, "values")), ("class", _LEAF_LISTS))
    return has_weights or any(_differ(values, prefix, suffixes) for prefix, suffixes in lists)


_COMPARED = (
    ("TreeEnsembleRegressor", "target", "", ""),
    ("TreeEnsembleClassifier", "class", "", "1.20.1"),
    ("TreeEnsembleClassifier", "class", "1.25.0", ""),
)
"""Operators that compare the lengths of their lists, with the prefix of those of leaves, and the releases that do."""
MODEL_RESTRICTIONS = (
    structs.replace(
        _restrict(
            "TreeEnsembleClassifier",
            _differ_anywhere,
            "its lists have different lengths",
            "nodes_treeids",
            "1.21.0",
            "1.24.4",
        ),
        is_certain=False,
    ),
    _restrict("Scaler", _has_other_scales, "`scale` and `offset` must have the same length", "scale"),
    _restrict(
        "SVMRegressor",
        lambda values: _count(values, "rho") == 0,
        "`rho` is required",
        "rho",
        "1.26.0",
    ),
    _restrict(
        "SVMRegressor",
        _lacks_supports,
        "`coefficients` and `support_vectors` must have values for each of `n_supports`",
        "n_supports",
        "1.26.0",
    ),
    _restrict(
        "LinearClassifier",
        _labels_other_classes,
        "each class must have a label",
        "classlabels_ints",
        "1.28.0",
    ),
    *(
        _restrict(
            operator,
            partial(_differ, prefix="nodes", suffixes=(*_NODE_LISTS, "values")),
            "the lists `nodes_*` must have the same length",
            "nodes_treeids",
            first,
            last,
        )
        for operator, _, first, last in _COMPARED
    ),
    *(
        _restrict(
            operator,
            partial(_differ, prefix=role, suffixes=_LEAF_LISTS),
            f"the lists `{role}_*` must have the same length",
            f"{role}_ids",
            first,
            last,
        )
        for operator, role, first, last in _COMPARED
    ),
    *(
        _restrict(
            operator,
            lambda values, role=role: (
                _count(values, f"{role}_weights") > 0  # type: ignore[misc]
                and _differ(values, role, ("ids", "weights"))
            ),
            f"the lists `{role}_*` must have the same length",
            f"{role}_weights",
            first,
        )
        for operator, role, first in (
            ("TreeEnsembleRegressor", "target", "1.20.1"),
            ("TreeEnsembleClassifier", "class", "1.25.0"),
        )
    ),
    *(
        _restrict(
            operator,
            partial(_has_broken_trees, role=role),
            "each node of a tree must exist once",
            "nodes_nodeids",
        )
        for operator, role in (("TreeEnsembleRegressor", "target"), ("TreeEnsembleClassifier", "class"))
    ),
    _restrict(
        "TreeEnsembleRegressor",
        lambda values: values.get("n_targets", 0) is not None and number_of(values, "n_targets", 0) <= 0,
        "`n_targets` must be positive",
        "n_targets",
    ),
    *(
        _restrict(operator, _has_other_modes, "`nodes_modes` must contain known comparisons", "nodes_modes", "1.23.0")
        for operator in ("TreeEnsembleRegressor", "TreeEnsembleClassifier")
    ),
    _restrict(
        "TreeEnsembleRegressor",
        _has_targets_out_of_range,
        "`target_ids` must be less than `n_targets` and not negative",
        "target_ids",
        "1.26.0",
    ),
    _restrict(
        "TreeEnsembleClassifier",
        partial(_has_negatives, name="class_ids"),
        "`class_ids` must not be negative",
        "class_ids",
        "1.26.0",
    ),
    require(
        ("TreeEnsembleClassifier", "LinearClassifier", "SVMClassifier"),
        "post_transform",
        POST_TRANSFORMS,
        first="1.23.0",
        domain=ML_DOMAIN,
    ),
    require(("SVMClassifier",), "kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"), first="1.23.0", domain=ML_DOMAIN),
    *(
        _restrict(operator, partial(_lacks, name=name), f"`{name}` is required", name)
        for operator, name in (
            ("SVMClassifier", "coefficients"),
            ("SVMClassifier", "rho"),
            ("SVMRegressor", "coefficients"),
            ("SVMRegressor", "rho"),
            ("SVMClassifier", "kernel_params"),
            ("SVMRegressor", "kernel_params"),
            ("LinearRegressor", "coefficients"),
        )
    ),
    *(
        _restrict(
            operator,
            lambda values: _count(values, "kernel_params") not in (*_KERNEL_PARAMETERS, _UNKNOWN),
            "`kernel_params` must have 3 values",
            "kernel_params",
            "1.26.0",
        )
        for operator in ("SVMClassifier", "SVMRegressor")
    ),
    _restrict(
        "SVMClassifier",
        partial(_has_negatives, name="vectors_per_class"),
        "`vectors_per_class` must not be negative",
        "vectors_per_class",
        "1.26.0",
    ),
    _restrict(
        "LinearClassifier",
        lambda values: _count(values, "intercepts") == 0,
        "`intercepts` is required",
        "intercepts",
        "1.26.0",
    ),
    _restrict(
        "LinearRegressor",
        lambda values: number_of(values, "targets", 1) <= 0,
        "`targets` must be positive",
        "targets",
        "1.26.0",
    ),
    require(("CastMap",), "map_form", ("DENSE", "SPARSE"), domain=ML_DOMAIN),
    *(
        _restrict(operator, lambda values, names=names: _lists_none(values, *names), f"{text} is required", names[0])  # type: ignore[misc]
        for operator, names, text in (
            ("FeatureVectorizer", ("inputdimensions",), "`inputdimensions`"),
            ("OneHotEncoder", ("cats_int64s", "cats_strings"), "a category"),
            ("SVMClassifier", ("classlabels_ints", "classlabels_strings"), "a class label"),
            ("SVMClassifier", ("coefficients",), "`coefficients`"),
            ("TreeEnsembleClassifier", ("classlabels_int64s", "classlabels_strings"), "a class label"),
        )
    ),
    _restrict(
        "DictVectorizer",
        lambda values: not {"int64_vocabulary", "string_vocabulary"} & values.keys(),
        "a vocabulary is required",
        "int64_vocabulary",
    ),
    _restrict(
        "SVMClassifier",
        lambda values: len({_count(values, "prob_a"), _count(values, "prob_b")} - {_UNKNOWN}) > 1,
        "`prob_a` and `prob_b` must have the same length",
        "prob_a",
    ),
    _restrict(
        "SVMClassifier",
        lambda values: values.get("classlabels_strings") == (),
        "`classlabels_strings` must have values",
        "classlabels_strings",
    ),
    _restrict(
        "TreeEnsembleClassifier",
        _has_classes_out_of_range,
        "`class_ids` must be less than the number of class labels",
        "class_ids",
        "1.26.0",
    ),
    _restrict(
        "SVMClassifier",
        _separates_other_classes,
        "`vectors_per_class` must have a value for each class label",
        "vectors_per_class",
        "1.26.0",
    ),
    _restrict(
        "SVMClassifier",
        _lacks_vectors,
        "`coefficients` and `support_vectors` must have values for each vector of `vectors_per_class`",
        "support_vectors",
        "1.26.0",
    ),
    _restrict(
        "LinearClassifier",
        lambda values: _count(values, "coefficients") == 0,
        "`coefficients` is required",
        "coefficients",
        "1.26.0",
    ),
    _restrict(
        "LinearClassifier",
        _multiplies_other_classes,
        "the number of `coefficients` must be a multiple of that of `intercepts`",
        "coefficients",
        "1.28.0",
    ),
    *(
        _restrict(
            operator,
            lambda values, role=role: (  # type: ignore[misc]
                _count(values, f"{role}_weights") == 0
                and f"{role}_weights_as_tensor" not in values
                and _count(values, f"{role}_ids") > 0
            ),
            f"the lists `{role}_*` must have the same length",
            f"{role}_weights",
            "1.27.0",
        )
        for operator, role in (("TreeEnsembleRegressor", "target"), ("TreeEnsembleClassifier", "class"))
    ),
    _restrict(
        "TreeEnsembleRegressor",
        lambda values: (
            "base_values_as_tensor" not in values
            and _count(values, "base_values") not in (0, _UNKNOWN, number_of(values, "n_targets", 0))
        ),
        "`base_values` must have a value for each target",
        "base_values",
        "1.27.0",
    ),
    _restrict(
        "TreeEnsemble",
        lambda values: number_of(values, "n_targets", 0) <= 0,
        "`n_targets` must be positive",
        "n_targets",
        "1.28.0",
    ),
    _restrict(
        "TreeEnsemble",
        _has_leafs_out_of_range,
        "`leaf_targetids` must be less than `n_targets` and not negative",
        "leaf_targetids",
        "1.28.0",
    ),
    *(
        _restrict(
            operator,
            partial(_selects_wrong_features, has_leaf_modes=operator != "TreeEnsemble"),
            "`nodes_featureids` must be less than 2^31 and not negative, except for leaves",
            "nodes_featureids",
            "1.27.0",
        )
        for operator in ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
    ),
    *(
        _restrict("TreeEnsemble", partial(_has_negatives, name=name), f"`{name}` must not be negative", name)
        for name in ("nodes_truenodeids", "nodes_falsenodeids", "tree_roots")
    ),
    _restrict("TreeEnsemble", _has_nodes_out_of_range, "each node and leaf must exist", "tree_roots", "1.30.0"),
    _restrict(
        "ZipMap",
        lambda values: (_count(values, "classlabels_int64s") != 0) == (_count(values, "classlabels_strings") != 0),
        "either `classlabels_int64s` or `classlabels_strings` is required",
        "classlabels_int64s",
    ),
)
"""Attribute values that kernels of classical models reject.

Source: 158 models of these operators with lists that are too short, too long, absent or wrong, loaded on 31 releases
from 1.16.0 to 1.32.0; 60 of Scaler, LinearClassifier and SVMRegressor, loaded on 9 to 13 releases; models with 5 to 8
values of each attribute of these operators, loaded on 13 releases from 1.16.3 to 1.32.0. 1.21.0 to 1.24.4
crash on some of those of TreeEnsembleClassifier, and load others.
"""
