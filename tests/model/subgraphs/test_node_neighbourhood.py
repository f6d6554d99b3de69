"""The neighborhood of a node for drawings: the nodes before and after it, anywhere in the model."""

from __future__ import annotations

import onnx
from hypothesis import given
from hypothesis import strategies as st

from onnxgate.core.report import Drawing
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.node_context import MAX_BOXES, NamedNode, NeighbourhoodDrawer

HEAD = '<ir_version: 8, opset_import: ["" : 18{}]> '


def neighborhood(text: str, name: str, output: str = "", *, functions: str = "") -> Drawing | None:
    """Return the neighborhood of a node in a model in ONNX text format."""
    imported = ', "local" : 1' if functions else ""
    model = onnx.parser.parse_model(HEAD.format(imported) + text + functions)
    return NeighbourhoodDrawer(ModelView(model)).draw(NamedNode("m.onnx", name or output, unnamed=not name))


def boxes_and_arrows(actual: Drawing | None) -> tuple[dict[str, str], set[str]]:
    """Return boxes by name, and arrows as text."""
    assert actual is not None
    names = [box.name for box in actual.nodes]
    arrows = {f"{names[edge.source]} -{edge.value}-> {names[edge.target]}" for edge in actual.edges}
    return {box.name: f"{box.kind} {box.operator}".strip() for box in actual.nodes}, arrows


def test_two_steps_each_way() -> None:
    """Weights, inputs and outputs are marked; nodes three steps away are omitted."""
    actual = neighborhood(
        """g (float[N] x) => (float[N] y, float[N] side) <float[1] w = {1}, float[1] far = {2}> {
          [n0] a = Add(x, far)
          [n1] b = Relu(a)
          [n2] c = Add(b, w)
          [bad] d = Mul(c, b)
          [n3] side = Neg(d)
          [n4] e = Exp(d)
          [n5] f = Log(e)
          [n6] y = Abs(f)
        }""",
        "bad",
    )

    assert (
        {
            "bad": "failing Mul",
            "n2": "node Add",
            "n1": "node Relu",
            "n3": "node Neg",
            "n4": "node Exp",
            "w": "weight",
            "n0": "node Add",
            "side": "output",
            "n5": "node Log",
        },
        {
            *("n0 -a-> n1", "n1 -b-> n2", "w -w-> n2", "n1 -b-> bad", "n2 -c-> bad"),
            *("bad -d-> n3", "bad -d-> n4", "n3 -side-> side", "n4 -e-> n5"),
        },
    ) == boxes_and_arrows(actual)


def test_a_constant_is_a_weight_and_its_value_names_it() -> None:
    """A Constant node is drawn as a weight, named after its value if it has no name."""
    boxes, arrows = boxes_and_arrows(
        neighborhood("g (float[N] x) => (float[N] y) { k = Constant<value_float = 1.0>() [bad] y = Add(x, k) }", "bad")
    )

    assert {"bad": "failing Add", "x": "input", "k": "weight Constant", "y": "output"} == boxes
    assert {"x -x-> bad", "k -k-> bad", "bad -y-> y"} == arrows


def test_unnamed_node_is_found_by_its_output() -> None:
    """An unnamed node is found by its output, and its box has the output's name."""
    boxes, _ = boxes_and_arrows(neighborhood("g (float[N] x) => (float[N] y) { a = Relu(x) y = Neg(a) }", "", "a"))

    assert "failing Relu" == boxes["a"]
    assert {"a", "x", "y"} == set(boxes)


def test_missing_and_ambiguous_nodes() -> None:
    """Nothing is drawn if the node is ambiguous; a named node is not found by its output."""
    text = "g (float[N] x) => (float[N] y) { [one] a = Relu(x) [two] b = Neg(a) [two] y = Abs(b) }"

    assert neighborhood(text, "three") is None
    assert neighborhood(text, "two") is None
    assert neighborhood(text, "", "a") is None
    assert neighborhood(text, "", "") is None
    assert neighborhood(text, "one") is not None


def test_inside_a_subgraph() -> None:
    """Outer values in a subgraph are connected to the outer nodes that compute them."""
    text = """g (bool c, float[N] x) => (float[N] y) {
      [outer] a = Relu(x)
      [if] y = If(c) <
        then_branch = t () => (float[N] u) { [bad] v = Neg(a) [last] u = Add(v, x) },
        else_branch = e () => (float[N] w) { [other] w = Identity(x) }>
    }"""

    boxes, arrows = boxes_and_arrows(neighborhood(text, "bad"))

    assert {"bad": "failing Neg", "outer": "node Relu", "last": "node Add", "x": "input", "u": "output"} == boxes
    assert {"x -x-> outer", "outer -a-> bad", "bad -v-> last", "x -x-> last", "last -u-> u"} == arrows


def test_value_used_in_a_subgraph_is_an_input_of_its_node() -> None:
    """A value used in a subgraph is drawn as an input of the node with the subgraph."""
    text = """g (bool c, float[N] x) => (float[N] y) {
      [bad] a = Relu(x)
      [if] y = If(c) <
        then_branch = t () => (float[N] u) { v = Neg(a) u = Abs(v) },
        else_branch = e () => (float[N] w) { w = Identity(x) }>
    }"""

    boxes, arrows = boxes_and_arrows(neighborhood(text, "bad"))

    assert {"bad": "failing Relu", "x": "input", "if": "node If", "y": "output"} == boxes
    assert {"x -x-> bad", "bad -a-> if", "x -x-> if", "if -y-> y"} == arrows


def test_inside_a_local_function() -> None:
    """The function's own inputs and outputs are drawn as ends."""
    actual = neighborhood(
        "g (float[N] x) => (float[N] y) { y = local.f(x) }",
        "bad",
        functions=' <domain: "local", opset_import: ["" : 18]> f (p) => (q) { a = Relu(p) [bad] q = Neg(a) }',
    )

    boxes, _ = boxes_and_arrows(actual)

    assert {"bad": "failing Neg", "a": "node Relu", "p": "input", "q": "output"} == boxes


def test_many_neighbours_are_counted() -> None:
    """Of 40 nodes before the failing one, 4 are drawn, and of 9 nodes after it, 2; the others are counted."""
    before = "".join(f"[in{n}] a{n} = Relu(x) " for n in range(40))
    after = "".join(f"[out{n}] b{n} = Neg(c) " for n in range(9))
    joined = ", ".join(f"a{n}" for n in range(40))
    actual = neighborhood(
        f"g (float[N] x) => (float[M] b0) {{ {before} [bad] c = Concat<axis = 0>({joined}) {after} }}", "bad"
    )
    assert actual is not None

    assert [box.name for box in actual.nodes if box.kind == "more"] == ["36 more", "7 more"]
    assert [box.name for box in actual.nodes if box.name.startswith("in")] == ["in0", "in1", "in2", "in3"]
    assert {(actual.nodes[edge.source].name, actual.nodes[edge.target].name) for edge in actual.edges} >= {
        ("36 more", "bad"),
        ("bad", "7 more"),
    }


def test_value_without_producer_is_omitted() -> None:
    """A value that no node computes is omitted."""
    model = onnx.parser.parse_model(HEAD.format("") + "g (float[N] x) => (float[N] y) { [bad] z = Add(x, gone) }")

    boxes, arrows = boxes_and_arrows(
        NeighbourhoodDrawer(ModelView(model)).draw(NamedNode("m.onnx", "bad", unnamed=False))
    )

    assert {"bad": "failing Add", "x": "input"} == boxes
    assert {"x -x-> bad"} == arrows


@st.composite
def models(draw: st.DrawFn) -> onnx.ModelProto:
    """Draw a model with arbitrary connections, including cycles."""
    values = [f"v{n}" for n in range(12)]
    some = st.lists(st.sampled_from(["", *values]), max_size=12)
    nodes = [
        onnx.helper.make_node("Op", draw(some), [value], name=f"n{index}")
        for index, value in enumerate(draw(st.lists(st.sampled_from(values), min_size=1, max_size=40)))
    ]
    graph = onnx.helper.make_graph(nodes, "g", [], [onnx.helper.make_tensor_value_info("v0", 1, [1])])
    return onnx.helper.make_model(graph)


@given(models())
def test_few_connected_boxes_for_any_model(model: onnx.ModelProto) -> None:
    """Any model results in few boxes, exactly one of them failing, all connected by arrows."""
    neighbourhood = NeighbourhoodDrawer(ModelView(model)).draw(NamedNode("m.onnx", "n0", unnamed=False))
    assert neighbourhood is not None
    numbers = range(len(neighbourhood.nodes))
    tied = {end for edge in neighbourhood.edges for end in (edge.source, edge.target)}

    assert len(neighbourhood.nodes) <= MAX_BOXES + 1
    assert [box.kind for box in neighbourhood.nodes].count("failing") == 1
    assert tied <= set(numbers)
    assert set(numbers) - {0} <= tied
