"""Nested scopes of a graph: which value a name refers to in the body of an `If`, `Loop` or `Scan` node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from onnx import TensorProto

from onnxgate.model.reading.view import GraphView, NodeView


@dataclass(slots=True, eq=False)
class Scope:
    """A graph with the scopes around it. `opaque` are values that change in each iteration of a loop."""

    graph: GraphView
    outer: Scope | None
    tensors: Mapping[str, TensorProto]
    producers: Mapping[str, NodeView]
    opaque: frozenset[str]
    bodies: dict[str, dict[str, Scope]] = field(default_factory=dict)  # first output of a node -> attribute -> scope


def create_scope(graph: GraphView, outer: Scope | None, *, is_loop: bool) -> Scope:
    """Return the scope of a graph, with those of the bodies in it."""
    proto = graph.proto
    opaque = frozenset(value.name for value in proto.input) if outer is not None or is_loop else frozenset()
    scope = Scope(
        graph=graph,
        outer=outer,
        tensors={tensor.name: tensor for tensor in proto.initializer},
        producers={name: node for node in graph.nodes for name in node.outputs if name},
        opaque=opaque,
    )
    for node in graph.nodes:
        if node.graphs:
            names = [attribute.name for attribute in node.attributes if attribute.HasField("g")]
            bodies = (create_scope(body, scope, is_loop=node.operator[1] != "If") for body in node.graphs)
            scope.bodies[get_scope_key(node)] = dict(zip(names, bodies, strict=False))
    return scope


def get_scope_key(node: NodeView) -> str:
    """Return the key of a node in `Scope.bodies`."""
    return next(filter(None, node.outputs), "")


def list_scopes(scope: Scope) -> Iterator[Scope]:
    """Yield a scope and all those in it."""
    yield scope
    for bodies in scope.bodies.values():
        for body in bodies.values():
            yield from list_scopes(body)


def resolve(name: str, scope: Scope) -> Scope | None:
    """Return the scope that defines a value; None for an input of the model and for an unknown name."""
    current: Scope | None = scope
    while current is not None:
        if name in current.tensors or name in current.producers or name in current.opaque:
            return current
        current = current.outer
    return None


def get_output_name(body: Scope, position: int) -> str:
    """Return the name of the output of a body; "" if there is none."""
    outputs = body.graph.proto.output
    return outputs[position].name if position < len(outputs) else ""
