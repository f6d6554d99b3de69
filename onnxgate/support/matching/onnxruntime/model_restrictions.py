"""Attribute values of classical models (trees, linear models, support vectors) that kernels of ONNX Runtime reject."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec
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
_MERGED_MODES = ("BRANCH_EQ", "BRANCH_MEMBER")
"""Comparisons of neighboring nodes that newer releases merge."""
_INT32_END = 2**31
_KERNEL_PARAMETERS = (0, 3)
_UNKNOWN = -1
_BINARY = 2


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


def _wrap(number: int) -> int:
    """Return the low 32 bits, with their sign, which releases read of a number in `nodes_treeids`."""
    return (number + _INT32_END) % (2 * _INT32_END) - _INT32_END


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
    trees = tuple(map(_wrap, trees))
    known = set(zip(trees, nodes, strict=True))
    branches = [index for index, mode in enumerate(modes[: len(trees)]) if mode != "LEAF"]
    needed = {(trees[index], ids[index]) for ids in (true_nodes, false_nodes) for index in branches}
    needed.update(zip(leaf_trees, leaf_nodes, strict=False))
    is_own = any(ids[index] == nodes[index] for ids in (true_nodes, false_nodes) for index in branches)
    return len(known) < len(trees) or not needed <= known or is_own


def _visit_nodes(values: AttributeValues) -> tuple[Sequence[int], bool] | None:
    """Return the indexes of the nodes of trees in the order in which kernels read them, and whether they read all.

    Kernels read each node before its false node and its true node, and stop if the false node was read before. The
    result is None if a list is unknown.
    """
    names = ("nodes_treeids", "nodes_nodeids", "nodes_truenodeids", "nodes_falsenodeids")
    ids, *lists = (integers_of(values, name) for name in names)
    modes = values.get("nodes_modes")
    if not isinstance(modes, tuple) or {len(modes)} != {*map(len, (ids, *lists))}:
        return None
    if sum(map(modes.count, _MERGED_MODES)) > 1:
        return None
    trees = [_wrap(tree) for tree in ids]
    index_of = {pair: index for index, pair in enumerate(zip(trees, lists[0], strict=True))}
    true_nodes, false_nodes = ([index_of.get(it) for it in zip(trees, ids, strict=True)] for ids in lists[1:])
    read: list[int] = []
    place_of: dict[int, int] = {}  # in `read`; kernels take the first node for one that was not read
    for root in (index for index, tree in enumerate(trees) if index == 0 or trees[index - 1] not in {tree} - {-1}):
        ahead = [root]
        while ahead:
            index = ahead.pop()
            if place_of.get(index):
                continue
            place_of[index] = len(read)
            read.append(index)
            if modes[index] != "LEAF":
                true_node, false_node = true_nodes[index], false_nodes[index]
                if true_node is None or false_node is None:
                    return None
                if place_of.get(false_node):
                    return read, False
                ahead += (true_node, false_node)
    return read, True


def _shares_false_nodes(values: AttributeValues) -> bool:
    visit = _visit_nodes(values)
    return visit is not None and not visit[1]


def _has_unread_nodes(values: AttributeValues) -> bool:
    visit = _visit_nodes(values)
    return visit is not None and visit[1] and len(visit[0]) != _count(values, "nodes_treeids")


def _reads_other_features(values: AttributeValues) -> bool:
    """Return whether a node that is not a leaf reads a feature with a negative number, or one beyond 31 bits."""
    features, modes, visit = integers_of(values, "nodes_featureids"), values.get("nodes_modes"), _visit_nodes(values)
    if visit is None or not isinstance(modes, tuple) or len(features) != len(modes):
        return False
    return any(modes[index] != "LEAF" and not 0 <= features[index] < _INT32_END for index in visit[0])


def _has_few_weights(values: AttributeValues, role: str) -> bool:
    """Return whether there are fewer weights than leaves."""
    weights, ids = _count(values, f"{role}_weights"), _count(values, f"{role}_ids")
    return f"{role}_weights_as_tensor" not in values and 0 <= weights < ids


def _has_other_bases(values: AttributeValues) -> bool:
    """Return whether the base values of a TreeEnsembleClassifier do not fit the classes."""
    labels = _count(values, "classlabels_strings") or _count(values, "classlabels_int64s")
    bases = _count(values, "base_values")
    if "base_values_as_tensor" in values or _UNKNOWN in (labels, bases):
        return False
    return bases > _BINARY if labels <= _BINARY else bases not in (0, labels)


def _lacks_thresholds(values: AttributeValues) -> bool:
    """Return whether an SVMClassifier has fewer values of `rho` than it compares pairs of classes."""
    vectors = integers_of(values, "vectors_per_class")
    needed = len(vectors) * (len(vectors) - 1) // 2 if sum(vectors) > 0 else 1
    return 0 <= _count(values, "rho") < needed


def _imputes_other_types(values: AttributeValues) -> bool:
    counts = [_count(values, name) for name in ("imputed_value_floats", "imputed_value_int64s")]
    return _UNKNOWN not in counts and (counts[0] > 0) == (counts[1] > 0)


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


class _ReadTrees(msgspec.Struct):
    """What kernels read of a TreeEnsemble, from its roots on."""

    nodes: set[int] = msgspec.field(default_factory=set)  # indexes of existing nodes
    leafs: set[int] = msgspec.field(default_factory=set)  # indexes, also of leafs that do not exist
    indexes: list[tuple[int, int]] = msgspec.field(default_factory=list)  # of nodes or leafs, with their number
    is_shared: bool = False  # several nodes of a tree refer to the same one


def _read_trees(values: AttributeValues) -> _ReadTrees:
    trees = _ReadTrees()
    nodes, leafs = _count(values, "nodes_featureids"), _count(values, "leaf_targetids")
    names = (("nodes_truenodeids", "nodes_trueleafs"), ("nodes_falsenodeids", "nodes_falseleafs"))
    children = [(integers_of(values, ids), integers_of(values, flags)) for ids, flags in names]
    last_root: dict[int, int] = {}  # of each node
    for number, root in enumerate(integers_of(values, "tree_roots") if _UNKNOWN not in (nodes, leafs) else ()):
        ahead = [root]
        while ahead:
            index = ahead.pop()
            trees.indexes.append((index, nodes))
            trees.is_shared = trees.is_shared or last_root.get(index) == number
            last_root[index] = number
            if not 0 <= index < nodes or index in trees.nodes:
                continue
            trees.nodes.add(index)
            for ids, flags in children:
                if index < min(len(ids), len(flags)) and flags[index]:
                    trees.indexes.append((ids[index], leafs))
                    trees.leafs.add(ids[index])
                elif index < min(len(ids), len(flags)):
                    ahead.append(ids[index])
    return trees


def _has_nodes_out_of_range(values: AttributeValues) -> bool:
    """Return whether a TreeEnsemble refers to a node or leaf that does not exist."""
    return any(index >= count for index, count in _read_trees(values).indexes)


def _has_negative_nodes(values: AttributeValues) -> bool:
    return any(index < 0 for index, _ in _read_trees(values).indexes)


def _has_feature_out_of_range(values: AttributeValues) -> bool:
    features = integers_of(values, "nodes_featureids")
    return bool(features) and any(not 0 <= features[index] < _INT32_END for index in _read_trees(values).nodes)


def _has_leafs_out_of_range(values: AttributeValues) -> bool:
    count, targets = number_of(values, "n_targets", 0), integers_of(values, "leaf_targetids")
    reached = [targets[leaf] for leaf in _read_trees(values).leafs if 0 <= leaf < len(targets)]
    return any(not 0 <= target < count for target in reached)


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
            last,
        )
        for operator, role, first, last in (
            ("TreeEnsembleRegressor", "target", "1.20.0", ""),
            ("TreeEnsembleClassifier", "class", "1.20.0", "1.20.1"),
            ("TreeEnsembleClassifier", "class", "1.25.0", ""),
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
    *(
        restriction
        for operator in ("TreeEnsembleRegressor", "TreeEnsembleClassifier")
        for restriction in (
            _restrict(
                operator,
                _shares_false_nodes,
                "a false node must not be the child of several nodes",
                "nodes_falsenodeids",
                "1.16.1",
            ),
            _restrict(
                operator,
                _has_unread_nodes,
                "the first node of a tree must lead to all others",
                "nodes_nodeids",
                "1.16.1",
                "1.20.1",
            ),
            _restrict(
                operator,
                _reads_other_features,
                "`nodes_featureids` of nodes that are not leaves must be between 0 and 2^31 - 1",
                "nodes_featureids",
                "1.27.0",
            ),
        )
    ),
    _restrict(
        "TreeEnsemble",
        _has_feature_out_of_range,
        "`nodes_featureids` must be between 0 and 2^31 - 1",
        "nodes_featureids",
        "1.27.0",
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
    require(("SVMRegressor",), "post_transform", POST_TRANSFORMS, first="1.23.0", domain=ML_DOMAIN),
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
            ("SVMRegressor", ("coefficients",), "`coefficients`"),
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
    _restrict("TreeEnsemble", _has_negative_nodes, "numbers of nodes and leafs must not be negative", "tree_roots"),
    _restrict(
        "TreeEnsemble",
        lambda values: _read_trees(values).is_shared,
        "a node must not be the child of several nodes",
        "nodes_truenodeids",
        "1.30.0",
    ),
    _restrict(
        "TreeEnsembleClassifier",
        _has_other_bases,
        "`base_values` must have a value for each class",
        "base_values",
        "1.27.0",
    ),
    _restrict(
        "SVMClassifier",
        _lacks_thresholds,
        "`rho` must have a value for each pair of classes",
        "rho",
        "1.25.0",
    ),
    _restrict(
        "CastMap",
        lambda values: values.get("map_form") == "SPARSE" and number_of(values, "max_map", 1) <= 0,
        "`max_map` must be positive",
        "max_map",
    ),
    _restrict(
        "Imputer",
        _imputes_other_types,
        "either `imputed_value_floats` or `imputed_value_int64s` is required",
        "imputed_value_floats",
    ),
    ReleaseRestriction(
        ("LabelEncoder",),
        partial(_lacks, name="classes_strings"),
        "`classes_strings` is required",
        attribute="classes_strings",
        until=1,
        domain=ML_DOMAIN,
    ),
    _restrict("TreeEnsemble", _has_nodes_out_of_range, "each node and leaf must exist", "tree_roots", "1.30.0"),
    _restrict(
        "ZipMap",
        lambda values: (_count(values, "classlabels_int64s") != 0) == (_count(values, "classlabels_strings") != 0),
        "either `classlabels_int64s` or `classlabels_strings` is required",
        "classlabels_int64s",
    ),
    *(
        structs.replace(restriction, is_certain=False)
        for restriction in (
            _restrict(
                "TreeEnsembleRegressor",
                partial(_has_few_weights, role="target"),
                "each leaf needs a weight",
                "target_weights",
                last="1.26.0",
            ),
            _restrict(
                "TreeEnsembleClassifier",
                partial(_has_few_weights, role="class"),
                "each leaf needs a weight",
                "class_weights",
                last="1.26.0",
            ),
            *(
                _restrict(
                    operator,
                    lambda values: 0 < _count(values, "kernel_params") < max(_KERNEL_PARAMETERS),
                    "`kernel_params` must have 3 values",
                    "kernel_params",
                    last="1.25.1",
                )
                for operator in ("SVMClassifier", "SVMRegressor")
            ),
            _restrict(
                "TreeEnsemble",
                _has_nodes_out_of_range,
                "each node and leaf must exist",
                "tree_roots",
                "1.21.0",
                "1.29.0",
            ),
        )
    ),
)
"""Attribute values that kernels of classical models reject.

Source: 158 models of these operators with lists that are too short, too long, absent or wrong, loaded on 31 releases
from 1.16.0 to 1.32.0; 60 of Scaler, LinearClassifier and SVMRegressor, loaded on 9 to 13 releases; models with 5 to 8
values of each attribute of these operators, loaded on 13 releases from 1.16.3 to 1.32.0; 3,000 models of 30 such
operators with one or two attributes changed, loaded on 8 of them, and the 85 refused ones among those with one
attribute changed on 23. Releases that crash on some of the models that a restriction concerns may load others.
"""
