"""Cases that run each branch of `If` nodes, chosen by evaluating their conditions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx.reference import ReferenceEvaluator

from onnxgate.inputs.branch_choices import MAX_CHOICES, list_unreached
from onnxgate.inputs.case_selection import CaseSelection, Choice
from onnxgate.inputs.cases import CaseGenerator, generate_cases
from onnxgate.model.reading.fact_extraction import ParsedModel, read_model

HEAD = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'
BRANCHES = """ y = If(c) <then_branch = a () => (float[N] z) { z = Relu(x) },
                           else_branch = b () => (float[N] w) { w = Neg(x) }> """
CONDITIONS = {
    "equal": ("int64 n", "int64 k = {16000}", "c = Equal(n, k)", [{"n": 16000}, {"n": 8000}]),
    "equal to no sample rate": ("int64 n", "int64 k = {5}", "c = Equal(n, k)", [{"n": 5}, {"n": 6}]),
    "after arithmetic": (
        "int32 n",
        "int64 k = {16}, int64 s = {1000}",
        "m = Cast<to = 7>(n) d = Div(m, s) c = Equal(d, k)",
        [{"n": 16000}, {"n": 8000}],
    ),
    "one of several": (
        "int64[1] n",
        "int64[2] k = {8000, 44100}",
        "e = Equal(n, k) i = Cast<to = 6>(e) m = ReduceMax<keepdims = 0>(i) c = Cast<to = 9>(m)",
        [{"n": 8000}, {"n": 16000}],
    ),
    "both inputs": (
        "int64 n, bool t",
        "int64 k = {4}",
        "e = Greater(n, k) c = And(e, t)",
        [{}, {"n": 5}],
    ),
    "either and not": (
        "bool s, bool t",
        "",
        "u = Not(s) c = Or(u, t)",
        [{}, {"t": False}],
    ),
    "where": (
        "int64 n",
        "int64 k = {3}, bool yes = {1}, bool no = {0}",
        "l = Less(n, k) c = Where(l, no, yes)",
        [{}, {"n": 3}],
    ),
    "table": (
        "int64 n",
        "bool[3] k = {0, 0, 1}",
        "c = Gather(k, n)",
        [{}, {"n": 2}],
    ),
    "size": ("", "int64[1] k = {7}", "s = Shape(x) c = Equal(s, k)", [{}]),
    "size of a reshaped value": (
        "",
        "int64[1] k = {7}",
        "r = Relu(x) s = Shape(r) q = Reshape(r, s) p = Shape(q) c = Equal(p, k)",
        [{}],
    ),
    "result of another branch": (
        "bool t",
        "",
        """c = If(t) <then_branch = p () => (bool q) { q = Not(t) },
                      else_branch = r () => (bool s) { s = Not(t) }>""",
        [{}, {"t": False}],
    ),
    "local function": ("int64 n", "", "c = local.is_wide(n)", [{"n": 16000}, {"n": 8000}]),
}
FUNCTION = """<domain: "local", opset_import: ["" : 17]>
is_wide (n) => (c) { k = Constant<value_int = 16000>() c = Equal(n, k) }"""
NESTED = """g (float[N] x, int64 n) => (float[N] y) <int64 k = {1}, int64 l = {2}> { c = Equal(n, k)
    y = If(c) <then_branch = a () => (float[N] z) { z = Relu(x) }, else_branch = b () => (float[N] w) {
        d = Equal(n, l)
        w = If(d) <then_branch = e () => (float[N] u) { u = Neg(x) }, else_branch = f () => (float[N] v) { v = Abs(x) }>
    }> }"""
LOOP = """g (float[N] x, int64 m) => (float[N] y) <bool yes = {1}, int64 two = {2}> {
    y = Loop(m, yes, x) <body = a (int64 i, bool before, float[N] v) => (bool after, float[N] w) {
        after = Identity(before)
        c = Equal(i, two)
        w = If(c) <then_branch = e () => (float[N] u) { u = Neg(v) }, else_branch = f () => (float[N] t) { t = Abs(v) }>
    }> }"""


def _read(folder: Path, text: str) -> ParsedModel:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return read_model(path, "model.onnx")


def _conditional(declared: str, constants: str, condition: str) -> str:
    head = f"float[N] x{', ' if declared else ''}{declared}"
    return f"g ({head}) => (float[N] y) <{constants}> {{ {condition} {BRANCHES} }}\n{FUNCTION}"


def _plan(reading: ParsedModel, sizes: dict[str, list[int]] | None = None) -> list[Choice]:
    return [case.choice for case in CaseGenerator(reading.facts, reading.view, sizes or {}).plan()]


@pytest.mark.parametrize("name", CONDITIONS)
def test_each_branch_has_a_case(tmp_path: Path, name: str) -> None:
    """The values come from the constants that the condition uses; together, the cases reach all branches."""
    declared, constants, condition, expected = CONDITIONS[name]
    reading = _read(tmp_path, _conditional(declared, constants, condition))
    generator = CaseGenerator(reading.facts, reading.view, {})
    planned = generator.plan()
    search = generator.search_choices(planned[0].choice.sizes)
    assert search is not None
    reached = [search.evaluate(case.choice) for case in planned]

    assert list_unreached(search.branches, reached) == ()
    assert not any(result.unknown for result in reached)
    assert [case.choice.values for case in planned if case.choice.sizes == {"N": 1}] == expected


def test_branch_of_a_size_is_a_probe(tmp_path: Path) -> None:
    """A size is taken from the constants of the condition; the model may not support it."""
    reading = _read(tmp_path, _conditional(*CONDITIONS["size"][:3]))
    planned = CaseGenerator(reading.facts, reading.view, {}).plan()

    assert [(case.name, case.is_probe) for case in planned] == [
        ("sizes N=1", False),
        ("sizes N=3", False),
        ("sizes N=7", True),
    ]


def test_configured_sizes_are_not_changed(tmp_path: Path) -> None:
    """Only guessed axes get other sizes."""
    reading = _read(tmp_path, _conditional(*CONDITIONS["size"][:3]))

    assert [choice.sizes for choice in _plan(reading, {"N": [4]})] == [{"N": 4}]


def test_nested_branches_are_reached(tmp_path: Path) -> None:
    """A branch inside a branch needs a value that chooses both."""
    values = [choice.values for choice in _plan(_read(tmp_path, NESTED)) if choice.sizes == {"N": 1}]

    assert values == [{"n": 1}, {"n": 2}, {"n": 0}]


@pytest.mark.parametrize(
    ("main", "then", "otherwise", "expected"),
    [
        ("c = Greater(n, four)", "k = Sub(n, sixteen) e = Gather(eight, k) z = Mul(x, e)", "w = Neg(x)", {True, False}),
        (
            "c = Greater(n, four)",
            "k = Sub(n, sixteen) e = Gather(eight, k) z = Mul(x, e)",
            "f = Gather(two, n) w = Mul(x, f)",
            {True, False},
        ),
        ("c = Equal(n, four)", "z = Neg(x)", "k = Sub(n, sixteen) f = Gather(two, k) w = Mul(x, f)", {True, False}),
        ("c = Greater(n, four) k = Sub(n, sixteen) e = Gather(eight, k)", "z = Mul(x, e)", "w = Neg(x)", {True}),
    ],
)
def test_indices_in_a_branch_limit_only_this_branch(
    tmp_path: Path, main: str, then: str, otherwise: str, expected: set[bool]
) -> None:
    """The values for the other branch need not be valid indices. Indices in the main graph limit all branches."""
    text = f"""g (float[N] x, int64 n) => (float[N] y) <int64 four = {{4}}, int64 sixteen = {{16}},
        float[8] eight = {{1, 2, 3, 4, 5, 6, 7, 8}}, float[2] two = {{1, 2}}> {{ {main}
        y = If(c) <then_branch = a () => (float[N] z) {{ {then} }},
                   else_branch = b () => (float[N] w) {{ {otherwise} }}> }}"""
    reading = _read(tmp_path, text)
    generator = CaseGenerator(reading.facts, reading.view, {})
    planned = generator.plan()
    search = generator.search_choices({"N": 1})
    assert search is not None
    session = ReferenceEvaluator(reading.proto)
    for case in generator.write(planned, tmp_path / "cases"):
        session.run(None, {name: np.load(path) for name, path in case.inputs.items()})  # fails for an invalid index

    assert {truth for case in planned for _, truth in search.evaluate(case.choice).chosen} == expected


def test_condition_in_a_loop_is_unknown(tmp_path: Path) -> None:
    """The number of the iteration is not known, so nothing is claimed about the branches."""
    reading = _read(tmp_path, LOOP)
    generator = CaseGenerator(reading.facts, reading.view, {})
    search = generator.search_choices({"N": 1})
    assert search is not None
    result = search.evaluate(Choice({}, {"N": 1}))

    assert (len(result.unknown), [node.is_loop for node, _ in result.chosen]) == (1, [True])
    assert [choice.values for choice in _plan(reading)] == [{}, {}]


@pytest.mark.parametrize(
    ("declared", "condition", "trips", "expected"),
    [
        ("int64 n", "c = Equal(n, k)", "three", [{"n": 16000}]),
        ("bool stop", "c = Not(stop)", "three", [{}, {"stop": False}]),
        ("int64 n", "c = Less(zero, n)", "n", [{}]),
        ("int64 n", "c = Cast<to = 9>(k) e = Equal(n, k) d = Cast<to = 7>(e)", "d", [{"n": 16000}]),
    ],
)
def test_body_of_a_loop_is_a_branch(
    tmp_path: Path, declared: str, condition: str, trips: str, expected: list[dict[str, object]]
) -> None:
    """A loop whose body never runs hides its faults. No case is added to skip a body."""
    constants = "int64 k = {16000}, int64 three = {3}, int64 zero = {0}"
    text = f"""g (float[N] x, {declared}) => (float[N] y) <{constants}> {{ {condition}
        y = Loop({trips}, c, x) <body = a (int64 i, bool b, float[N] v) => (bool t, float[N] w) {{
            t = Identity(b) w = Neg(v) }}> }}"""
    reading = _read(tmp_path, text)
    planned = [case.choice for case in CaseGenerator(reading.facts, reading.view, {}).plan()]

    assert [choice.values for choice in planned if choice.sizes == {"N": 1}] == expected


def test_unknown_outer_condition_hides_inner_ones(tmp_path: Path) -> None:
    """Nothing is claimed about an `If` node in a branch that may not run."""
    text = NESTED.replace(
        "c = Equal(n, k)", "m = ReduceMean<keepdims = 0>(x) p = Exp(m) q = Cast<to = 7>(p) c = Equal(q, k)"
    )
    reading = _read(tmp_path, text)
    search = CaseGenerator(reading.facts, reading.view, {}).search_choices({"N": 1})
    assert search is not None

    assert search.evaluate(Choice({}, {"N": 1})).unknown == {*search.branches.conditionals}


def test_constant_condition_adds_no_case(tmp_path: Path) -> None:
    """A condition that depends on constants only has one possible branch."""
    reading = _read(tmp_path, _conditional("", "int64 k = {1}", "c = Cast<to = 9>(k)"))

    assert [dict(choice.values) for choice in _plan(reading)] == [{}, {}]


def test_additional_cases_are_bounded(tmp_path: Path) -> None:
    """Twelve independent conditions on twelve inputs do not lead to 4096 cases."""
    count = 12
    inputs = ", ".join(f"bool c{index}" for index in range(count))
    nodes = " ".join(
        f"y{index} = If(c{index}) <then_branch = a{index} () => (float z{index}) {{ z{index} = Relu(x) }},"
        f" else_branch = b{index} () => (float w{index}) {{ w{index} = Neg(x) }}>"
        for index in range(count)
    )
    outputs = ", ".join(f"float y{index}" for index in range(count))
    reading = _read(tmp_path, f"g (float x, {inputs}) => ({outputs}) {{ {nodes} }}")

    assert len(_plan(reading)) == 1 + MAX_CHOICES


def test_values_are_written_and_selected_by_name(tmp_path: Path) -> None:
    """The name of a case contains the values, so that `--case` reproduces it."""
    reading = _read(tmp_path, _conditional(*CONDITIONS["equal"][:3]))
    cases = generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")
    (choice,) = CaseSelection(cases=(cases[1].name,)).choices(reading.facts.inputs)

    assert [case.name for case in cases] == [
        "sizes N=1 with n=16000",
        "sizes N=1 with n=8000",
        "sizes N=3 with n=16000",
    ]
    assert [int(np.load(case.inputs["n"])) for case in cases] == [16000, 8000, 16000]
    assert (choice.values, choice.sizes, cases[1].chosen) == ({"n": 8000}, {"N": 1}, {"n": 8000})
    assert (np.load(cases[0].inputs["x"]) == np.load(cases[1].inputs["x"])).all()


def constant_branch(*outputs: str) -> onnx.GraphProto:
    """Return a branch whose outputs are true."""
    value = onnx.helper.make_tensor("t", onnx.TensorProto.BOOL, [], [True])
    nodes = [onnx.helper.make_node("Constant", [], [name], value=value) for name in outputs]
    types = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.BOOL, []) for name in outputs]
    return onnx.helper.make_graph(nodes, "b", [], types)


CONSTANT_BRANCHES = {"then_branch": constant_branch("t1"), "else_branch": constant_branch("e1")}
MALFORMED = {
    "fewer outputs": [
        onnx.helper.make_node("Equal", ["sr", "k"], ["c"]),
        onnx.helper.make_node("If", ["c"], ["a", "b"], **CONSTANT_BRANCHES),
        onnx.helper.make_node("If", ["b"], ["y"], **CONSTANT_BRANCHES),
    ],
    "no branches": [
        onnx.helper.make_node("Equal", ["sr", "k"], ["c"]),
        onnx.helper.make_node("If", ["c"], ["b"]),
        onnx.helper.make_node("If", ["b"], ["y"], **CONSTANT_BRANCHES),
    ],
    "no condition": [onnx.helper.make_node("If", [], ["y"], **CONSTANT_BRANCHES)],
    "shape of nothing": [
        onnx.helper.make_node("Shape", [], ["s"]),
        onnx.helper.make_node("If", ["s"], ["y"], **CONSTANT_BRANCHES),
    ],
    "cycle": [
        onnx.helper.make_node("Not", ["d"], ["c"]),
        onnx.helper.make_node("Not", ["c"], ["d"]),
        onnx.helper.make_node("If", ["d"], ["y"], **CONSTANT_BRANCHES),
    ],
}


@pytest.mark.parametrize("nodes", MALFORMED.values(), ids=MALFORMED)
def test_malformed_nodes_do_not_end_the_check(nodes: list[onnx.NodeProto], tmp_path: Path) -> None:
    """Inputs are generated for an invalid model, and the runtimes decide about it."""
    inputs = [onnx.helper.make_tensor_value_info("sr", onnx.TensorProto.INT64, [])]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.BOOL, [])]
    weights = [onnx.helper.make_tensor("k", onnx.TensorProto.INT64, [], [8000])]
    graph = onnx.helper.make_graph(nodes, "g", inputs, outputs, weights)
    path = tmp_path / "m.onnx"
    path.write_bytes(onnx.helper.make_model(graph).SerializeToString())
    reading = read_model(path, "m.onnx")

    assert generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")
