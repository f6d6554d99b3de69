"""Schema fuzz: each operator schema of a release with each type that it allows, one node in one model each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from onnx import ModelProto, helper

from tests.conformance.filling import attributes
from tests.conformance.schemas import Formal, Schema, in_force
from tests.conformance.spelling import type_proto

IR_VERSION = 8  # every release takes it
USUAL = ("tensor(float)", "tensor(int64)", "tensor(int32)", "tensor(uint8)", "tensor(int8)", "tensor(bool)")


@dataclass(frozen=True, slots=True)
class Case:
    """One node to be made. `binding` is the type of each type parameter."""

    schema: Schema
    opset: int
    full: bool  # with every optional input and output, and two of each variadic one
    binding: tuple[tuple[str, str], ...]
    typed: bool  # outputs say their types

    @property
    def name(self) -> str:
        """`ai.onnx/Add(14)@26 T=tensor(float) least typed`."""
        schema = self.schema
        types = " ".join(f"{parameter}={type_}" for parameter, type_ in self.binding)
        extent = "full" if self.full else "least"
        head = f"{schema.domain}/{schema.name}({schema.since})@{self.opset}"
        return " ".join(filter(None, (head, types, extent, "typed" if self.typed else "untyped")))


def every(schemas: list[Schema], newest_opsets: dict[str, int]) -> Iterator[tuple[str, bytes]]:
    """Every model of a release by name."""
    for schema, last in in_force(schemas, newest_opsets):
        for opset in sorted({schema.since, last}):
            for case in cases(schema, opset):
                yield case.name, model(case, newest_opsets["ai.onnx"]).SerializeToString(deterministic=True)


def cases(schema: Schema, opset: int) -> Iterator[Case]:
    """All cases of one schema at one opset."""
    known = set()
    for full in (False, True):
        inputs, outputs = arguments(schema, full)
        for binding in bindings(schema, [*inputs, *outputs]):
            shape = (tuple(inputs), tuple(outputs), binding)
            if shape not in known:
                known.add(shape)
                yield from (Case(schema, opset, full, binding, typed) for typed in (True, False))


def arguments(schema: Schema, full: bool) -> tuple[list[Formal | None], list[Formal | None]]:
    """The parameters that a node gives, None where it leaves one out."""
    return (
        _given(schema.inputs, schema.least_inputs, full),
        _given(schema.outputs, max(schema.least_outputs, 1) if schema.outputs else 0, full),
    )


def _given(formals: tuple[Formal, ...], least: int, full: bool) -> list[Formal | None]:
    given: list[Formal | None] = []
    for formal in formals:
        if formal.option == "Variadic":
            given += [formal] * (max(2, least - len(given)) if full else max(0, least - len(given)))
        else:
            given.append(formal if full or formal.option == "Single" or not any(given) and least == 1 else None)
    while given and given[-1] is None and len(given) > least:
        given.pop()
    return given


def bindings(schema: Schema, given: list[Formal | None]) -> list[tuple[tuple[str, str], ...]]:
    """Each type of each parameter: the others as usual, and the others of the same type where they allow it."""
    active = {each.type: schema.constraints[each.type] for each in given if each and each.type in schema.constraints}
    usual = {parameter: _usual(types) for parameter, types in active.items()}
    found = {tuple(usual.items()): None}
    for parameter, types in active.items():
        for type_ in types:
            found[tuple({**usual, parameter: type_}.items())] = None
            alike = {name: type_ if type_ in allowed else usual[name] for name, allowed in active.items()}
            found[tuple(alike.items())] = None
    return list(found)


def _usual(types: tuple[str, ...]) -> str:
    return next((type_ for type_ in USUAL if type_ in types), types[0])


def model(case: Case, opset: int) -> ModelProto:
    """The one-node model of a case; `opset` is imported of ai.onnx where the node is of another domain."""
    binding = dict(case.binding)
    inputs, outputs = arguments(case.schema, case.full)
    names = [_names(each, prefix) for each, prefix in ((inputs, "x"), (outputs, "y"))]
    domain = "" if case.schema.domain == "ai.onnx" else case.schema.domain
    node = helper.make_node(case.schema.name, *names, domain=domain)
    node.attribute.extend(attributes(case.schema, binding, len(names[0])))
    graph = helper.make_graph(
        [node],
        "g",
        [_value(name, each, binding) for name, each in zip(names[0], inputs, strict=True) if each],
        [_value(name, each, binding, case.typed) for name, each in zip(names[1], outputs, strict=True) if each],
    )
    imports = {"": opset, domain: case.opset}
    opsets = [helper.make_opsetid(name, version) for name, version in imports.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)


def _names(given: list[Formal | None], prefix: str) -> list[str]:
    return [f"{prefix}{index}" if formal else "" for index, formal in enumerate(given)]


def _value(name: str, formal: Formal, binding: dict[str, str], typed: bool = True):
    if not typed:
        value = helper.ValueInfoProto()
        value.name = name
        return value
    return helper.make_value_info(name, type_proto(binding.get(formal.type, formal.type)))
