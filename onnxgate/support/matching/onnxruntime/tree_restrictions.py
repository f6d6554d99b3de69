"""Attribute values of tree ensembles that kernels of ONNX Runtime reject."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import structs

from onnxgate.support.matching.attribute_values import AttributeValues, integers_of, number_of
from onnxgate.support.matching.onnxruntime.model_restrictions import UNKNOWN, count_elements, has_negatives, restrict

_NODE_LISTS = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids")
_LEAF_LISTS = ("treeids", "nodeids", "ids")
_MODES = frozenset(
    ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER", "LEAF")
)
_MERGED_MODES = ("BRANCH_EQ", "BRANCH_MEMBER")
"""Comparisons of neighboring nodes that newer releases merge."""
_INT32_END = 2**31
_BINARY = 2


def _differ(values: AttributeValues, prefix: str, suffixes: Sequence[str]) -> bool:
    """Return whether lists of trees have different lengths. Values may be in a tensor instead of a list."""
    names = [f"{prefix}_{suffix}" for suffix in suffixes]
    counts = {count_elements(values, name) for name in names if f"{name}_as_tensor" not in values}
    return len(counts - {UNKNOWN}) > 1


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
    return visit is not None and visit[1] and len(visit[0]) != count_elements(values, "nodes_treeids")


def _reads_other_features(values: AttributeValues) -> bool:
    """Return whether a node that is not a leaf reads a feature with a negative number, or one beyond 31 bits."""
    features, modes, visit = integers_of(values, "nodes_featureids"), values.get("nodes_modes"), _visit_nodes(values)
    if visit is None or not isinstance(modes, tuple) or len(features) != len(modes):
        return False
    return any(modes[index] != "LEAF" and not 0 <= features[index] < _INT32_END for index in visit[0])


def _has_few_weights(values: AttributeValues, role: str) -> bool:
    """Return whether there are fewer weights than leaves."""
    weights, ids = count_elements(values, f"{role}_weights"), count_elements(values, f"{role}_ids")
    return f"{role}_weights_as_tensor" not in values and 0 <= weights < ids


def _has_other_bases(values: AttributeValues) -> bool:
    """Return whether the base values of a TreeEnsembleClassifier do not fit the classes."""
    labels = count_elements(values, "classlabels_strings") or count_elements(values, "classlabels_int64s")
    bases = count_elements(values, "base_values")
    if "base_values_as_tensor" in values or UNKNOWN in (labels, bases):
        return False
    return bases > _BINARY if labels <= _BINARY else bases not in (0, labels)


def _has_other_modes(values: AttributeValues) -> bool:
    modes = values.get("nodes_modes")
    return isinstance(modes, tuple) and not _MODES.issuperset(modes)


def _has_targets_out_of_range(values: AttributeValues) -> bool:
    targets = integers_of(values, "target_ids")
    count = number_of(values, "n_targets", 0)
    return any(not 0 <= target < count for target in targets)


def _has_classes_out_of_range(values: AttributeValues) -> bool:
    """Return whether a leaf of a TreeEnsembleClassifier belongs to a class without a label."""
    labels = count_elements(values, "classlabels_strings") or count_elements(values, "classlabels_int64s")
    return labels > 0 and max(integers_of(values, "class_ids"), default=0) >= labels


class _ReadTrees(msgspec.Struct):
    """Nodes and leaves of a TreeEnsemble that its kernel reaches from the roots."""

    nodes: set[int] = msgspec.field(default_factory=set)  # indexes of existing nodes
    leaves: set[int] = msgspec.field(default_factory=set)  # indexes, also of leaves that do not exist
    indexes: list[tuple[int, int]] = msgspec.field(default_factory=list)  # of nodes or leaves, with their number
    is_shared: bool = False  # several nodes of a tree refer to the same one


def _read_trees(values: AttributeValues) -> _ReadTrees:
    trees = _ReadTrees()
    nodes, leaves = count_elements(values, "nodes_featureids"), count_elements(values, "leaf_targetids")
    names = (("nodes_truenodeids", "nodes_trueleafs"), ("nodes_falsenodeids", "nodes_falseleafs"))
    children = [(integers_of(values, ids), integers_of(values, flags)) for ids, flags in names]
    last_root: dict[int, int] = {}  # of each node
    for number, root in enumerate(integers_of(values, "tree_roots") if UNKNOWN not in (nodes, leaves) else ()):
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
                    trees.indexes.append((ids[index], leaves))
                    trees.leaves.add(ids[index])
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


def _has_leaves_out_of_range(values: AttributeValues) -> bool:
    count, targets = number_of(values, "n_targets", 0), integers_of(values, "leaf_targetids")
    reached = [targets[leaf] for leaf in _read_trees(values).leaves if 0 <= leaf < len(targets)]
    return any(not 0 <= target < count for target in reached)


def _differ_anywhere(values: AttributeValues) -> bool:
    has_weights = count_elements(values, "class_weights") > 0 and _differ(values, "class", ("ids", "weights"))
    lists = (("nodes", (*_NODE_LISTS, "values")), ("class", _LEAF_LISTS))
    return has_weights or any(_differ(values, prefix, suffixes) for prefix, suffixes in lists)


_COMPARED = (
    ("TreeEnsembleRegressor", "target", "", ""),
    ("TreeEnsembleClassifier", "class", "", "1.20.1"),
    ("TreeEnsembleClassifier", "class", "1.25.0", ""),
)
"""Operators that compare the lengths of their lists, with the prefix of those of leaves, and the releases that do."""

TREE_RESTRICTIONS = (
    structs.replace(
        restrict(
            "TreeEnsembleClassifier",
            _differ_anywhere,
            "its lists have different lengths",
            "nodes_treeids",
            "1.21.0",
            "1.24.4",
        ),
        is_certain=False,
    ),
    *(
        restrict(
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
        restrict(
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
        restrict(
            operator,
            lambda values, role=role: (
                count_elements(values, f"{role}_weights") > 0  # type: ignore[misc]
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
        restrict(
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
            restrict(
                operator,
                _shares_false_nodes,
                "a false node must not be the child of several nodes",
                "nodes_falsenodeids",
                "1.16.1",
            ),
            restrict(
                operator,
                _has_unread_nodes,
                "the first node of a tree must lead to all others",
                "nodes_nodeids",
                "1.16.1",
                "1.20.1",
            ),
            restrict(
                operator,
                _reads_other_features,
                "`nodes_featureids` of nodes that are not leaves must be between 0 and 2^31 - 1",
                "nodes_featureids",
                "1.27.0",
            ),
        )
    ),
    restrict(
        "TreeEnsemble",
        _has_feature_out_of_range,
        "`nodes_featureids` must be between 0 and 2^31 - 1",
        "nodes_featureids",
        "1.27.0",
    ),
    restrict(
        "TreeEnsembleRegressor",
        lambda values: values.get("n_targets", 0) is not None and number_of(values, "n_targets", 0) <= 0,
        "`n_targets` must be positive",
        "n_targets",
    ),
    *(
        restrict(operator, _has_other_modes, "`nodes_modes` must contain known comparisons", "nodes_modes", "1.23.0")
        for operator in ("TreeEnsembleRegressor", "TreeEnsembleClassifier")
    ),
    restrict(
        "TreeEnsembleRegressor",
        _has_targets_out_of_range,
        "`target_ids` must be less than `n_targets` and not negative",
        "target_ids",
        "1.26.0",
    ),
    restrict(
        "TreeEnsembleClassifier",
        partial(has_negatives, name="class_ids"),
        "`class_ids` must not be negative",
        "class_ids",
        "1.26.0",
    ),
    restrict(
        "TreeEnsembleClassifier",
        _has_classes_out_of_range,
        "`class_ids` must be less than the number of class labels",
        "class_ids",
        "1.26.0",
    ),
    *(
        restrict(
            operator,
            lambda values, role=role: (  # type: ignore[misc]
                count_elements(values, f"{role}_weights") == 0
                and f"{role}_weights_as_tensor" not in values
                and count_elements(values, f"{role}_ids") > 0
            ),
            f"the lists `{role}_*` must have the same length",
            f"{role}_weights",
            "1.27.0",
        )
        for operator, role in (("TreeEnsembleRegressor", "target"), ("TreeEnsembleClassifier", "class"))
    ),
    restrict(
        "TreeEnsembleRegressor",
        lambda values: (
            "base_values_as_tensor" not in values
            and count_elements(values, "base_values") not in (0, UNKNOWN, number_of(values, "n_targets", 0))
        ),
        "`base_values` must have a value for each target",
        "base_values",
        "1.27.0",
    ),
    restrict(
        "TreeEnsemble",
        lambda values: number_of(values, "n_targets", 0) <= 0,
        "`n_targets` must be positive",
        "n_targets",
        "1.28.0",
    ),
    restrict(
        "TreeEnsemble",
        _has_leaves_out_of_range,
        "`leaf_targetids` must be less than `n_targets` and not negative",
        "leaf_targetids",
        "1.28.0",
    ),
    restrict("TreeEnsemble", _has_negative_nodes, "numbers of nodes and leaves must not be negative", "tree_roots"),
    restrict(
        "TreeEnsemble",
        lambda values: _read_trees(values).is_shared,
        "a node must not be the child of several nodes",
        "nodes_truenodeids",
        "1.30.0",
    ),
    restrict(
        "TreeEnsembleClassifier",
        _has_other_bases,
        "`base_values` must have a value for each class",
        "base_values",
        "1.27.0",
    ),
    restrict("TreeEnsemble", _has_nodes_out_of_range, "each node and leaf must exist", "tree_roots", "1.30.0"),
    *(
        structs.replace(restriction, is_certain=False)
        for restriction in (
            restrict(
                "TreeEnsembleRegressor",
                partial(_has_few_weights, role="target"),
                "each leaf needs a weight",
                "target_weights",
                last="1.26.0",
            ),
            restrict(
                "TreeEnsembleClassifier",
                partial(_has_few_weights, role="class"),
                "each leaf needs a weight",
                "class_weights",
                last="1.26.0",
            ),
            restrict(
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
"""Attribute values that kernels of tree ensembles reject. Source: see `MODEL_RESTRICTIONS`."""
