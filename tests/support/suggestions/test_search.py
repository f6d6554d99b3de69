"""Suggestions: applied to the model, each one makes it load on all required releases."""

from __future__ import annotations

from dataclasses import dataclass

import onnx.parser
import pytest
from onnx import ModelProto, helper

from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import (
    AttributeAddition,
    AttributeRemoval,
    DomainImport,
    FunctionExpansion,
    NodeProblem,
    Operation,
    OperatorReplacement,
    OpsetChange,
    Prediction,
    Suggestion,
    SupportGap,
    TypeCast,
)
from onnxgate.support.matching.type_inference import infer_model_types
from onnxgate.support.suggestions.search import (
    RequiredRelease,
    SupportGapGroup,
    find_suggestions,
)
from tests.support.apply_suggestion import applied

OLD_AND_NEW = ("1.18.1", "1.31.1")


def parse(opsets: str, body: str) -> ModelProto:
    """Return a model with an IR version that every release supports."""
    return onnx.parser.parse_model(f"<ir_version: 7, opset_import: [{opsets}]> {body}")


def required(names: tuple[str, ...]) -> list[RequiredRelease]:
    """Return releases as required ones."""
    return [RequiredRelease(_implementation(name), _limits(name)) for name in names]


def _implementation(name: str) -> operators.Implementation:
    implementation = operators.get_implementation(name)
    assert implementation is not None
    return implementation


def _limits(name: str) -> limits.Limits:
    actual = limits.get_limits(name)
    assert actual is not None
    return actual


def predictions(model: ModelProto, names: tuple[str, ...]) -> dict[str, Prediction]:
    """Return the prediction of each release."""
    prepared = infer_model_types(ModelView(model))
    return {
        each.implementation.release: predict(prepared, each.implementation, each.limits) for each in required(names)
    }


@dataclass(frozen=True)
class Refused:
    """One gap of a model, and its suggestions."""

    miss: SupportGap
    operations: tuple[Operation, ...]
    nodes: tuple[str, ...]
    ways: tuple[Suggestion, ...]


def refusals(model: ModelProto, names: tuple[str, ...]) -> list[Refused]:
    """Return the gaps of a model on some releases."""
    groups: dict[tuple[str, str], list[NodeProblem]] = {}
    for prediction in predictions(model, names).values():
        for found in prediction.found:
            if found.miss is not None:
                groups.setdefault((found.miss.rule, found.miss.problem), []).append(found)
    return [_refused(model, group, names) for group in groups.values()]


def _refused(model: ModelProto, group: list[NodeProblem], names: tuple[str, ...]) -> Refused:
    miss = group[0].miss
    assert miss is not None
    operations = tuple(dict.fromkeys(found.node.operation for found in group))
    ways = find_suggestions(SupportGapGroup(miss, operations), infer_model_types(ModelView(model)), required(names))
    return Refused(miss, operations, tuple(dict.fromkeys(found.node.name for found in group)), ways)


def changed(model: ModelProto, refused: Refused, way: Suggestion, names: tuple[str, ...]) -> ModelProto:
    """Return the model with a suggestion applied."""
    operator = _implementation(names[-1]).operator(refused.operations[0].domain, refused.operations[0].name)
    schema = operator.schema(refused.operations[0].version or 1) if operator is not None else None
    return applied(model, way, refused.nodes, refused.operations[0], schema)


@dataclass(frozen=True)
class Case:
    """A model with one gap, and its expected suggestions, the best first."""

    name: str
    model: ModelProto
    ways: tuple[Suggestion, ...]
    names: tuple[str, ...] = OLD_AND_NEW


CASES = (
    Case(
        "a lossless cast",
        parse('"" : 14', "g (uint16[N] a, uint16[N] b) => (uint16[N] c) { [n] c = Mul (a, b) }"),
        (TypeCast("T", "tensor(int32)", exact=True, back=True, inputs=("A", "B")),),
    ),
    Case(
        "no kernel in any release",
        parse(
            '"" : 14',
            "g (double[1, 3, 8, 8] x, double[4, 3, 3, 3] w) => (double[1, 4, 6, 6] y) { [n] y = Conv (x, w) }",
        ),
        (TypeCast("T", "tensor(float)", exact=False, back=True, inputs=("X", "W")),),
    ),
    Case(
        "one type parameter of two",
        parse('"" : 14', "g (float[2, 4] x, int32[1] k) => (float[A, B] v, int64[A, B] i) { [n] v, i = TopK (x, k) }"),
        (TypeCast("tensor(int64)", "tensor(int64)", exact=True, back=False, inputs=("K",)),),
    ),
    Case(
        "the operators of the definition",
        parse('"" : 19', "g (double[N] x) => (double[N] y) { [n] y = LeakyRelu (x) }"),
        (
            OpsetChange("ai.onnx", 18, whole=True),
            FunctionExpansion(),
            TypeCast("T", "tensor(float)", exact=False, back=True, inputs=("X",)),
        ),
    ),
    Case(
        "a definition that an older release does not find",
        parse('"" : 18', "g (double[N] x) => (double[N] y) { [n] y = Softplus (x) }"),
        (
            FunctionExpansion(),
            TypeCast("T", "tensor(float)", exact=False, back=True, inputs=("X",)),
        ),
        names=("1.16.3", "1.31.1"),
    ),
    Case(
        "a definition whose operators have no kernel either",
        parse('"" : 18', "g (double[N] x) => (double[N] y) { [n] y = HardSwish (x) }"),
        (TypeCast("T", "tensor(float)", exact=False, back=True, inputs=("X",)),),
        names=("1.16.3", "1.31.1"),
    ),
    Case(
        "an opset at which something else would be lost",
        parse(
            '"" : 13',
            "g (float[3, 3] x, int64[1, 3] i, float[1, 3] u) => (float[3, 3] y)"
            " { z = Celu (x) [n] y = Scatter (z, i, u) }",
        ),
        (OperatorReplacement("ai.onnx", "ScatterElements"),),
    ),
    Case(
        "two types in place of one",
        parse('"" : 14', "g (float[N] f, int64[N] i) => (float[N] y) { [n] y = Add (f, i) }"),
        (TypeCast("T", "tensor(float)", exact=False, back=False, inputs=("B",)),),
    ),
    Case(
        "a type that comes with the next opset",
        parse('"" : 13', "g (uint16[N] a, uint16[N] b) => (uint16[N] y) { [n] y = Add (a, b) }"),
        (
            OpsetChange("ai.onnx", 14, whole=True),
            TypeCast("T", "tensor(int32)", exact=True, back=True, inputs=("A", "B")),
        ),
        names=("1.21.1", "1.31.1"),
    ),
    Case(
        "an attribute that no kernel implements",
        parse(
            '"" : 14',
            "g (float[B, T, 4] x, float[1, 9, 4] w, float[1, 9, 3] r) => (float[B, T, 1, 3] y)"
            " { [n] y = GRU <hidden_size = 3, layout = 1> (x, w, r) }",
        ),
        (AttributeRemoval("layout"),),
    ),
    Case(
        "an attribute of a newer opset",
        parse(
            '"" : 17',
            "g (float[N, 4] x) => (float[N, 2] a, float[N, 2] b) { [n] a, b = Split <axis = 1, num_outputs = 2> (x) }",
        ),
        (OpsetChange("ai.onnx", 18, whole=True), AttributeRemoval("num_outputs")),
    ),
    Case(
        "an attribute that is required",
        parse('"" : 14', "g (int64[N] x) => (float[N] y) { [n] y = Cast (x) }"),
        (AttributeAddition((("to", "INT"),)),),
    ),
    Case(
        "arguments of a newer opset",
        parse('"" : 10', "g (float[N] x, float low, float high) => (float[N] y) { [n] y = Clip (x, low, high) }"),
        (OpsetChange("ai.onnx", 11, whole=True),),
    ),
    Case(
        "an operator of a newer opset",
        parse('"" : 18', "g (float[N] x) => (float[N] y) { [n] y = Gelu (x) }"),
        (OpsetChange("ai.onnx", 20, whole=True),),
    ),
    Case(
        "a name in another case",
        parse('"" : 14', "g (float[N] x) => (float[N] y) { [n] y = LeakyReLU (x) }"),
        (OperatorReplacement("ai.onnx", "LeakyRelu"),),
    ),
    Case(
        "what took a deprecated operator's place",
        parse(
            '"" : 13',
            "g (float[3, 3] x, int64[1, 3] i, float[1, 3] u) => (float[3, 3] y) { [n] y = Scatter (x, i, u) }",
        ),
        (OpsetChange("ai.onnx", 10, whole=True), OperatorReplacement("ai.onnx", "ScatterElements")),
    ),
    Case(
        "what took its place with other arguments",
        parse('"" : 13', "g (float[1, 1, 2, 2] x, float[4] s) => (float[1, 1, H, W] y) { [n] y = Upsample (x, s) }"),
        (
            OpsetChange("ai.onnx", 9, whole=True),
            OperatorReplacement(
                "ai.onnx",
                "Resize",
                (0, None, 1),
                (("coordinate_transformation_mode", "asymmetric"), ("nearest_mode", "floor")),
            ),
        ),
    ),
    Case(
        "what took its place at once",
        parse('"" : 10', "g (float[1, 1, 2, 2] x, float[4] s) => (float[1, 1, H, W] y) { [n] y = Upsample (x, s) }"),
        (OpsetChange("ai.onnx", 9, whole=True), OperatorReplacement("ai.onnx", "Resize")),
    ),
    Case(
        "a domain that is spelled wrong",
        parse('"" : 18, "com.microsft" : 1', "g (float[N] x) => (float[N] y) { [n] y = com.microsft.Gelu (x) }"),
        (OperatorReplacement("com.microsoft", "Gelu"),),
    ),
    Case(
        "a domain that a function does not import",
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 18, "my" : 1]> g (float[N] x) => (float[N] y) { y = my.Act (x) }
            <domain: "my", opset_import: ["" : 18]> Act (a) => (b) { [n] b = com.microsoft.Gelu (a) }"""
        ),
        (DomainImport("com.microsoft", 1),),
    ),
    Case(
        "a function whose domain is not imported",
        onnx.parser.parse_model(
            """<ir_version: 8, opset_import: ["" : 18]> g (float[N] x) => (float[N] y) { [n] y = my.Act (x) }
            <domain: "my", opset_import: ["" : 18]> Act (a) => (b) { b = Relu (a) }"""
        ),
        (DomainImport("my", 1),),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ways(case: Case) -> None:
    """The expected suggestions are found, the best first."""
    (refused,) = refusals(case.model, case.names)

    assert refused.ways == case.ways


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_way_leads_out(case: Case) -> None:
    """Applied to the model, each suggestion makes it load on all required releases."""
    (refused,) = refusals(case.model, case.names)
    verdicts = {
        (type(way).__name__, name): prediction.verdict
        for way in refused.ways
        for name, prediction in predictions(changed(case.model, refused, way, case.names), case.names).items()
    }

    assert set(verdicts.values()) == {"loads"}, verdicts


def test_many_unknown_operators_cost_little() -> None:
    """Nothing is stored for an operator that no release knows, because a model may have any number of them."""
    model = parse('"": 17', "g (float[N] x) => (float[N] y) { y = Unknown (x) }")
    release = required(OLD_AND_NEW)[0].implementation
    before = len(release.answers)

    (refused,) = refusals(model, OLD_AND_NEW)

    assert "`Unknown` does not exist" in refused.miss.problem
    assert before == len(release.answers)


def test_many_attributes_cost_little() -> None:
    """A node with thousands of unknown attributes is not matched once for each of them, which would be quadratic."""
    model = parse('"": 17', "g (float[N] x) => (float[N] y) { y = Relu (x) }")
    model.graph.node[0].attribute.extend(helper.make_attribute(f"unknown{index}", index) for index in range(5000))
    releases = required(OLD_AND_NEW)
    before = [len(release.implementation.answers) for release in releases]

    (refused,) = refusals(model, OLD_AND_NEW)

    assert "has no attribute `unknown0`" in refused.miss.problem
    assert max(len(it.implementation.answers) - count for it, count in zip(releases, before, strict=True)) < 50


@pytest.mark.parametrize(
    ("value_type", "expected"),
    [("tensor(bfloat16)", True), ("tensor(complex64)", False), ("seq(tensor(float))", False), ("tensor(int4)", False)],
)
def test_types_that_all_releases_can_cast(value_type: str, expected: bool) -> None:
    """An input of another type can replace one of these types; onnxruntime 1.18.1 does not know int4."""
    assert expected == all(release.can_cast(value_type, 21) for release in required(OLD_AND_NEW))
