"""Data types for the operations of a model, whether a release supports them, and suggested changes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Literal

import msgspec

from onnxgate.model.facts import DEFAULT_DOMAIN

if TYPE_CHECKING:
    from onnx import NodeProto, TypeProto


SupportGapRule = Literal[
    "unknown-domain",
    "unknown-operator",
    "deprecated-operator",
    "missing-kernel",
    "type-mismatch",
    "attribute-unsupported",
]
"""Names of the rules that report nodes which a release does not support."""
Fusion = Literal[
    "",
    "Attention",
    "perhaps Attention",
    "Clip",
    "FusedGemm",
    "FusedMatMul",
    "FusedMatMul of one",
    "Gemm",
    "QuickGelu",
    "no elements",
    "no elements returned",
    "Optional",
]
"""Operator into which the optimizer fuses a node and its neighbors, or tries to."""
Removal = Literal["", "branch", "clip", "inlined", "expand", "layer", "returned", "shape"]
"""Why the optimizer may remove a node, or fuse it with its neighbors, so that it needs no kernel."""
WrongLoss = Literal["", "scalar", "rank", "size", "weights", "product"]
"""Shape of SoftmaxCrossEntropyLoss that is wrong. "product": the weights cannot be multiplied with the labels' loss."""
LoadVerdict = Literal["loads", "refused", "unknown"]
ValueSource = Literal["constant", "input", "computed", "unknown"]
"""Whether a value is computed from constants only, is an input of the model, or is computed from data of such inputs.

The source of values that follow from the shape of an input is unknown: some engines know the shape."""


class Attribute(msgspec.Struct, frozen=True):
    """One attribute of a node.

    `data` is the serialized AttributeProto; it is empty for subgraphs, long attributes and attributes of Constant.
    """

    name: str
    kind: str  # "INT", "FLOATS", "TENSOR"
    data: bytes
    count: int = 0  # number of elements of a long list


class NodeTraits(msgspec.Struct, frozen=True):
    """Shapes, constants and neighbors of a node that some kernels depend on. Other nodes have the defaults."""

    # Of the first input of ArgMax, ArgMin, GridSample, normalizations and operators with scales; -1: unknown
    rank: int = -1
    has_fixed_axis: bool = False  # Split divides a known size
    scales: tuple[float, ...] = ()  # constant scales of Resize and Upsample, one per axis
    captures_scales: bool = False  # they are of a graph around the one of the node
    fusion: Fusion = ""  # operator by which ONNX Runtime replaces the node and its neighbors, with which releases fail
    float8_fusion: str = ""  # quantized operator that replaces the node and its neighbors, but does not accept float8
    as_scalar: str = ""  # what fails if old releases take the output of Squeeze for a scalar
    wrong_loss: WrongLoss = ""
    has_fixed_scores: bool = False  # all sizes of the scores of a wrong loss are known
    is_eliminated: bool = False  # Identity or Dropout that ONNX Runtime removes before it selects kernels
    constant_fault: str = ""  # why a node with constant inputs cannot be computed
    wrong_scale: Literal["", "channels", "bias"] = ""  # with what the scale of a GroupNormalization does not agree
    repeated_ngram: str = ""  # n-gram that the pool of a TfIdfVectorizer contains twice
    # Depth of OneHot without elements: a stored constant, or another value
    empty_depth: Literal["", "constant", "value"] = ""
    has_overflow: bool = False  # the product of the sizes of a GroupNormalization's input exceeds 64 bits
    has_long_shape: bool = False  # the list from which the node gets its shape is too long for a rank
    wrong_rank: str = ""  # which input of an operator of `com.microsoft` has a rank that shape inference rejects
    # Range of computed constants, one of which is not a scalar; where the computation of that one is
    listed_bounds: Literal["", "same graph", "function", "outer graph"] = ""
    has_list_condition: bool = False  # If with a constant condition that has not one element
    has_late_fault: bool = False  # the node with such a fault is in a local function
    # Div or Mod of integers by a constant that contains 0; "constants": older releases compute it when they load it
    divides_by_zero: Literal["", "constants", "input", "input in subgraph"] = ""
    # Div or Mod of integers by such a constant, or by one that callers can replace ("zero"), or by another value
    divisor: Literal["", "zero", "unknown"] = ""
    # CastLike of float16 to itself: what makes its input and takes its output; () if this is unknown
    neighbors: tuple[Neighbor, ...] = ()
    has_functions: bool = False  # such a CastLike is in a model with local functions
    removal: Removal = ""

    @property
    def concerns_neighbors(self) -> bool:
        """Return whether a release refuses the node only next to certain other nodes."""
        return bool(self.fusion or self.as_scalar or self.float8_fusion or self.neighbors)


NO_TRAITS = NodeTraits()


class Neighbor(msgspec.Struct, frozen=True):
    """A node that makes a value of another node, or takes it."""

    operation: Operation
    outputs: tuple[int, ...]  # indexes of the value among the outputs, () if the node takes it
    inputs: tuple[int, ...] = ()  # indexes of the value among the inputs of which the data is used


class Operation(msgspec.Struct, frozen=True):
    """Properties of a node that determine whether a release implements it. Equal operations are checked only once.

    Types are spelled as in ONNX Runtime; "" means an unknown type, and None an omitted argument.
    """

    domain: str  # "ai.onnx" for the default one
    name: str
    version: int  # imported version of the domain; 0 if it is not imported
    opset: int  # of ai.onnx, which selects function bodies; 0 if it is not imported
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]
    attributes: tuple[Attribute, ...]  # by name
    static: bool  # the shape of the first input has only fixed dimensions
    traits: NodeTraits = NodeTraits()

    @property
    def label(self) -> str:
        """Name of the operator, preceded by its domain unless this is the default domain."""
        return self.name if self.domain == DEFAULT_DOMAIN else f"{self.domain}.{self.name}"


def get_unknown_type(name: str) -> TypeProto | None:
    """Return None, the type of each value whose type is unknown."""
    return None


def get_unknown_source(name: str) -> ValueSource:
    """Return "unknown", the source of each value whose source was not traced."""
    return "unknown"


def assume_used(name: str) -> bool:
    """Return True, for each value whose uses were not traced."""
    return True


def assume_internal(name: str) -> bool:
    """Return False, for each value of a graph whose outputs were not read."""
    return False


class TypedNode(msgspec.Struct, frozen=True, eq=False):
    """One node of a model with the types of its inputs and outputs."""

    operation: Operation
    name: str  # the node's own, often ""
    proto: NodeProto
    inner: tuple[TypedNode, ...]  # nodes of its subgraphs, or of the local function that it calls
    calls: bool  # it calls a local function of the model
    within: str  # the local function that contains it, "" for the main graph
    type_of: Callable[[str], TypeProto | None] = get_unknown_type  # type with shape of a value in scope
    unread: str = ""  # why the body of the called function has no types
    source_of: Callable[[str], ValueSource] = get_unknown_source  # of a value in scope
    is_used: Callable[[str], bool] = assume_used  # an output of the graph depends on the value
    is_output: Callable[[str], bool] = assume_internal  # the value is an output of the model

    @property
    def has_use(self) -> bool:
        """Return whether an output of the graph depends on the node."""
        return any(self.is_used(name) for name in self.proto.output if name)

    def all_nodes(self) -> Iterator[TypedNode]:
        """Yield this node and all nodes in its subgraphs or in the local function that it calls."""
        yield self
        for node in self.inner:
            yield from node.all_nodes()


class InterfaceValue(msgspec.Struct, frozen=True):
    """One input or output of a model, or an initializer or constant of a type that some releases refuse."""

    kind: Literal["input", "output", "tensor"]
    name: str
    type: str  # as ONNX Runtime spells it; "" if it is unknown


class TypedModel(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Nodes of a model with their types, and its imported opsets. They do not depend on the runtime release."""

    ir_version: int
    opsets: dict[str, int]  # needed, also by local functions; default domain "ai.onnx"
    nodes: tuple[TypedNode, ...]
    interface: tuple[InterfaceValue, ...] = ()  # without inputs that have a default

    def all_nodes(self) -> Iterator[TypedNode]:
        """Yield all nodes of the model, including those of subgraphs and called local functions."""
        for node in self.nodes:
            yield from node.all_nodes()

    @functools.cached_property
    def detached(self) -> dict[TypedNode, TypedNode]:
        """Copies of nodes with problems, which the predictions of all releases share."""
        return {}

    @functools.cached_property
    def problems(self) -> dict[tuple[TypedNode, SupportGap | str], NodeProblem]:
        """Problems of nodes, which the predictions of all releases share."""
        return {}

    @functools.cached_property
    def called(self) -> frozenset[Operation]:
        """Calls of local functions."""
        return frozenset(node.operation for node in self.kinds if node.calls)

    @functools.cached_property
    def kinds(self) -> tuple[TypedNode, ...]:
        """The first node of each kind. Any release supports either all nodes of the same kind or none of them."""
        first: dict[tuple[object, ...], TypedNode] = {}
        visited: set[int] = set()  # bodies that several calls share
        ahead = [self.nodes]
        while ahead:
            for node in ahead.pop():
                first.setdefault((id(node.operation), node.calls, bool(node.within), node.unread), node)
                if node.inner and id(node.inner) not in visited:
                    visited.add(id(node.inner))
                    ahead.append(node.inner)
        return tuple(first.values())


class SupportGap(msgspec.Struct, frozen=True):
    """Reason why a runtime release rejects an operation of a model."""

    rule: SupportGapRule
    problem: str  # the same for all releases: "there is no kernel for `Det(11)` with `T` = `tensor(double)`"
    detail: str = ""  # verb phrase about the release: "implements `T` as `tensor(float)`"
    about: str = ""  # facts that distinguish problems of one operator and rule: "T=tensor(double)"
    signal: str = ""  # signal with which the release ends when it loads the model; "" if it reports an error


class NodeProblem(msgspec.Struct, frozen=True, eq=False):
    """A node that a release rejects, or for which this could not be predicted, with the reason."""

    node: TypedNode
    miss: SupportGap | None
    unknown: str = ""  # "the type of input 2 of `Det` is unknown"


class RefusedOperations(msgspec.Struct, frozen=True):
    """Domains and operations because of which a release is predicted to refuse a model, as data for another process."""

    opsets_too_new: tuple[str, ...]  # domains
    gaps: tuple[tuple[SupportGap, Operation], ...]


class Prediction(msgspec.Struct, frozen=True, eq=False):
    """Predicted problems of one model on one release. If there are none, the release is predicted to load the model."""

    ir_too_new: bool
    opsets_too_new: tuple[str, ...]  # domains
    found: tuple[NodeProblem, ...]
    refused_interface: tuple[InterfaceValue, ...] = ()  # inputs and outputs with types that the release refuses
    unknown_reason: str = ""  # why the release may refuse the model as a whole

    @property
    def refused(self) -> RefusedOperations:
        """Domains and operations because of which the release is predicted to refuse the model, without their nodes."""
        gaps = tuple((found.miss, found.node.operation) for found in self.found if found.miss is not None)
        return RefusedOperations(self.opsets_too_new, gaps)

    @property
    def verdict(self) -> LoadVerdict:
        """Predicted outcome of loading the model: `refused` if a problem is certain, `unknown` if one is possible."""
        is_refused = self.ir_too_new or self.opsets_too_new or self.refused_interface
        if is_refused or any(problem.miss for problem in self.found):
            return "refused"
        return "unknown" if self.found or self.unknown_reason else "loads"


class OpsetChange(msgspec.Struct, frozen=True):
    """Suggestion to export with a different opset of a domain, in which all runtimes implement the operation."""

    domain: str
    version: int
    whole: bool  # all other operations of the model are also implemented there


class TypeCast(msgspec.Struct, frozen=True):
    """Suggestion to cast the inputs of one type parameter to a different type, and its outputs back."""

    parameter: str  # a constraint's name (`T`), or the type that the schema fixes
    to: str  # "tensor(float)"
    exact: bool  # without loss
    back: bool  # an output has to be cast back
    inputs: tuple[str, ...]  # formal names of the inputs to cast; an entry per argument


class AttributeRemoval(msgspec.Struct, frozen=True):
    """Suggestion to remove an attribute from the node."""

    attribute: str


class AttributeAddition(msgspec.Struct, frozen=True):
    """Suggestion to add attributes to the node, of the kinds that the operator's schema declares."""

    attributes: tuple[tuple[str, str], ...]  # name, kind ("INT")


class OperatorReplacement(msgspec.Struct, frozen=True):
    """Suggestion to use a different operator, with the same inputs or with the inputs that `inputs` lists."""

    domain: str
    name: str
    inputs: tuple[int | None, ...] | None = None  # index of the old input for each new one; None: unchanged
    attributes: tuple[tuple[str, str], ...] = ()  # strings to add for the same result


class FunctionExpansion(msgspec.Struct, frozen=True):
    """Suggestion to replace the node by the operator's function body, which ONNX defines as equivalent."""


class DomainImport(msgspec.Struct, frozen=True):
    """Suggestion to import the operator's domain."""

    domain: str
    version: int


ChangeKind = Literal[
    "constant", "value", "given", "set", "rank", "not model input", "not model output", "unused", "omitted", "unset"
]


class FeatureChange(msgspec.Struct, frozen=True):
    """A change to one input, output or attribute of a node."""

    kind: ChangeKind
    name: str  # of the input, output or attribute in the schema


class NodeChange(msgspec.Struct, frozen=True):
    """Suggestion to change inputs, outputs or attributes of the node. All of the changes are necessary."""

    changes: tuple[FeatureChange, ...]


Suggestion = (
    OpsetChange
    | TypeCast
    | AttributeRemoval
    | AttributeAddition
    | OperatorReplacement
    | FunctionExpansion
    | DomainImport
    | NodeChange
)
