"""Find the nodes that ONNX Runtime's optimizer may remove or fuse, so that they need no kernels.

Source: 189 patterns of nodes, of 10 types in opsets 11 to 24, loaded on 4 to 14 releases; 231 variants of those that
load without kernels, loaded on 9 releases from 1.16.3 to 1.32.0.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from onnxgate.core.findings import is_release_within
from onnxgate.model.facts import DEFAULT_DOMAIN
from onnxgate.model.reading.view import NodeView
from onnxgate.support.matching.graph_values import GraphValues
from onnxgate.support.matching.onnxruntime.optimizer_changes import OptimizerChanges
from onnxgate.support.matching.operations import Operation, Removal, TypedNode

_BFLOAT16 = "tensor(bfloat16)"
_WITH_RELU = frozenset({"tensor(double)", "tensor(float)", "tensor(float16)"})
"""Types for which all releases have a kernel for Relu, or insert casts."""
_PASSED = frozenset({"Cast", "Identity"})
_LAYER_PARTS = frozenset({"Add", "Div", "Mul", "Pow", "ReduceMean", "Sqrt", "Sub"})
_FIRST_LAYER_OPSET = 17
"""First opset in which LayerNormalization has a function body, which accepts bfloat16."""
_FIRST_RELEASES = {
    "branch": "1.17.0",
    "inlined": "1.17.0",
    "clip": "",
    "expand": "",
    "layer": "1.30.0",
    "shape": "",
    "returned": "1.17.0",
}
_REASONS = {
    "branch": "the optimizer may remove the branch of `If` that contains `{}`",
    "inlined": "the optimizer may replace `{}` by one of its branches",
    "clip": "the optimizer may remove `{}`, because `Clip` follows",
    "expand": "the optimizer may remove `{}`, because it may not change the shape",
    "layer": "the optimizer may fuse `{}` and its neighbors into `LayerNormalization`",
    "returned": "the optimizer may remove `{}`, whose output a local function returns",
    "shape": "the optimizer may remove `{}`, because only the shape of its output is used",
}


def explain_removal(operation: Operation, release: str) -> str:
    """Return why an operation may not need a kernel on a release; "" if it certainly needs one."""
    removal = operation.traits.removal
    if not removal or not is_release_within(release, _FIRST_RELEASES[removal], ""):
        return ""
    return _REASONS[removal].format(operation.label)


class RemovedNodes:
    """The nodes of one graph that the optimizer may remove or fuse."""

    def __init__(self, values: GraphValues, changes: OptimizerChanges) -> None:
        self._values = values
        self._changes = changes
        self._unread: set[NodeView] | None = None
        self._layers: set[NodeView] | None = None

    def find(self, node: NodeView, operation: Operation) -> Removal:
        """Return why the optimizer may remove or fuse a node; "" if it certainly does not."""
        if self._unread is None:
            self._unread = self._list_unread()
        if node in self._unread:
            return "shape"
        if (operation.domain, operation.name) == (DEFAULT_DOMAIN, "Dropout") and self._values.is_in_function:
            return "returned" if any(map(self._values.is_output, node.outputs)) else ""
        if (operation.domain, operation.name) == (DEFAULT_DOMAIN, "Relu") and _WITH_RELU.isdisjoint(operation.inputs):
            return "clip" if self._is_clipped(node) else ""
        if operation.domain != DEFAULT_DOMAIN or _BFLOAT16 not in (*operation.inputs, *operation.outputs):
            return ""
        if operation.name == "Expand":
            return "expand" if self._may_keep_shape(node) else ""
        if operation.name not in _LAYER_PARTS or operation.opset < _FIRST_LAYER_OPSET:
            return ""
        merged = self._changes.merged
        if self._layers is None:
            self._layers = {part for it in merged.values.graph.nodes for part in _list_layer(merged.values, it)}
        return "layer" if merged.find(node) in self._layers else ""

    def list_removed_branches(self, node: NodeView) -> frozenset[int]:
        """Return the indexes of the subgraphs of an If that are removed if its condition is or becomes a constant."""
        if node.operator[:2] != (DEFAULT_DOMAIN, "If") or not node.inputs:
            return frozenset()
        if not self._values.may_be_folded(node.inputs[0]):
            return frozenset()
        names = [attribute.name for attribute in node.attributes if attribute.HasField("g")]
        tensor = self._values.constant(node.inputs[0])
        condition = tensor.raw_data or tensor.int32_data if tensor is not None else ()
        kept = ("then_branch" if condition[0] else "else_branch") if condition else ""
        return frozenset(index for index, name in enumerate(names) if name != kept)

    def _list_unread(self) -> set[NodeView]:
        """Return the nodes with outputs of which only the shape is used, and it is known when the model is loaded."""
        values = self._values
        found: set[NodeView] = set()
        ahead = [node.inputs[0] for node in values.graph.nodes if node.operator[1] == "Shape" and node.inputs]
        while ahead:
            maker = values.producer(ahead.pop())
            if maker is None or maker in found or maker.operator[1] == "Constant":
                continue
            outputs = [name for name in maker.outputs if name]
            if any(values.is_output(name) or name in values.list_captured() for name in outputs):
                continue
            users = [user for name in outputs for user in values.list_users(name)]
            if all(it in found or (it.operator[1] == "Shape" and values.is_fixed(it.inputs[0])) for it in users):
                found.add(maker)
                ahead += filter(None, maker.inputs)
        return found

    def _is_clipped(self, node: NodeView) -> bool:
        """Return whether only Clip takes the output of a node."""
        merged = self._changes.merged
        found = merged.find(node)
        users = [user for name in found.outputs for user in merged.values.list_users(name)] if found is not None else []
        return bool(users) and all(user.operator[:2] == (DEFAULT_DOMAIN, "Clip") for user in users)

    def _may_keep_shape(self, node: NodeView) -> bool:
        """Return whether an Expand may have a constant shape that is the one of its input."""
        if len(node.inputs) <= 1 or not node.outputs or not self._values.may_be_folded(node.inputs[1]):
            return False
        before, after = node.inputs[0], node.outputs[0]
        if self._values.producer(before) is None and self._values.is_output(after):
            return False
        if not (self._values.is_fixed(before) and self._values.is_fixed(after)):
            return True
        types = [self._values.type_of(name) for name in (before, after)]
        sizes = [[dim.dim_value for dim in it.tensor_type.shape.dim] for it in types if it is not None]
        return sizes[0] == sizes[1]


def _list_layer(values: GraphValues, division: NodeView) -> Iterator[NodeView]:
    """Yield the nodes of a decomposed LayerNormalization, by the node that divides by the standard deviation."""
    if division.operator[1] != "Div":
        return
    deviation, root = _find_maker(values, division, "Sub", 0), _find_maker(values, division, "Sqrt", 1)
    total = _find_maker(values, root, "Add", 0, 1)
    means = [_find_maker(values, total, "ReduceMean", index) for index in range(2)]
    mean = _find_maker(values, deviation, "ReduceMean", 1)
    power = _find_maker(values, next(filter(None, means), None), "Pow", 0)
    other = _find_maker(values, power, "Sub", 0)
    if mean is None or other is None:
        return
    scaled = list(_iterate_users(values, division, "Mul"))
    shifted = [user for node in scaled for user in _iterate_users(values, node, "Add")]
    if shifted:
        yield from filter(None, (division, deviation, root, total, *means, mean, power, other, *scaled, *shifted))


def _find_maker(values: GraphValues, node: NodeView | None, operator: str, *indexes: int) -> NodeView | None:
    """Return the node with an operator that makes one of some inputs of a node, also before casts."""
    for index in indexes if node is not None else ():
        name = node.inputs[index] if node is not None and index < len(node.inputs) else ""
        passed = set()
        while (maker := values.producer(name)) is not None and maker.operator[1] in _PASSED and maker.inputs:
            name = maker.inputs[0]
            if name in passed:  # the graph is not acyclic
                return None
            passed.add(name)
        if maker is not None and maker.operator[:2] == (DEFAULT_DOMAIN, operator):
            return maker
    return None


def _iterate_users(values: GraphValues, node: NodeView, operator: str) -> Iterator[NodeView]:
    """Yield the nodes with an operator that take the outputs of a node, also after casts."""
    found: dict[str, None] = dict.fromkeys(node.outputs)
    ahead = list(found)
    while ahead:
        for user in values.list_users(ahead.pop()):
            if user.operator[1] in _PASSED:
                ahead += [name for name in user.outputs if name not in found]
                found |= dict.fromkeys(user.outputs)
            elif user.operator[:2] == (DEFAULT_DOMAIN, operator):
                yield user


def mark_removed(nodes: Iterable[TypedNode], removal: Removal) -> tuple[TypedNode, ...]:
    """Return nodes that the optimizer may remove for the same reason, with the nodes inside them."""
    known: dict[int, tuple[TypedNode, ...]] = {}

    def change(operation: Operation) -> Operation:
        own = operation.traits.removal
        reason = own if own and not _FIRST_RELEASES[own] else removal
        return replace(operation, traits=replace(operation.traits, removal=reason))

    def mark(inside: Sequence[TypedNode]) -> tuple[TypedNode, ...]:
        if id(inside) not in known:  # calls of one function share its nodes
            known[id(inside)] = tuple(
                replace(node, operation=change(node.operation), inner=mark(node.inner) if node.inner else ())
                for node in inside
            )
        return known[id(inside)]

    return mark(tuple(nodes))
