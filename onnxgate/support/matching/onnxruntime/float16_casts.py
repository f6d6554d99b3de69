"""Find where ONNX Runtime replaces float16 by float: at nodes without a kernel for float16, and at casts between them.

Source: ONNX Runtime 1.16 to 1.32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from onnxgate.core.findings import is_release_within
from onnxgate.support.matching.node_checks import find_schema_violation
from onnxgate.support.matching.operations import Neighbor, Operation, TypedNode
from onnxgate.support.operators import Schema

FLOAT16, FLOAT = "tensor(float16)", "tensor(float)"
FIRST_CAST_OPSET = 6
"""First opset in which ONNX Runtime inserts casts. In older ones, Cast has a different attribute."""
_LAST_WITH_WIDENED_CASTS = "1.30.0"
"""Last release that does not change the attribute `to` of a cast if it replaces float16 by float."""
_FIRST_WITH_EARLY_BODIES = "1.17.0"
"""First release that replaces operators by their function bodies before it removes casts, if there are local functions.

Source: see `iterate_redundant_casts`.
"""
_WITH_TYPED_ATTRIBUTES = frozenset({"TreeEnsemble"})
"""Operators with tensors as attributes, whose types would not match an input that was cast to float.

Source: TreeEnsemble(5) of float16, loaded on ONNX Runtime 1.21.0 to 1.32.0.
"""


def widen_operation(operation: Operation, schema: Schema) -> Operation | None:
    """Return an operation with float in place of float16; None if ONNX Runtime does not insert casts at the node.

    ONNX Runtime inserts casts to float if an input is float16, but not for nodes with subgraphs or sequences.
    """
    graphs = any(attribute.kind == "GRAPH" for attribute in operation.attributes)
    if FLOAT16 not in operation.inputs or graphs or 0 < operation.opset < FIRST_CAST_OPSET:
        return None
    if operation.name in _WITH_TYPED_ATTRIBUTES:
        return None
    if any(output and "float16" in output and not output.startswith("tensor(") for output in operation.outputs):
        return None
    inputs, outputs = (
        tuple(FLOAT if value_type == FLOAT16 else value_type for value_type in types)
        for types in (operation.inputs, operation.outputs)
    )
    widened = replace(operation, inputs=inputs, outputs=outputs)
    return None if find_schema_violation(widened, schema) else widened


def is_redundant_cast(operation: Operation) -> bool:
    """Return whether an operation is a CastLike of float16 to float16. Releases have no kernels for it, but a body."""
    return operation.name == "CastLike" and operation.inputs == (FLOAT16, FLOAT16) and operation.outputs == (FLOAT16,)


def make_neighbor(operation: Operation, inputs: Sequence[str], outputs: Sequence[str], value: str) -> Neighbor:
    """Return a node with these inputs and outputs as the neighbor that makes or takes a value."""
    made = tuple(index for index, name in enumerate(outputs) if name == value)
    of_data = inputs[:1] if operation.name == "CastLike" else inputs  # only the type of the second one is used
    return Neighbor(operation, made, tuple(index for index, name in enumerate(of_data) if name == value))


def iterate_redundant_casts(
    operation: Operation, body: Sequence[TypedNode], release: str
) -> Iterator[tuple[Neighbor, ...]]:
    """Yield the neighbors of each cast of float16 to itself in a function body that a release may make invalid.

    The neighbors are the node that makes the input of the cast, and the nodes that take its output. If none of them has
    a kernel for float16, the CPU provider replaces float16 by float at the cast, too. The attribute of the cast keeps
    naming float16, so the model does not load. The optimizer removes such casts that exist before function bodies.
    Source: Attention of float16 with 6 types of masks and 8 combinations of attributes, loaded on 15 releases from
    1.23.0 to 1.32.0; 36 other operators, most of which have function bodies, on 7 releases from 1.16.3 to 1.30.0;
    CastLike in 10,000 sequences of 2 to 5 nodes in opsets 13 to 26, some in branches and local functions, loaded on 6
    releases from 1.16.3 to 1.30.0.
    """
    if not is_release_within(release, "", _LAST_WITH_WIDENED_CASTS):
        return
    if operation.traits.has_functions and is_release_within(release, _FIRST_WITH_EARLY_BODIES, ""):
        return
    makers = {output: node for node in body for output in node.proto.output}
    for node in body:
        if node.operation.name != "Cast" or not node.operation.inputs == node.operation.outputs == (FLOAT16,):
            continue
        source, result = node.proto.input[0], node.proto.output[0]
        users = [user for user in body if result in user.proto.input]
        if len(body) == 1:
            if operation.traits.neighbors:  # those of the operation are those of the cast
                yield operation.traits.neighbors
        elif users and source in makers:  # it is not an output or input of the body, with unknown neighbors
            yield tuple(
                make_neighbor(near.operation, near.proto.input, near.proto.output, value)
                for near, value in ((makers[source], source), *((user, result) for user in users))
            )


def select_border_nodes(body: Sequence[TypedNode], schema: Schema, neighbor: Neighbor) -> list[Neighbor]:
    """Return the nodes of a neighbor's function body that make or take the value, as neighbors."""
    if neighbor.outputs:
        ends, formals = neighbor.outputs, schema.outputs
    else:
        ends, formals = neighbor.inputs, schema.inputs
    names = [formals[index].name for index in ends if index < len(formals)]
    near = [make_neighbor(node.operation, node.proto.input, node.proto.output, name) for node in body for name in names]
    return [node for node in near if (node.outputs if neighbor.outputs else node.inputs)]
