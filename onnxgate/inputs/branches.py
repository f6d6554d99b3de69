"""Branches of `If` nodes: those that a set of inputs chooses, and values of inputs that choose the others."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from onnxgate.core.process_pool import FailedCallError
from onnxgate.inputs.scopes import Scope, create_scope, get_output_name, get_scope_key, list_scopes, resolve
from onnxgate.model.facts import DEFAULT_DOMAIN, count_tensor_elements
from onnxgate.model.onnx_functions import OnnxError, ignore_error, infer_shapes
from onnxgate.model.reading.tensor_data import read_array
from onnxgate.model.reading.view import ModelView, NodeView

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

Shape = tuple[int, ...]
NO_VALUES: Mapping[str, Array] = {}
ThenBranch = bool  # True for `then_branch` and for the body of a `Loop`, False for `else_branch`

EVALUATED_OPERATORS = frozenset(
    (
        *("Identity", "Constant", "Cast", "ConstantOfShape", "Shape", "Size", "Unsqueeze", "Squeeze", "Reshape"),
        *("Transpose", "Concat"),
        *("Gather", "Slice", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor", "Not"),
        *("Where", "Add", "Sub", "Mul", "Div", "Mod", "Neg", "Abs", "Min", "Max", "Sign", "Floor", "Ceil", "Round"),
        *("Reciprocal", "Clip", "Split", "CastLike", "CumSum"),
        *("ReduceSum", "ReduceProd", "ReduceMax", "ReduceMin"),
    )
)
"""Operators with exact results, which are evaluated here. Except for those in `_count_created`, their outputs have at
most as many elements as the product of the sizes of their inputs."""
FOLDED_OPERATORS = frozenset(("Pad", "Reshape", "Slice", "Expand", "Tile", "Unsqueeze", "Squeeze", "Resize", "Split"))
"""Operators whose output shape depends on constants, which exporters often compute from other constants."""
BRANCH_FAULTS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Exceptions of the analysis of an invalid model. They must not end the check of other models."""
MAX_EVALUATED_ELEMENTS = 1 << 16
"""Maximum number of elements of a value that is evaluated."""
MAX_EVALUATED_DEPTH = 100
"""Maximum number of consecutive nodes that are evaluated."""
MAX_SMALL_CONSTANT = 64
"""Maximum number of elements of a constant that conditions may compare an input with."""


@dataclass(frozen=True, slots=True, eq=False)
class Conditional:
    """An `If` or `Loop` node and its scope. `outer` is the `If` or `Loop` node that contains it."""

    node: NodeView
    scope: Scope
    outer: Conditional | None = None

    @property
    def conditions(self) -> tuple[str, ...]:
        """Names of the values that choose the branch. The body of a `Loop` runs if all are positive or true."""
        names = self.node.inputs[:2] if self.is_loop else self.node.inputs[:1]
        return tuple(filter(None, names))

    @property
    def is_loop(self) -> bool:
        """Whether this is a `Loop` node, which has a single branch: its body."""
        return self.node.operator[1] == "Loop"

    @property
    def enclosing(self) -> tuple[Conditional, ...]:
        """This node and those that contain it."""
        return (self, *(self.outer.enclosing if self.outer is not None else ()))


Branch = tuple[Conditional, ThenBranch]


@dataclass(frozen=True, slots=True)
class ChosenBranches:
    """Branches that a set of inputs chooses. The conditions of the nodes in `unknown` cannot be evaluated."""

    chosen: frozenset[Branch]
    unknown: frozenset[Conditional]


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Inputs on which a condition depends, and small constants from which it is computed."""

    values: frozenset[str]  # inputs whose elements are used
    constants: tuple[float, ...]
    is_exact: bool  # whether all operators can be evaluated


class BranchGraph:
    """The `If` and `Loop` nodes of a model without local functions."""

    def __init__(self, model: ModelView) -> None:
        self._model = model
        self._opsets = model.proto.opset_import
        self._inputs = {value.name for value in model.proto.graph.input}
        self.main = create_scope(model.graphs[0], None, is_loop=False)
        self.conditionals = tuple(_list_conditionals(self.main))
        self.skipped_loops: frozenset[Branch] = frozenset((it, False) for it in self.conditionals if it.is_loop)
        self._folded: ModelProto | None = None
        self._shapes: dict[tuple[tuple[str, Shape], ...], Mapping[str, Shape]] = {}
        self._is_uninferable = False

    @functools.cached_property
    def enclosing(self) -> Mapping[int, tuple[Branch, ...]]:
        """Branches that contain a node, by the identity of its proto; nodes of the main graph are left out."""
        by_node = {id(it.node): it for it in self.conditionals}
        found: dict[int, tuple[Branch, ...]] = {}
        pending: list[tuple[Scope, tuple[Branch, ...]]] = [(self.main, ())]
        while pending:
            scope, outer = pending.pop()
            for node in scope.graph.nodes:
                if outer:
                    found[id(node.proto)] = outer
                conditional = by_node.get(id(node))
                bodies = scope.bodies.get(get_scope_key(node), {}) if node.graphs else {}
                for name, body in bodies.items():
                    inner: tuple[Branch, ...] = ((conditional, name != "else_branch"),) if conditional else ()
                    pending.append((body, (*outer, *inner)))
        return found

    def evaluate(
        self,
        shapes: Mapping[str, Shape],
        read: Callable[[str], Array | None],
        observed: Mapping[str, Array] = NO_VALUES,
    ) -> Evaluation:
        """Return the evaluation of a model with inputs of these shapes. `read` returns the elements of an input.

        `observed` are values in the main graph that a runtime computed.
        """
        return Evaluation(self, shapes, read, observed)

    def is_in_main_graph(self, conditional: Conditional) -> bool:
        """Return whether nodes in the main graph compute the conditions."""
        scopes = {resolve(name, conditional.scope) for name in conditional.conditions}
        return self.main in scopes and all(name in self.main.producers for name in conditional.conditions)

    def count_nodes(self) -> int:
        """Return the number of nodes of the model."""
        return sum(1 for _ in self._model.nodes())

    def is_input(self, name: str) -> bool:
        """Return whether a value is an input of the model that no initializer provides."""
        return name in self._inputs and name not in self.main.tensors

    def dependencies(self, conditional: Conditional) -> Dependencies:
        """Return what the condition of an `If` node depends on."""
        return _trace(self, conditional)

    def infer_shapes(self, shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
        """Return the shapes of values if the inputs have these shapes, as far as they can be inferred.

        After inference has crashed or exceeded a limit, no shapes are inferred, because each attempt may take minutes.
        """
        key = tuple(sorted(shapes.items()))
        if key not in self._shapes and not self._is_uninferable:
            try:
                self._shapes[key] = _infer_shapes(self._fold_arguments(), shapes)
            except FailedCallError as error:
                self._is_uninferable = True
                ignore_error(error)
        return self._shapes.get(key, {})

    def _fold_arguments(self) -> ModelProto:
        """Return the model with computed constants, such as the padding of a `Pad` node, as initializers.

        Shapes that the model declares are removed, as they may be wrong. Local functions that are not followed are also
        removed, because inference would follow each call without a limit.
        """
        if self._folded is not None:
            return self._folded
        copy = ModelProto()
        copy.CopyFrom(self._model.proto)
        graphs = {id(view): other.proto for view, other in zip(self._model.graphs, ModelView(copy).graphs, strict=True)}
        evaluation = Evaluation(self, {}, lambda _: None, NO_VALUES)
        self._shapes[()] = {}  # constants may not depend on shapes that are inferred from the result
        for scope in list_scopes(self.main):
            graph = graphs[id(scope.graph)]
            del graph.value_info[:]
            for output in graph.output:
                output.type.tensor_type.ClearField("shape")
            for node, other in zip(scope.graph.nodes, graph.node, strict=True):
                if node.operator[1] in FOLDED_OPERATORS:
                    _fold_node(other, graph, evaluation.constants(node, scope))
        del self._shapes[()]
        copy.ClearField("functions")
        self._folded = copy
        return copy

    def compute(self, node: NodeView, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """Return the outputs of a node for these inputs."""
        function = FunctionProto(name="f", domain="onnxgate", opset_import=self._opsets, node=[node.proto])
        function.input.extend(dict.fromkeys(filter(None, node.inputs)))
        function.output.extend(filter(None, node.outputs))
        feeds = {name: value for name, value in zip(node.inputs, inputs, strict=True) if name and value is not None}
        return tuple(np.asarray(output) for output in ReferenceEvaluator(function).run(None, feeds, attributes={}))


def _is_if(node: NodeView) -> bool:
    return node.operator[:2] == (DEFAULT_DOMAIN, "If")


def _list_conditionals(scope: Scope, outer: Conditional | None = None) -> Iterator[Conditional]:
    for node in scope.graph.nodes:
        inner = outer
        if _is_if(node) or node.operator[:2] == (DEFAULT_DOMAIN, "Loop"):
            inner = Conditional(node, scope, outer)
            yield inner
        for body in scope.bodies.get(get_scope_key(node), {}).values() if node.graphs else ():
            yield from _list_conditionals(body, inner)


class Evaluation:
    """Values and shapes in a model with one set of inputs, computed as needed. None means unknown."""

    def __init__(
        self,
        branches: BranchGraph,
        shapes: Mapping[str, Shape],
        read: Callable[[str], Array | None],
        observed: Mapping[str, Array],
    ) -> None:
        self._branches, self._input_shapes, self._read = branches, shapes, read
        values = {(id(branches.main), name): value for name, value in observed.items()}
        self._values: dict[tuple[int, str], Array | None] = {**values}
        self._by_node = {(id(it.node)): it for it in branches.conditionals}

    def choose(self) -> ChosenBranches:
        """Return the branches that the inputs choose."""
        chosen: set[Branch] = set()
        unknown: set[Conditional] = set()
        pending = [self._branches.main]
        while pending:
            scope = pending.pop()
            for node in scope.graph.nodes:
                bodies = scope.bodies.get(get_scope_key(node), {}) if node.graphs else {}
                conditional = self._by_node.get(id(node))
                truth = self._choice(conditional) if conditional is not None else None
                if conditional is not None and truth is not None:
                    chosen.add((conditional, truth))
                    pending += filter(None, [bodies.get(_attribute(conditional, truth))])
                elif conditional is None or conditional.is_loop:
                    pending += bodies.values()
                    unknown.update(filter(None, [conditional]))
                else:
                    unknown.update(it for it in self._branches.conditionals if conditional in it.enclosing)
        return ChosenBranches(frozenset(chosen), frozenset(unknown))

    def value(self, name: str, scope: Scope) -> Array | None:
        """Return the elements of a value."""
        return self._value(name, scope, 0)

    def shape(self, name: str, scope: Scope) -> Shape | None:
        """Return the shape of a value."""
        return self._shape(name, scope, 0)

    def constants(self, node: NodeView, scope: Scope) -> dict[int, Array]:
        """Return the inputs of a node, other than the first one, that are computed from constants."""
        names = ((position, name) for position, name in enumerate(node.inputs) if position and name)
        computed = ((at, name) for at, name in names if (found := resolve(name, scope)) and name in found.producers)
        values = ((position, self._value(name, scope, 0)) for position, name in computed)
        return {position: value for position, value in values if value is not None}

    def _choice(self, conditional: Conditional) -> ThenBranch | None:
        truths = [self._truth(name, conditional.scope, 0) for name in conditional.conditions]
        if False in truths:
            return False
        is_known = None not in truths and (bool(truths) or conditional.is_loop)
        return True if is_known else None

    def _truth(self, name: str, scope: Scope, depth: int) -> bool | None:
        value = self._value(name, scope, depth)
        is_scalar = value is not None and value.size == 1 and value.dtype.kind in "biuf"
        return bool(value.reshape(-1)[0] > 0) if value is not None and is_scalar else None

    def _value(self, name: str, scope: Scope, depth: int) -> Array | None:
        found = resolve(name, scope)
        if found is None:
            return self._read(name) if self._branches.is_input(name) else None
        key = (id(found), name)
        if key not in self._values:
            self._values[key] = None  # of a value that depends on itself
            self._values[key] = self._compute(name, found, depth + 1) if depth < MAX_EVALUATED_DEPTH else None
        return self._values[key]

    def _compute(self, name: str, scope: Scope, depth: int) -> Array | None:
        if name in scope.tensors:
            return _read_tensor(scope.tensors[name])
        node = scope.producers.get(name)
        if node is None or node.operator[0] != DEFAULT_DOMAIN:
            return None
        if node.operator[1] in ("Shape", "Size") and not node.inputs:  # an invalid node
            return None
        position = node.outputs.index(name)
        if _is_if(node):
            truth = self._truth(node.inputs[0], scope, depth) if node.inputs else None
            attribute = "then_branch" if truth else "else_branch"
            body = scope.bodies.get(get_scope_key(node), {}).get(attribute) if truth is not None else None
            name = get_output_name(body, position) if body is not None else ""
            return self._value(name, body, depth) if body is not None and name else None
        if node.operator[1] not in EVALUATED_OPERATORS:
            return None
        if node.operator[1] in ("Shape", "Size"):
            shape = self._shape(node.inputs[0], scope, depth)
            inputs: list[Array | None] = [None if shape is None else np.broadcast_to(np.int8(0), shape)]
        else:
            inputs = [self._value(it, scope, depth) if it else None for it in node.inputs]
        return self._run(node, inputs, position)

    def _run(self, node: NodeView, inputs: Sequence[Array | None], position: int) -> Array | None:
        if any(value is None for name, value in zip(node.inputs, inputs, strict=True) if name):
            return None
        is_shape = node.operator[1] in ("Shape", "Size")
        product = math.prod(value.size or 1 for value in inputs if value is not None)
        if not is_shape and max(product, _count_created(node, inputs)) > MAX_EVALUATED_ELEMENTS:
            return None
        try:
            with np.errstate(all="ignore"):
                return self._branches.compute(node, inputs)[position]
        except Exception:  # noqa: BLE001 - the reference implementation raises any error for invalid nodes
            return None

    def _shape(self, name: str, scope: Scope, depth: int) -> Shape | None:
        if self._branches.is_input(name) and resolve(name, scope) is None:
            return self._input_shapes.get(name)
        value = self._value(name, scope, depth)
        if value is not None:
            return tuple(value.shape)
        found = resolve(name, scope)
        if found is not None and name in found.tensors:
            return tuple(found.tensors[name].dims)
        return self._branches.infer_shapes(self._input_shapes).get(name)


def _count_created(node: NodeView, inputs: Sequence[Array | None]) -> int:
    """Return the number of elements or outputs that a node creates by the value of an input or attribute."""
    if node.operator[1] == "ConstantOfShape" and inputs and inputs[0] is not None:
        return math.prod(int(size) for size in inputs[0].flat if size > 0)
    if node.operator[1] == "Split":
        return max((attribute.i for attribute in node.attributes if attribute.name == "num_outputs"), default=0)
    return 0


def _attribute(conditional: Conditional, truth: ThenBranch) -> str:
    if conditional.is_loop:
        return "body" if truth else ""
    return "then_branch" if truth else "else_branch"


def _read_tensor(tensor: TensorProto) -> Array | None:
    return None if count_tensor_elements(tensor) > MAX_EVALUATED_ELEMENTS else read_array(tensor)


def _fold_node(node: NodeProto, graph: GraphProto, constants: Mapping[int, Array]) -> None:
    for position, array in constants.items():
        name = f"{node.input[position]}#{len(graph.initializer)}"
        graph.initializer.append(numpy_helper.from_array(array, name))
        node.input[position] = name


def _infer_shapes(proto: ModelProto, shapes: Mapping[str, Shape]) -> Mapping[str, Shape]:
    copy = ModelProto()
    copy.CopyFrom(proto)
    for value in copy.graph.input:
        if value.name in shapes:
            dims = value.type.tensor_type.shape
            del dims.dim[:]
            for size in shapes[value.name]:
                dims.dim.add(dim_value=size)
    try:
        inferred = infer_shapes(copy, data_prop=True)
    except OnnxError:  # an invalid model; its shapes are unknown
        return {}
    found: dict[str, set[Shape]] = {}
    for graph in ModelView(inferred).graphs:
        for value in (*graph.proto.value_info, *graph.proto.output):
            tensor = value.type.tensor_type
            if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
                found.setdefault(value.name, set()).add(tuple(dim.dim_value for dim in tensor.shape.dim))
    return {name: next(iter(known)) for name, known in found.items() if len(known) == 1}


def _trace(branches: BranchGraph, conditional: Conditional) -> Dependencies:
    values: dict[str, None] = {}
    constants: dict[float, None] = {}
    is_exact = True
    visited: set[tuple[int, str]] = set()
    pending = [(name, conditional.scope) for name in conditional.conditions]
    while pending:
        name, scope = pending.pop()
        found = resolve(name, scope)
        if found is None:
            values.update({name: None} if branches.is_input(name) else {})
            continue
        if (id(found), name) in visited:
            continue
        visited.add((id(found), name))
        node = found.producers.get(name)
        if name in found.tensors or (node is not None and node.operator[1] == "Constant"):
            constants.update(dict.fromkeys(_list_numbers(branches, found, name, node)))
        elif node is None or (node.operator[1] not in EVALUATED_OPERATORS and not _is_if(node)):
            is_exact = False
        elif node.operator[1] not in ("Shape", "Size"):
            pending += [(it, found) for it in node.inputs if it]
            pending += _iter_branch_outputs(node, name, found)
    return Dependencies(frozenset(values), tuple(constants), is_exact)


def _iter_branch_outputs(node: NodeView, name: str, scope: Scope) -> Iterator[tuple[str, Scope]]:
    if _is_if(node):
        position = node.outputs.index(name)
        for body in scope.bodies.get(get_scope_key(node), {}).values():
            if output := get_output_name(body, position):
                yield output, body


def _list_numbers(branches: BranchGraph, scope: Scope, name: str, node: NodeView | None) -> list[float]:
    """Return the elements of a small numeric constant; empty for any other value."""
    try:
        value = _read_tensor(scope.tensors[name]) if node is None else branches.compute(node, ())[0]
    except Exception:  # noqa: BLE001 - an invalid constant
        return []
    if value is None or value.size > MAX_SMALL_CONSTANT or value.dtype.kind not in "biuf":
        return []
    return [float(number) for number in value.flat if math.isfinite(number)]
