"""The fuzz covers every allowed type of every schema, in models that onnx accepts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import onnx
import pytest

from campaigns.conformance.schema_fuzz import Arguments, Case, bindings, cases, every, model, pairs
from campaigns.conformance.schemas import Formal, Schema, in_force
from campaigns.conformance.type_names import type_proto

FLOATS = ("tensor(double)", "tensor(float)")


def _schema(
    name: str,
    inputs: Sequence[Formal],
    outputs: Sequence[Formal],
    constraints: dict[str, tuple[str, ...]],
    since: int = 1,
    deprecated: bool = False,
    least: tuple[int, int] = (1, 1),
) -> Schema:
    formals = (tuple(inputs), tuple(outputs))
    return Schema("ai.onnx", name, since, deprecated, *formals, constraints, {}, (), *least)


def _formal(name: str, type_: str = "T", option: str = "Single") -> Formal:
    return Formal(name, type_, option)


def test_schema_is_used_up_to_its_successor() -> None:
    """Each schema is used up to its successor, the last one up to the newest opset; deprecated ones are skipped."""
    formals = ([_formal("x")], [_formal("y")])
    made = [
        _schema("Relu", *formals, {"T": FLOATS}, since=since, deprecated=deprecated)
        for since, deprecated in ((14, False), (1, False), (6, False), (13, True))
    ]

    actual = [(schema.since, last) for schema, last in in_force(made, {"ai.onnx": 26})]

    assert [(1, 5), (6, 12), (14, 26)] == actual


def test_every_type_of_every_parameter_is_bound() -> None:
    """Each allowed type occurs, with default types and with similar types for the other parameters."""
    schema = _schema(
        "SequenceInsert",
        [_formal("s", "S"), _formal("x")],
        [_formal("y", "S")],
        {"S": ("seq(tensor(double))", "seq(tensor(float))"), "T": FLOATS},
    )

    actual = [dict(binding) for binding in bindings(schema, [*schema.inputs, *schema.outputs])]

    assert {name: set(types) for name, types in schema.constraints.items()} == {
        name: {each[name] for each in actual} for name in ("S", "T")
    }
    assert all({"S": f"seq({one})", "T": one} in actual for one in FLOATS)
    assert {"S": "seq(tensor(double))", "T": "tensor(float)"} in actual


def test_every_pair_of_types_occurs_once() -> None:
    """Every pair of types occurs in exactly one of the two corpora."""
    schema = _schema("Cast", [_formal("x")], [_formal("y", "T2")], {"T": (*FLOATS, "tensor(bool)"), "T2": FLOATS})
    given: Arguments = [*schema.inputs, *schema.outputs]

    once, twice = ({tuple(types for _, types in each) for each in of(schema, given)} for of in (bindings, pairs))

    assert set() == once & twice
    assert set(itertools.product(*schema.constraints.values())) == once | twice
    assert {("tensor(bool)", "tensor(double)")} == twice


def test_variants_have_minimum_and_all_arguments() -> None:
    """One variant has the minimum number of arguments; the other has all, with two variadic ones."""
    schema = _schema(
        "Loop",
        [_formal("m", "tensor(int64)", "Optional"), _formal("c", "B", "Optional"), _formal("v", option="Variadic")],
        [_formal("y", option="Variadic")],
        {"T": ("tensor(float)",), "B": ("tensor(bool)",)},
        least=(2, 1),
    )

    nodes = [model(case, 13).graph.node[0] for case in cases(schema, 13) if case.typed]

    assert [["", "", "x2"], ["x0", "x1", "x2", "x3"]] == [list(node.input) for node in nodes]
    assert [["y0"], ["y0", "y1"]] == [list(node.output) for node in nodes]


def _real_schemas() -> list[Schema]:
    """Return all versions of some schemas of the installed onnx."""
    actual = []
    for each in onnx.defs.get_all_schemas_with_history():
        if each.domain == "" and each.name in {"Add", "Cast", "If", "Loop", "Scan", "SequenceMap", "Split", "Clip"}:
            inputs, outputs = (
                tuple(_formal(one.name, one.type_str, str(one.option).rpartition(".")[2]) for one in formals)
                for formals in (each.inputs, each.outputs)
            )
            constraints = {one.type_param_str: tuple(one.allowed_type_strs) for one in each.type_constraints}
            attributes = {name: str(one.type).rpartition(".")[2] for name, one in each.attributes.items()}
            required = tuple(name for name, one in each.attributes.items() if one.required)
            least = (each.min_input, each.min_output)
            of_node = (inputs, outputs, constraints, attributes, required)
            actual.append(Schema("ai.onnx", each.name, each.since_version, each.deprecated, *of_node, *least))
    return actual


def test_case_names_are_unique() -> None:
    """Names are unique, so that results do not overwrite each other."""
    names = [name for name, _ in every(_real_schemas(), {"ai.onnx": 21})]

    assert len(names) > 1000
    assert len(names) == len(set(names))


def test_models_pass_type_inference() -> None:
    """Type inference of onnx accepts the generated models, including those with subgraphs.

    `Identity` in subgraphs does not accept every type that `If` accepts; such models are tolerated.
    """
    in_force_now = in_force(_real_schemas(), {"ai.onnx": 21})
    made = [case for schema, last in in_force_now if schema.since >= 11 for case in cases(schema, last)]

    faults = {case.name: _fault(case) for case in made}

    assert {} == {name: fault for name, fault in faults.items() if fault and "(op_type:Identity)" not in fault}


def _fault(case: Case) -> str:
    try:
        onnx.shape_inference.infer_shapes(model(case, case.opset), check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "name", ["tensor(float)", "seq(tensor(int64))", "optional(seq(tensor(string)))", "sparse_tensor(double)"]
)
def test_type_names_convert_to_type_protos(name: str) -> None:
    """A type is converted to a `TypeProto` with the same meaning."""
    proto = type_proto(name)
    kinds = []
    while proto.WhichOneof("value") not in ("tensor_type", "sparse_tensor_type"):
        kinds.append(proto.WhichOneof("value"))
        proto = getattr(proto, kinds[-1]).elem_type
    kind = proto.WhichOneof("value")
    element = onnx.TensorProto.DataType.Name(getattr(proto, kind).elem_type).lower()
    spelled = f"{kind.removesuffix('_type')}({element})"
    for wrapper in reversed(kinds):
        spelled = f"{'seq' if wrapper == 'sequence_type' else 'optional'}({spelled})"

    assert name == spelled
