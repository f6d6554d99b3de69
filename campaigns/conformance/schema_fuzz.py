"""Schema fuzzing: generate one-node models for each operator schema of a release, with each allowed type."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from onnx import GraphProto, ModelProto, ValueInfoProto, helper

from campaigns.conformance import subgraphs
from campaigns.conformance.attribute_values import values
from campaigns.conformance.schemas import Formal, Schema, in_force
from campaigns.conformance.type_names import inner, type_proto

IR_VERSION = 8  # every release supports it
USUAL = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(int8)", "tensor(bool)")


@dataclass(frozen=True, slots=True)
class Case:
    """One node to generate. `binding` contains the type of each type parameter."""

    schema: Schema
    opset: int
    full: bool  # with every optional input and output, and two of each variadic one
    binding: tuple[tuple[str, str], ...]
    typed: bool  # outputs have declared types

    @property
    def name(self) -> str:
        """The name of the model, such as `ai.onnx/Add(14)@26 T=tensor(float) least typed`."""
        schema = self.schema
        types = " ".join(f"{parameter}={type_}" for parameter, type_ in self.binding)
        extent = "full" if self.full else "least"
        head = f"{schema.domain}/{schema.name}({schema.since})@{self.opset}"
        return " ".join(filter(None, (head, types, extent, "typed" if self.typed else "untyped")))


THREES = "QLinearConcat"  # its variadic inputs are triples: values, scale, zero point
Arguments = list[Formal | None]
"""The formal parameter of each argument; None for omitted arguments."""


def every(schemas: list[Schema], newest_opsets: dict[str, int], paired: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield all models for a release with their names. With `paired`, types of two parameters are varied together."""
    for schema, last in in_force(schemas, newest_opsets):
        for opset in sorted({schema.since, last}):
            for case in cases(schema, opset, paired):
                yield case.name, model(case, newest_opsets["ai.onnx"]).SerializeToString(deterministic=True)


def cases(schema: Schema, opset: int, paired: bool = False) -> Iterator[Case]:
    """Yield all cases for one schema at one opset. With `paired`, outputs always have declared types."""
    known = set()
    ways = (True,) if paired else (True, False)
    for full in (False, True):
        inputs, outputs = arguments(schema, full)
        for binding in (pairs if paired else bindings)(schema, [*inputs, *outputs]):
            shape = (tuple(inputs), tuple(outputs), binding)
            if shape not in known:
                known.add(shape)
                yield from (Case(schema, opset, full, binding, typed) for typed in ways)


def arguments(schema: Schema, full: bool) -> tuple[Arguments, Arguments]:
    """Return the parameters of the inputs and outputs of a node."""
    inputs = _choose_arguments(schema.inputs, 5 if schema.name == THREES else schema.least_inputs, full)
    outputs = _choose_arguments(schema.outputs, schema.least_outputs, full)
    return inputs, outputs if any(outputs) else [*schema.outputs[:1]]


def _choose_arguments(formals: tuple[Formal, ...], least: int, full: bool) -> Arguments:
    chosen: Arguments = []
    for formal in formals:
        if formal.option == "Variadic":
            chosen += [formal] * max(2 if full else 1, least - len(chosen))
        else:
            chosen.append(formal if full or formal.option == "Single" else None)
    while chosen and chosen[-1] is None and len(chosen) > least:
        chosen.pop()
    return chosen


def bindings(schema: Schema, chosen: Arguments) -> list[tuple[tuple[str, str], ...]]:
    """Return bindings with each type of each parameter; the other parameters have default types or similar types."""
    active = _active(schema, chosen)
    usual = {parameter: _usual(types) for parameter, types in active.items()}
    all_bindings = {tuple(usual.items()): None}
    for parameter, types in active.items():
        for type_ in types:
            all_bindings[tuple({**usual, parameter: type_}.items())] = None
            alike = {name: _alike(type_, allowed) or usual[name] for name, allowed in active.items()}
            all_bindings[tuple({**alike, parameter: type_}.items())] = None
    return list(all_bindings)


def pairs(schema: Schema, chosen: Arguments) -> list[tuple[tuple[str, str], ...]]:
    """Return bindings with all remaining combinations of types for two parameters, and default types for the others."""
    active = _active(schema, chosen)
    usual = {parameter: _usual(types) for parameter, types in active.items()}
    all_bindings = {
        tuple({**usual, first: one, second: other}.items()): None
        for first, second in itertools.combinations(active, 2)
        for one, other in itertools.product(active[first], active[second])
    }
    known = set(bindings(schema, chosen))
    return [binding for binding in all_bindings if binding not in known]


def _active(schema: Schema, chosen: Arguments) -> dict[str, tuple[str, ...]]:
    """Return the allowed types of each type parameter that these arguments use."""
    return {each.type: schema.constraints[each.type] for each in chosen if each and each.type in schema.constraints}


def _usual(types: tuple[str, ...]) -> str:
    return next((type_ for type_ in USUAL if type_ in types), types[0])


def _alike(type_: str, allowed: tuple[str, ...]) -> str | None:
    """Return the allowed type that is most similar: the type itself, a container of it, or its element type."""
    others = (type_, f"seq({type_})", f"optional({type_})", inner(type_))
    return next((other for other in others if other in allowed), None)


def model(case: Case, opset: int) -> ModelProto:
    """Return the one-node model of a case. If the node has a different domain, `opset` of ai.onnx is also imported."""
    domain = "" if case.schema.domain == "ai.onnx" else case.schema.domain
    imports = {"": opset, domain: case.opset}
    opsets = [helper.make_opsetid(name, version) for name, version in imports.items()]
    return helper.make_model(_graph(case, domain), opset_imports=opsets, ir_version=IR_VERSION)


def _graph(case: Case, domain: str) -> GraphProto:
    types = dict(case.binding)
    inputs, outputs = arguments(case.schema, case.full)
    taken, made = _named(inputs, "x", types), _named(outputs, "y", types)
    node = helper.make_node(case.schema.name, [name for name, _ in taken], [name for name, _ in made], domain=domain)
    attributes = values(case.schema, types, case.full) | _inner(case, inputs, outputs, types)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    chosen = [_value(name, type_) for name, type_ in taken if name]
    if case.schema.name == "If":
        chosen.append(_value(subgraphs.OUTER, made[0][1]))
    return helper.make_graph([node], "g", chosen, [_value(name, type_, case.typed) for name, type_ in made if name])


def _named(chosen: Arguments, prefix: str, types: dict[str, str]) -> list[tuple[str, str]]:
    """Return the name and the type of each argument; both are "" for an omitted argument."""
    return [
        (f"{prefix}{index}", types.get(formal.type, formal.type)) if formal else ("", "")
        for index, formal in enumerate(chosen)
    ]


def _inner(case: Case, inputs: Arguments, outputs: Arguments, types: dict[str, str]) -> dict[str, GraphProto]:
    """Return the graph attributes of a case."""
    passed = [formal for formal in inputs if formal and (formal.option == "Variadic" or formal.type == "S")]
    taken, made = ([types.get(formal.type, formal.type) for formal in chosen if formal] for chosen in (passed, outputs))
    return subgraphs.graphs(case.schema.name, taken, made)


def _value(name: str, type_: str, typed: bool = True) -> ValueInfoProto:
    return helper.make_value_info(name, type_proto(type_)) if typed else ValueInfoProto(name=name)
