"""Subgraphs for operators that have graph attributes; each returns its inputs."""

from __future__ import annotations

from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from campaigns.conformance.type_names import inner, type_proto

OUTER = "outer"
"""Name of the outer value that the branches of If use, as they have no inputs."""


def graphs(name: str, inputs: list[str], outputs: list[str]) -> dict[str, GraphProto]:
    """Return the graph attributes of an operator; `inputs` and `outputs` are the types of its variadic arguments."""
    match name:
        case "If":
            branch = _graph([], [(OUTER, type_) for type_ in outputs])
            return {"then_branch": branch, "else_branch": branch}
        case "Loop":
            carried = [(f"v{index}", type_) for index, type_ in enumerate(inputs)]
            return {"body": _graph([("i", "tensor(int64)")], [("cond", "tensor(bool)"), *carried], given=True)}
        case "Scan":
            return {"body": _graph([], [(f"v{index}", type_) for index, type_ in enumerate(inputs)], given=True)}
        case "SequenceMap":
            held = [(f"v{index}", _held(type_)) for index, type_ in enumerate(inputs)]
            return {"body": _graph(held, [("v0", _held(type_)) for type_ in outputs])}
    return {}


def _held(type_: str) -> str:
    """Return the type that the body of SequenceMap receives for an argument: for a sequence, its element type."""
    return inner(type_) if type_.startswith("seq") else type_


def _graph(extra: list[tuple[str, str]], passed: list[tuple[str, str]], given: bool = False) -> GraphProto:
    """Return a graph that returns the values in `passed`. With `given`, they are inputs of the graph, after `extra`."""
    results = [f"r{index}" for index in range(len(passed))]
    nodes: list[NodeProto] = []
    for (name, _), result in zip(passed, results, strict=True):
        nodes.append(helper.make_node("Identity", [name], [result]))
    inputs = [_value(*each) for each in (*extra, *(passed if given else ()))]
    outputs = [_value(result, type_) for result, (_, type_) in zip(results, passed, strict=True)]
    return helper.make_graph(nodes, "inner", inputs, outputs)


def _value(name: str, type_: str) -> ValueInfoProto:
    return helper.make_value_info(name, type_proto(type_))
