"""Differences between two models: single edits of each kind."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxgate.model.diff.model_diff import NamedModel, compute_diff
from onnxgate.model.diff.result import Difference
from tests.harness.models import HEAD, make_external, parse, write

NET = """g (float[N, 8] x) => (float[N, 8] y)
{
  [first] a = MatMul (x, w1)
  [left] b = Relu (a)
  [right] c = Sigmoid (a)
  [mix] d = Sub (b, c)
  [second] e = MatMul (d, w2)
  [shrink] f = LeakyRelu <alpha = 0.25> (e)
  [third] h = MatMul (f, w3)
  [last] y = Add (h, x)
}"""
INSIDE = """g (float[N, 8] x, bool p) => (float[N, 8] y)
{
  a = Relu (x)
  [choice] y = If (p) <
    then_branch = t () => (float[N, 8] t2) { [inner] t1 = Sigmoid (a)  [outer] t2 = Neg (t1) },
    else_branch = e () => (float[N, 8] e2) { e1 = Relu (a)  e2 = Neg (e1) }
  >
}"""
FUNCTIONS = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
g (float[N, 8] x) => (float[N, 8] y) { h = my.twice (x)  y = my.twice (h) }
<domain: "my", opset_import: ["" : 18]>
twice (v) => (z) { [half] u = Relu (v)  [whole] z = Add (u, u) }"""


def net(text: str = NET, seed: int = 0) -> onnx.ModelProto:
    """Return a model whose weights are drawn from `seed`."""
    model = parse(text)
    random = np.random.default_rng(seed)
    for name in ("w1", "w2", "w3"):
        values = random.standard_normal((8, 8)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def compare(folder: Path, old: onnx.ModelProto, new: onnx.ModelProto) -> Difference:
    """Return the difference of two models."""
    first, second = write(folder / "old.onnx", old), write(folder / "new.onnx", new)
    return compute_diff(NamedModel("old.onnx", first), NamedModel("new.onnx", second), "0")


def summarize(actual: Difference) -> list[tuple[str, ...]]:
    """Return the changes of nodes in short form."""
    return [(it.change, it.operator, it.name, *(detail.text for detail in it.details)) for it in actual.nodes]


def test_equal_bytes(tmp_path: Path) -> None:
    """Identical files are reported as identical, without details."""
    comparison = compare(tmp_path, net(), net())

    assert (comparison.verdict, comparison.nodes, comparison.weights, comparison.harmless) == ("identical", (), (), ())


def test_every_name(tmp_path: Path) -> None:
    """Different names of nodes, inner values, weights and the graph do not make a different model."""
    new = net(NET.replace("g (", "graph ("))
    renamed: dict[str, str] = {}
    for tensor in new.graph.initializer:
        renamed[tensor.name] = tensor.name = f"p{tensor.name}"
    for index, node in enumerate(new.graph.node):
        node.name = f"n{index}"
        renamed |= {name: f"v{index}" for name in node.output if name != "y"}
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    comparison = compare(tmp_path, net(), new)

    assert (comparison.verdict, summarize(comparison), comparison.weights) == ("same", [], ())
    assert comparison.harmless == ("node names", "names of intermediate values", "weight names", "graph name")


def test_another_order(tmp_path: Path) -> None:
    """Another valid order of the nodes does not make a different model."""
    new = net()
    left, right = new.graph.node[1], new.graph.node[2]
    new.graph.node.insert(3, left)
    new.graph.node.pop(1)
    assert new.graph.node[1] == right
    comparison = compare(tmp_path, net(), new)

    assert (comparison.verdict, comparison.harmless) == ("same", ("node order",))


@pytest.mark.parametrize("operator", ["Identity", "Relu", "Cast"])
@pytest.mark.parametrize("after", ["first", "mix", "second", "shrink", "third"])
def test_put_in(tmp_path: Path, operator: str, after: str) -> None:
    """An inserted node is the only reported change; its readers are not reported."""
    comparison = compare(tmp_path, net(), put_in(net(), operator, after))

    assert summarize(comparison) == [("added", operator, "put in")]
    assert comparison.nodes[0].inserted
    assert (comparison.weights, comparison.ends) == ((), ())


def put_in(model: onnx.ModelProto, operator: str, after: str) -> onnx.ModelProto:
    """Insert a node between the node named `after` and all its readers."""
    position = next(index for index, node in enumerate(model.graph.node) if node.name == after)
    value = model.graph.node[position].output[0]
    more = {"to": TensorProto.FLOAT} if operator == "Cast" else {}
    for node in model.graph.node:
        node.input[:] = ["between" if name == value else name for name in node.input]
    model.graph.node.insert(position + 1, helper.make_node(operator, [value], ["between"], name="put in", **more))
    return model


def test_deleted_node(tmp_path: Path) -> None:
    """A deleted node is the only reported change."""
    comparison = compare(tmp_path, put_in(net(), "Relu", "second"), net())

    assert summarize(comparison) == [("removed", "Relu", "put in")]
    assert comparison.nodes[0].inserted
    assert comparison.nodes[0].reads == ("`MatMul` `second`",)
    assert comparison.nodes[0].feeds == ("`LeakyRelu` `shrink`",)


def test_at_the_ends(tmp_path: Path) -> None:
    """A node inserted after the input or before the output is the only reported change."""
    first = parse(NET.replace("MatMul (x, w1)", "MatMul (z, w1)").replace("[first]", "[new] z = Neg (x)\n  [first]"))
    last = parse(NET.replace("[last] y = Add (h, x)", "[last] z = Add (h, x)\n  [new] y = Neg (z)"))
    for model in (first, last):
        model.graph.initializer.extend(net().graph.initializer)
        comparison = compare(tmp_path, net(), model)

        assert summarize(comparison) == [("added", "Neg", "new")]
        assert (comparison.nodes[0].inserted, comparison.ends) == (True, ())


def test_replaced(tmp_path: Path) -> None:
    """A node of another operator in the same place is reported as a replacement."""
    comparison = compare(tmp_path, net(), net(NET.replace("Sigmoid", "Tanh")))

    assert summarize(comparison) == [("replaced", "Tanh", "right")]
    assert comparison.nodes[0].was == "Sigmoid"


def test_an_attribute(tmp_path: Path) -> None:
    """Both values of an attribute are reported; an explicit default value is not a change."""
    comparison = compare(tmp_path, net(), net(NET.replace("0.25", "0.5")))
    spelled = compare(
        tmp_path,
        net(NET.replace("<alpha = 0.25>", "")),
        net(NET.replace("<alpha = 0.25>", "<alpha = 0.01>")),
    )

    assert summarize(comparison) == [("changed", "LeakyRelu", "shrink", "attribute `alpha` changed from 0.25 to 0.5")]
    assert (spelled.verdict, spelled.harmless) == ("same", ("explicit default values",))


def test_swapped_operands(tmp_path: Path) -> None:
    """Swapped inputs of a node are reported, with a remark if the operator is commutative."""
    swapped = compare(tmp_path, net(), net(NET.replace("Sub (b, c)", "Sub (c, b)")))
    harmless = compare(tmp_path, net(), net(NET.replace("Add (h, x)", "Add (x, h)")))

    assert summarize(swapped) == [("changed", "Sub", "mix", "inputs 0 and 1 are swapped")]
    assert summarize(harmless) == [("changed", "Add", "last", "inputs 0 and 1 are swapped (no effect on `Add`)")]


def test_rewired_input(tmp_path: Path) -> None:
    """An input that comes from another existing node is reported."""
    comparison = compare(tmp_path, net(), net(NET.replace("Add (h, x)", "Add (h, d)")))

    assert summarize(comparison) == [("changed", "Add", "last", "input 1 changed from input `x` to `Sub` `mix`")]


def test_one_input_moves_to_another_place(tmp_path: Path) -> None:
    """Moving one input to the other's position is not reported as a swap."""
    comparison = compare(tmp_path, net(), net(NET.replace("Sub (b, c)", "Sub (c, x)")))
    second = compare(tmp_path, net(), net(NET.replace("Sub (b, c)", "Sub (x, b)")))

    assert all("swapped" not in detail.text for it in second.nodes for detail in it.details)
    assert [detail.text for it in comparison.nodes if it.name == "mix" for detail in it.details] == [
        "input 0 changed from `Relu` `left` to `Sigmoid` `right`",
        "input 1 changed from `Sigmoid` `right` to input `x`",
    ]


def test_a_new_node_that_takes_the_place_of_an_input(tmp_path: Path) -> None:
    """The former input of the reader is reported once, at the added node."""
    text = NET.replace("[last] y = Add (h, x)", "[new] z = Neg (d)  [last] y = Add (h, z)")
    comparison = compare(tmp_path, net(), net(text))

    assert summarize(comparison) == [("added", "Neg", "new")]
    assert (comparison.nodes[0].inserted, comparison.nodes[0].feeds) == (
        False,
        ("`Add` `last` (input 1, previously input `x`)",),
    )


def test_swapped_weights_of_one_node(tmp_path: Path) -> None:
    """Swapped weights of one node are reported as swapped inputs, not as changed weights."""
    text = "g (float[N, 8] x) => (float[N, 8] y) { [norm] y = LayerNormalization (x, scale, offset) }"
    old, new = parse(text), parse(text.replace("scale, offset", "offset, scale"))
    for model in (old, new):
        for seed, name in enumerate(("scale", "offset")):
            values = np.random.default_rng(seed).standard_normal(8).astype(np.float32)
            model.graph.initializer.append(numpy_helper.from_array(values, name))
    comparison = compare(tmp_path, old, new)

    assert summarize(comparison) == [("changed", "LayerNormalization", "norm", "inputs 1 and 2 are swapped")]
    assert comparison.weights == ()


def test_weight_that_is_no_longer_shared(tmp_path: Path) -> None:
    """A node that no longer shares a weight gets an added weight; the shared one is unchanged."""
    shared = net(NET.replace("w3", "w1"))
    shared.graph.initializer.pop(2)
    own = net(NET.replace("(x, w1)", "(x, w9)").replace("w3", "w8"))
    own.graph.initializer[0].name, own.graph.initializer[2].name = "w8", "w9"
    comparison = compare(tmp_path, shared, own)

    assert summarize(comparison) == [("changed", "MatMul", "first", "input 1 changed from weight `w1` to weight `w9`")]
    assert [(it.change, it.name) for it in comparison.weights] == [("added", "w9")]


def test_weight_replaced_by_a_node(tmp_path: Path) -> None:
    """If a weight is replaced by a quantized one and a DequantizeLinear node, only the added node is reported."""
    text = "g (float[N, 3, 8, 8] x) => (float[N, 2, 6, 6] y) { [conv] c = Conv (x, w)  [act] y = Relu (c) }"
    packed = "[unpack] w = DequantizeLinear (q, s)  [conv]"
    old, new = parse(text), parse(text.replace("[conv]", packed))
    weight = np.random.default_rng(0).standard_normal((2, 3, 3, 3)).astype(np.float32)
    old.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    new.graph.initializer.append(numpy_helper.from_array((weight * 50).astype(np.int8), "q"))
    new.graph.initializer.append(numpy_helper.from_array(np.float32(0.02), "s"))
    comparison = compare(tmp_path, old, new)

    assert summarize(comparison) == [("added", "DequantizeLinear", "unpack")]
    assert comparison.nodes[0].feeds == ("`Conv` `conv` (input 1, previously weight `w`)",)


def test_one_weight(tmp_path: Path) -> None:
    """The number of changed elements and the distances are reported."""
    new = net()
    values = numpy_helper.to_array(new.graph.initializer[1]).copy()
    values[2, 3] += 0.5
    new.graph.initializer[1].CopyFrom(numpy_helper.from_array(values, "w2"))
    comparison = compare(tmp_path, net(), new)
    (weight,) = comparison.weights

    assert summarize(comparison) == []
    assert (weight.change, weight.name, weight.elements, weight.total) == ("changed", "w2", 1, 64)
    assert weight.largest == pytest.approx(0.5, rel=1e-6)
    assert weight.relative == pytest.approx(0.5 / np.linalg.norm(numpy_helper.to_array(net().graph.initializer[1])))


def test_a_weight_that_is_not_finite(tmp_path: Path) -> None:
    """A changed NaN or infinite element is reported instead of a distance."""
    old, new = net(), net()
    values = numpy_helper.to_array(new.graph.initializer[0]).copy()
    values.flat[:2] = np.nan, np.inf
    values.flat[2] += 0.5
    new.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, new.graph.initializer[0].name))
    (there,), (back,) = (compare(tmp_path, *sides).weights for sides in ((old, new), (new, old)))

    for found in (there, back):
        assert (found.elements, found.largest, found.relative) == (3, None, None)
    assert there.text == back.text == "2 changed elements are NaN or infinite in one of the models"


def test_two_weights_swapped(tmp_path: Path) -> None:
    """Two weights that are swapped are reported as changed weights, not as changed nodes."""
    comparison = compare(tmp_path, net(), net(NET.replace("w1", "w").replace("w3", "w1").replace("(x, w)", "(x, w3)")))

    assert summarize(comparison) == []
    assert [(it.name, it.text) for it in comparison.weights] == [
        ("w1", "has the previous content of `w1`"),
        ("w3", "has the previous content of `w3`"),
    ]


def test_weights_that_change_places_in_a_ring(tmp_path: Path) -> None:
    """Three weights that are rotated are reported as changed weights, not as changed nodes."""
    ring = NET.replace("w1", "a").replace("w2", "b").replace("w3", "c")
    for old, new in (("a)", "w2)"), ("b)", "w3)"), ("c)", "w1)")):
        ring = ring.replace(f", {old}", f", {new}") if old != "c)" else ring.replace("(f, c)", "(f, w1)")
    comparison = compare(tmp_path, net(), net(ring.replace("Sub (b, w1)", "Sub (b, c)")))

    assert summarize(comparison) == []
    assert [it.change for it in comparison.weights] == ["changed"] * 3


@pytest.mark.parametrize("tuned", [0.0, 0.01])
def test_many_equal_blocks(tmp_path: Path, tuned: float) -> None:
    """In a model of equal blocks, one removed block and one added node are found even if weights and names change."""

    def blocks(prefix: str, indices: list[int], extra: int, scale: float) -> onnx.ModelProto:
        lines, value = [], "x"
        for place, index in enumerate(indices):
            lines += [f"{prefix}m{place} = MatMul ({value}, {prefix}w{place})"]
            lines += [f"{prefix}r{place} = Relu ({prefix}m{place})"]
            lines += [f"{prefix}a{place} = Add ({prefix}r{place}, {value})"]
            value = f"{prefix}a{place}"
            if index == extra:
                lines += [f"{prefix}e = Neg ({value})"]
                value = f"{prefix}e"
        model = parse(f"g (float[N, 24] x) => (float[N, 24] y) {{ {' '.join(lines)} y = Neg ({value}) }}")
        for place, index in enumerate(indices):
            random = np.random.default_rng(index)
            weight = random.standard_normal((24, 24)) + scale * np.random.default_rng(99).standard_normal((24, 24))
            tensor = numpy_helper.from_array(weight.astype(np.float32), f"{prefix}w{place}")
            model.graph.initializer.append(tensor)
        return model

    every = list(range(12))
    comparison = compare(tmp_path, blocks("o", every, -1, 0), blocks("n", [it for it in every if it != 7], 3, tuned))

    assert sorted((it.change, it.operator, it.name) for it in comparison.nodes) == [
        ("added", "Neg", "ne"),
        ("removed", "Add", "oa7"),
        ("removed", "MatMul", "om7"),
        ("removed", "Relu", "or7"),
    ]
    assert sorted(it.change for it in comparison.weights) == ["changed"] * (11 if tuned else 0) + ["removed"]
    assert all(it.relative is None or it.relative < 0.02 for it in comparison.weights)


def test_weights_and_nodes_at_once(tmp_path: Path) -> None:
    """If all weights change slightly and nodes are added at both ends, counterparts are found by similar weights."""
    new = put_in(net(), "Relu", "first")
    for tensor in new.graph.initializer:
        values = numpy_helper.to_array(tensor) * np.float32(1.001)
        tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    value = new.graph.node[-2].output[0]
    new.graph.node.insert(len(new.graph.node) - 1, helper.make_node("Relu", [value], ["late"], name="late"))
    new.graph.node[-1].input[0] = "late"
    comparison = compare(tmp_path, net(), new)

    assert summarize(comparison) == [("added", "Relu", "put in"), ("added", "Relu", "late")]
    assert [(it.change, it.name) for it in comparison.weights] == [("changed", name) for name in ("w1", "w2", "w3")]


def test_inside_a_graph(tmp_path: Path) -> None:
    """Changes in a branch are reported with the branch as their scope."""
    old = parse(INSIDE)
    comparison = compare(tmp_path, old, parse(INSIDE.replace("Sigmoid (a)", "Tanh (a)")))
    captured = compare(tmp_path, old, parse(INSIDE.replace("Sigmoid (a)", "Sigmoid (x)")))

    assert [(it.change, it.scope, it.operator) for it in comparison.nodes] == [
        ("replaced", ("`If` `choice`, then_branch",), "Tanh")
    ]
    assert [(it.operator, it.name, it.details[0].text) for it in captured.nodes if it.scope] == [
        ("Sigmoid", "inner", "input 0 changed from `Relu` `a` to input `x`")
    ]


def test_inside_a_local_function(tmp_path: Path) -> None:
    """A change in a local function is reported once; a renamed function with the same body is not a difference."""
    old = onnx.parser.parse_model(FUNCTIONS)
    body = compare(tmp_path, old, onnx.parser.parse_model(FUNCTIONS.replace("Relu (v)", "Neg (v)")))
    name = compare(tmp_path, old, onnx.parser.parse_model(FUNCTIONS.replace("twice", "double")))

    assert [(it.change, it.scope, it.operator, it.was) for it in body.nodes] == [
        ("replaced", ("local function `my.twice`",), "Neg", "Relu")
    ]
    assert [(it.change, it.name, it.was) for it in name.functions] == [("renamed", "my.double", "my.twice")]
    assert (name.verdict, summarize(name)) == ("same", [])


def test_the_interface(tmp_path: Path) -> None:
    """Inputs and outputs are compared by name; equal numbers of added and removed ones are renames."""
    old = "g (float[N, 8] x) => (float[N, 8] y) { y = Relu (x) }"
    shaped = compare(tmp_path, parse(old), parse(old.replace("float[N, 8] x", "float[1, 8] x")))
    renamed = compare(tmp_path, parse(old), parse(old.replace(" x)", " z)").replace("(x)", "(z)")))
    more = "g (float[N, 8] x, float[N, 8] z) => (float[N, 8] y, float[N, 8] u) { y = Relu (x)  u = Neg (z) }"
    added = compare(tmp_path, parse(old), parse(more))

    assert [(it.role, it.change, it.name, it.text) for it in shaped.interface] == [
        ("input", "changed", "x", "axis 0 changed from `N` to 1")
    ]
    assert [(it.role, it.change, it.name, it.was) for it in renamed.interface] == [("input", "renamed", "z", "x")]
    assert summarize(renamed) == []
    assert [(it.role, it.change, it.name) for it in added.interface] == [
        ("input", "added", "z"),
        ("output", "added", "u"),
    ]
    assert summarize(added) == [("added", "Neg", "u")]


def test_an_output_of_another_node(tmp_path: Path) -> None:
    """A graph output that another node computes is reported."""
    text = "g (float[N, 8] x) => (float[N, 8] y, float[N, 8] z) { y = Relu (x)  z = Sigmoid (x)  w = Neg (x) }"
    new = parse(text)
    new.graph.node[1].output[0], new.graph.node[2].output[0] = "w", "z"
    comparison = compare(tmp_path, parse(text), new)

    assert summarize(comparison) == []
    assert [(it.output, it.before, it.after) for it in comparison.ends] == [("z", "`Sigmoid` `z`", "`Neg` `z`")]


def test_changes_that_keep_models_equal(tmp_path: Path) -> None:
    """IR version and metadata are reported without making a different model; another opset makes a different model."""
    new = net()
    new.producer_name, new.ir_version = "someone", 9
    new.metadata_props.add(key="labels", value="a,b")
    comparison = compare(tmp_path, net(), new)
    opset = net()
    opset.opset_import[0].version = 19

    assert comparison.verdict == "same"
    assert [(it.what, it.before, it.after) for it in comparison.version_fields] == [
        ("IR version", "8", "9"),
        ("producer", None, "someone"),
    ]
    assert [(it.what, it.before, it.after) for it in comparison.metadata] == [("labels", None, "a,b")]
    assert compare(tmp_path, net(), opset).verdict == "different"


def test_opsets_are_listed_by_domain(tmp_path: Path) -> None:
    """A domain comes before domains whose names begin with it."""
    old, new = net(), net()
    for model, version in ((old, 18), (new, 19)):
        model.opset_import[0].version = version
        model.opset_import.add(domain="ai.onnx.ml", version=version - 16)

    assert [it.what for it in compare(tmp_path, old, new).version_fields] == ["opset `ai.onnx`", "opset `ai.onnx.ml`"]


def test_constants_and_initializers(tmp_path: Path) -> None:
    """Whether a weight is an initializer or a Constant is reported without making a different model."""
    new = net()
    tensor = new.graph.initializer.pop(0)
    new.graph.node.insert(0, helper.make_node("Constant", [], [tensor.name], value=tensor))
    comparison = compare(tmp_path, net(), new)

    assert (comparison.verdict, summarize(comparison)) == ("same", [])
    assert comparison.harmless == ("storage of weights",)
    assert [(it.operator, it.before, it.after) for it in comparison.operators] == [("Constant", 0, 1)]


def test_data_that_are_not_there(tmp_path: Path) -> None:
    """If external data is missing, the verdict is undecided."""
    new = net()
    make_external(new, "gone.bin")
    comparison = compare(tmp_path, net(), new)

    assert comparison.verdict == "undecided"
    assert {(it.change, it.text) for it in comparison.weights} == {
        ("unreadable", "could not be compared: `gone.bin` is missing")
    }


def test_a_weight_less_shared(tmp_path: Path) -> None:
    """A formerly shared weight that is now stored twice is reported as a copy."""
    shared = net(NET.replace("w3", "w1"))
    shared.graph.initializer.pop(2)
    new = net()
    new.graph.initializer[2].CopyFrom(new.graph.initializer[0])
    new.graph.initializer[2].name = "w3"
    comparison = compare(tmp_path, shared, new)

    assert (comparison.verdict, summarize(comparison)) == ("same", [])
    assert [(it.change, it.name, it.was) for it in comparison.weights] == [("copied", "w3", "w1")]


@pytest.mark.parametrize("head", [HEAD, HEAD.replace("18", "17")])
def test_repeated_blocks(tmp_path: Path, head: str) -> None:
    """If one of ten equal blocks is removed, only the nodes of one block are reported."""

    def blocks(count: int, weight: Callable[[int], str]) -> onnx.ModelProto:
        lines, value = [], "x"
        for index in range(count):
            lines += [f"m{index} = MatMul ({value}, {weight(index)})", f"r{index} = Relu (m{index})"]
            lines += [f"a{index} = Add (r{index}, {value})"]
            value = f"a{index}"
        text = f"g (float[N, 8] x) => (float[N, 8] y) {{ {' '.join(lines)} y = Neg ({value}) }}"
        model = parse(text, head)
        random = np.random.default_rng(3)
        every = [random.standard_normal((8, 8)).astype(np.float32) for _ in range(10)]
        names = [weight(index) for index in range(count)]
        model.graph.initializer.extend(
            numpy_helper.from_array(every[int(name[1:])], name) for name in dict.fromkeys(names)
        )
        return model

    comparison = compare(tmp_path, blocks(10, "w{}".format), blocks(9, lambda index: f"w{index + (index >= 4)}"))
    alike = compare(tmp_path, blocks(10, lambda _: "w0"), blocks(9, lambda _: "w0"))

    assert [(it.change, it.operator, it.name) for it in comparison.nodes] == [
        ("removed", "MatMul", "m4"),
        ("removed", "Relu", "r4"),
        ("removed", "Add", "a4"),
    ]
    assert [(it.change, it.name) for it in comparison.weights] == [("removed", "w4")]
    assert sorted((it.change, it.operator) for it in alike.nodes) == [
        ("removed", "Add"),
        ("removed", "MatMul"),
        ("removed", "Relu"),
    ]


def test_memory_of_a_large_comparison(tmp_path: Path) -> None:
    """Graphs, hashes and matched nodes of a large model fit into memory, whatever part of it changed."""
    names = ["x", *(f"v{index}" for index in range(599)), "y"]
    nodes = [helper.make_node("Relu", [a], [b], name=f"n{b}") for a, b in pairwise(names)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [1])] for name in ("x", "y")]
    old = helper.make_model(helper.make_graph(nodes, "g", *ends))
    new = onnx.ModelProto.FromString(old.SerializeToString())
    new.graph.node[300].op_type = "Abs"
    compare(tmp_path, old, old)
    tracemalloc.start()

    compare(tmp_path, old, new)

    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2 * len(nodes) * 1400
