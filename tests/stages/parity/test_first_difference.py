"""The search for the first differing node, on a fake engine with known faults."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp

import msgspec
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from onnxgate.core.findings import Place
from onnxgate.core.jobs import CaseResult, Completed, Failure, InputCase, Observation, Refused, RunResult
from onnxgate.evidence.parity import SELECTED, Comparison, Difference, FirstDifference
from onnxgate.model.reading.omitted_data import find_omitted_list
from onnxgate.model.reading.structure import read_structure
from onnxgate.rules.parity._mismatches import describe_first_values
from onnxgate.stages.parity import first_difference
from onnxgate.stages.parity.first_difference import (
    DifferenceOrigin,
    SearchError,
    SearchSide,
    create_first_difference,
    create_search_mask,
    search_across_levels,
    search_origin,
)
from onnxgate.stages.parity.output_comparison import OutputMask
from onnxgate.stages.parity.source_difference import match_fresh_export

CHAIN = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 8] x) => (float[N, 8] y, float[N, 8] aside) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}> {
  [mul] a = Mul(x, w)
  [exp] b = Exp(a)
  [mean] m = ReduceMean <keepdims = 1> (b)
  [sub] c = Sub(b, m)
  [tanh] d = Tanh(c)
  [add] y = Add(d, a)
  [neg] aside = Neg(x)
}"""

CANCELLING = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 8] x) => (float[N, 8] y) <float[8] w = {1, 2, 3, 4, 5, 6, 7, 8}, float big = {1000}> {
  [mul] a = Mul(x, w)
  [lift] b = Add(a, big)
  [drop] c = Sub(b, big)
  [neg] y = Neg(c)
}"""

Array = np.ndarray
Fault = Callable[[onnx.NodeProto, Array, set[str]], Array]  # from the correct value and the names of all outputs


def compute_correctly(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
    """Return the correct value."""
    return value


def rounding(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
    """Round slightly differently, like another correct kernel."""
    return (value * np.float32(1 + 3e-7)).astype(value.dtype)


def inject_fault(name: str) -> Fault:
    """Return a fault that changes one element of one node's output and rounds all nodes differently."""

    def fault(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
        value = rounding(node, value, outputs)
        if node.name.split("#")[0] == name:
            value = value.copy()
            value.flat[0] += 0.01 * np.abs(value).max()
        return value

    return fault


def fusing(first: str, second: str) -> Fault:
    """Return an optimizer fault in two fused nodes that disappears if the value between them is an output."""

    def fault(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
        return value + 1 if node.name == second and first not in outputs else value

    return fault


def computed(model: Path, case: InputCase, fault: Fault) -> Mapping[str, Array]:
    """Compute every output of the model, node by node."""
    graph = onnx.load(str(model)).graph
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    values.update((name, np.load(path)) for name, path in case.inputs.items())
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        session = ReferenceEvaluator(node)
        given = session.run(None, {name: values[name] for name in node.input})
        values.update(zip(node.output, map(np.asarray, given), strict=True))
        values[node.output[-1]] = fault(node, np.asarray(given[-1]), outputs)
    return {value.name: values[value.name] for value in graph.output}


def side(
    folder: Path, name: str, fault: Fault, text: str = CHAIN, inputs: Mapping[str, Array] | None = None
) -> SearchSide:
    """Return the model on a faulty engine; the default input `x` is random, between 0 and 1."""
    folder.mkdir(exist_ok=True)
    proto = parser.parse_model(text)
    onnx.save(proto, str(folder / "m.onnx"))
    inputs = inputs or {"x": np.random.default_rng(0).random((3, 8), np.float32)}
    for value, array in inputs.items():
        np.save(folder / f"{value}.npy", array)
    paths = {value: str(folder / f"{value}.npy") for value in inputs}
    case = InputCase(name="one", origin="generated", inputs=paths)

    def run(model: Path, case: InputCase) -> Observation:
        values, output = computed(model, case, fault), Path(mkdtemp(dir=folder))
        paths = [output / f"{index}.npy" for index in range(len(values))]
        for path, value in zip(paths, values.values(), strict=True):
            np.save(path, value)
        result = CaseResult(outputs=tuple(map(str, paths)))
        return Completed(result=RunResult(providers=(), outputs=tuple(values), cases=(result,)))

    return SearchSide(folder / "m.onnx", proto, case, run, folder / name)


def find_first_difference(
    folder: Path, fault: Fault, known: set[str] | None = None, text: str = CHAIN
) -> DifferenceOrigin | None:
    """Return where the output begins to differ from a correct engine."""
    reference = side(folder, "reference", compute_correctly, text)
    return search_origin(side(folder, "candidate", fault, text), reference.values, known, ["y"], exact=False)


@pytest.mark.parametrize("name", ["mul", "exp", "mean", "sub", "tanh", "add"])
def test_the_wrong_node_is_found(name: str, tmp_path: Path) -> None:
    """The wrong node is found although all later nodes differ too, and some amplify the difference."""
    proto = parser.parse_model(CHAIN)
    first = find_first_difference(tmp_path, inject_fault(name))

    assert first is not None
    assert (proto.graph.node[first.node].name, first.within) == (name, ())
    assert first.after.relative > 100 * first.before.relative


LINEAR = """<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>
g (float[N, 8] x) => (float[N, 1] y) {
  [sum] a = ai.onnx.ml.LinearRegressor <coefficients = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], intercepts = [0.5]> (x)
  [neg] y = Neg(a)
}"""


HALF_MASK = """<ir_version: 8, opset_import: ["" : 18]>
g (float16[N, 8] x, bool[N, 8] m) => (float16[N, 8] y) <float zero = {0}, float fill = {-10000}> {
  [keep] k = Cast <to = 10> (zero)
  [drop] f = Cast <to = 10> (fill)
  [where] a = Where(m, k, f)
  [add] b = Add(x, a)
  [softmax] c = Softmax(b)
  [tanh] y = Tanh(c)
}"""


@pytest.mark.parametrize("name", ["add", "tanh"])
def test_a_float16_model_is_compared_with_a_float32_one(name: str, tmp_path: Path) -> None:
    """Nodes run in float16 with the values of the float32 reference; the fill value of its mask may be another one."""
    x, mask = np.random.default_rng(0).random((3, 8), np.float32), np.arange(24).reshape(3, 8) % 5 != 1
    text = HALF_MASK.replace("float16", "float").replace("to = 10", "to = 1").replace("-10000", "-3e38")
    right = side(tmp_path / "32", "reference", compute_correctly, text, {"x": x, "m": mask})
    inputs = {"x": x.astype(np.float16), "m": mask}
    wrong = side(tmp_path / "16", "candidate", inject_fault(name), HALF_MASK, inputs)
    first = search_origin(wrong, right.values, None, ["y"], exact=True)

    assert first is not None
    assert name == wrong.proto.graph.node[first.node].name


def test_isolated_nodes_keep_their_lists(tmp_path: Path) -> None:
    """Attribute lists that were omitted from the structure are read from the model."""
    candidate, reference = (
        side(tmp_path, name, fault, LINEAR) for name, fault in (("a", inject_fault("sum")), ("b", compute_correctly))
    )
    candidate.proto = read_structure(candidate.model, large_bytes=0, small_bytes=16)
    assert find_omitted_list(candidate.proto.graph.node[0].attribute[0]) is not None

    first = search_origin(candidate, reference.values, None, ["y"], exact=False)
    assert first is not None
    assert (0, True) == (first.node, first.after.relative > 100 * first.before.relative)


@pytest.mark.parametrize("name", ["exp", "tanh", "add"])
def test_portions_change_nothing(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large values are computed and compared in portions, with the same result."""
    monkeypatch.setattr(first_difference, "MAX_PORTION_BYTES", 2 * 64 * 1024)
    proto = parser.parse_model(CHAIN)
    first = find_first_difference(tmp_path, inject_fault(name))

    assert first is not None
    assert proto.graph.node[first.node].name == name


@pytest.mark.parametrize("text", [CHAIN, CANCELLING])
def test_rounding_has_no_first_node(text: str, tmp_path: Path) -> None:
    """Nodes that only round differently are not reported, however large the difference of the output is."""
    assert find_first_difference(tmp_path, rounding, text=text) is None


@pytest.mark.parametrize("name", ["mul", "lift", "drop", "neg"])
def test_amplified_rounding_does_not_hide_a_fault(name: str, tmp_path: Path) -> None:
    """A subtraction of large numbers amplifies rounding and is not reported; the faulty node is."""
    proto = parser.parse_model(CANCELLING)
    first = find_first_difference(tmp_path, inject_fault(name), text=CANCELLING)

    assert first is not None
    assert proto.graph.node[first.node].name == name


def test_unrelated_fault_is_ignored(tmp_path: Path) -> None:
    """Nodes that the differing output does not depend on are ignored."""
    assert find_first_difference(tmp_path, inject_fault("neg")) is None


def test_values_missing_in_the_reference(tmp_path: Path) -> None:
    """If values are missing in the reference, the node after them is named, with the other candidates."""
    proto = parser.parse_model(CHAIN)
    first = find_first_difference(tmp_path, inject_fault("exp"), {"a", "c", "d", "y"})

    assert first is not None
    assert (
        create_first_difference(proto, first, "one", tmp_path, tmp_path).detail
        == "or at one of the 2 preceding nodes after `a`"
    )
    assert (proto.graph.node[first.node].name, first.within, first.since) == ("sub", (1, 2), "a")


def test_fused_nodes(tmp_path: Path) -> None:
    """If exposing an intermediate value removes the mismatch, the node that computes the value is named."""
    proto = parser.parse_model(CHAIN)
    plain, optimised = side(tmp_path, "plain", compute_correctly), side(tmp_path, "optimised", fusing("c", "tanh"))
    first = search_across_levels(plain, optimised, "y")

    assert first is not None
    assert (proto.graph.node[first.node].name, first.fused) == ("sub", True)


@pytest.mark.parametrize(("changed", "matches"), [("[exp] b = Sin(a)", True), ("[exp] b = Sin(w)", False)])
def test_outputs_of_a_changed_node_are_matched(changed: str, matches: bool, tmp_path: Path) -> None:
    """A node with another operator is compared with the node of the fresh export that has its name and an input."""
    onnx.save(parser.parse_model(CHAIN), str(tmp_path / "fresh.onnx"))
    committed = parser.parse_model(CHAIN.replace("[exp] b = Exp(a)", changed))
    onnx.save(committed, str(tmp_path / "m.onnx"))
    fresh = match_fresh_export(committed, tmp_path / "m.onnx", tmp_path / "fresh.onnx")

    assert fresh is not None
    assert fresh.names["a"] == "a"
    assert ("b" in fresh.names) == matches


def test_outputs_are_matched_by_position(tmp_path: Path) -> None:
    """Outputs of swapped nodes are compared with the source by position, so the search must not match their names."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
    g (float[8] x) => (int64[1] argmax, int64[1] argmin) {
      s = Neg(x)  argmax = ArgMax(x)  argmin = ArgMin(s) }"""
    names = {"ArgMax": "ArgMin", "ArgMin": "ArgMax", "argmax": "argmin", "argmin": "argmax"}
    committed = parser.parse_model(re.sub("[Aa]rg(Max|Min|max|min)", lambda found: names[found[0]], text))
    onnx.save(parser.parse_model(text), str(tmp_path / "fresh.onnx"))
    onnx.save(committed, str(tmp_path / "m.onnx"))
    fresh = match_fresh_export(committed, tmp_path / "m.onnx", tmp_path / "fresh.onnx")

    assert fresh is not None
    assert ("argmax", "argmin") == (fresh.names["argmin"], fresh.names["argmax"])


PICKING = """<ir_version: 8, opset_import: ["" : 18]>
g (float[N, 8] x) => (float[8] y) {
  [neg] a = Neg(x)
  [exp] b = Exp(a)
  [tanh] c = Tanh(b)
  [scores] s = Cos(x)
  [sum] r = ReduceSum <keepdims = 0, noop_with_empty_axes = 0> (s)
  [index] i = Cast <to = 7> (r)
  [pick] y = Gather <axis = 0> (c, i)
}"""


def pick_another(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
    """Return an optimizer fault in two fused nodes that changes the index of the picked row."""
    if node.name == "index":
        return np.array(1 if "s" in outputs else 0)
    return value


def test_a_node_with_another_differing_input_is_not_the_first(tmp_path: Path) -> None:
    """If the index of a `Gather` differs, the node that computes the index is named, not the `Gather`."""
    proto = parser.parse_model(PICKING)

    def pick_first(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
        return np.array(1) if node.name == "index" else value

    plain, optimised = (
        side(tmp_path, name, fault, PICKING) for name, fault in (("plain", pick_first), ("optimised", pick_another))
    )
    first = search_across_levels(plain, optimised, "y")

    assert first is not None
    assert (proto.graph.node[first.node].name, first.fused) == ("scores", True)


TIED = """<ir_version: 8, opset_import: ["" : 18]> g (float[3, 8] x) => (float[3, 2] y) <int64[1] k = {2}> {
  [floor] s = Floor(x)
  [top] v, i = TopK<axis = 1, sorted = 0>(s, k)
  [exp] e = Exp(x)
  [pick] p = GatherElements<axis = 1>(e, i)
  [neg] y = Neg(p)
}"""


@pytest.mark.parametrize("is_sorted", ["0", "1"])
@pytest.mark.parametrize(("wrong", "expected"), [("exp", "exp"), ("", None), ("top", "top")])
def test_other_items_with_equal_scores_are_no_difference(
    wrong: str, expected: str | None, is_sorted: str, tmp_path: Path
) -> None:
    """A `TopK` node may select other items with the same scores; a node that computes other values is the first."""
    text = TIED.replace("sorted = 0", f"sorted = {is_sorted}")
    if wrong == "top":
        text = text.replace("Floor", "Neg")

    def fault(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
        name = node.name.split("#")[0]
        return 7 - value if name == "top" else value * 1.05 if name == wrong else value

    first = find_first_difference(tmp_path, fault, text=text)

    assert expected == (parser.parse_model(text).graph.node[first.node].name if first is not None else None)


def test_rounding_of_an_optimizer_has_no_first_node(tmp_path: Path) -> None:
    """Fused nodes that only round differently are not reported."""
    plain, optimised = side(tmp_path, "plain", compute_correctly), side(tmp_path, "optimised", rounding)

    assert search_across_levels(plain, optimised, "y") is None


TOKENS = """<ir_version: 8, opset_import: ["" : 18]>
g (float[B, T, 4] x, int64[B, T] attention_mask) => (float[B, T, 4] y) {
  [cast] m = Cast <to = 1> (attention_mask)
  [size] n = Shape(x)
  [axes] u = Constant <value_ints = [2]> ()
  [column] k = Unsqueeze(m, u)
  [rows] e = Expand(k, n)
  [sine] a = Sin(x)
  [neg] b = Neg(a)
  [add] y = Add(b, e)
}"""
ATTENTION_MASK = np.array([[0, 0, 1], [1, 1, 1]])


def ignore_padding(node: onnx.NodeProto, value: Array, outputs: set[str]) -> Array:
    """Compute one token at which the mask is 0 differently, as engines may do."""
    if node.name.startswith("sine"):
        value = value.copy()
        value[0, 0] += 1
    return value


@pytest.mark.parametrize("name", ["neg", "cast"])
def test_masked_tokens_are_ignored(name: str, tmp_path: Path) -> None:
    """With left padding, the first node that differs at an unmasked token is named; values of the mask count fully."""
    inputs = {"x": np.random.default_rng(0).random((2, 3, 4), np.float32), "attention_mask": ATTENTION_MASK}
    fault = inject_fault(name)
    candidate = side(
        tmp_path,
        "candidate",
        lambda node, value, outputs: (
            ignore_padding(node, value, outputs)
            if node.name.split("#")[0] != name
            else fault(node, value[::-1], outputs)[::-1]
            if name == "neg"
            else fault(node, value, outputs)
        ),
        TOKENS,
        inputs,
    )
    reference = side(tmp_path, "reference", compute_correctly, TOKENS, inputs)
    candidate.mask = create_search_mask(
        candidate.proto, candidate.case, OutputMask(candidate.case.inputs["attention_mask"], ones_keep=True)
    )
    first = search_origin(candidate, reference.values, None, ["y"], exact=False)

    assert candidate.mask is not None
    assert candidate.mask.values == {"x", "a", "b", "y"}
    assert first is not None
    assert candidate.proto.graph.node[first.node].name == name


def test_a_mask_without_masked_tokens_is_not_used(tmp_path: Path) -> None:
    """If the mask keeps all tokens, or another input is the mask, all elements are compared."""
    inputs = {"x": np.zeros((1, 2, 4), np.float32), "attention_mask": np.ones((1, 2), np.int64)}
    candidate = side(tmp_path, "candidate", compute_correctly, TOKENS, inputs)
    mask = OutputMask(candidate.case.inputs["attention_mask"], ones_keep=True)

    assert create_search_mask(candidate.proto, candidate.case, mask) is None
    assert create_search_mask(candidate.proto, candidate.case, None) is None


def test_evidence_of_the_first_difference(tmp_path: Path) -> None:
    """The evidence contains the node, its operator, the value, the case, and the distances before and after it."""
    first = find_first_difference(tmp_path, inject_fault("tanh"))
    assert first is not None
    first_difference = create_first_difference(parser.parse_model(CHAIN), first, "one", tmp_path, tmp_path)

    assert (
        first_difference.node,
        first_difference.operator,
        first_difference.output,
        first_difference.case,
        first_difference.detail,
    ) == ("tanh", "Tanh", "d", "one", "")
    assert first_difference.place is None
    assert (first_difference.value, first_difference.share) == (
        pytest.approx(0.01, rel=0.05),
        pytest.approx(0.01, rel=0.05),
    )
    assert 0 < first_difference.before_share < 1e-5


def test_the_source_line_of_the_node(tmp_path: Path) -> None:
    """The place is the node's source line if the exporter recorded it and the file is in the repository."""
    first = find_first_difference(tmp_path, inject_fault("tanh"))
    assert first is not None
    proto = parser.parse_model(CHAIN)
    (tmp_path / "net.py").write_text("def forward(x):\n    return tanh(x)\n")
    trace = 'File "net.py", line 2, in forward\n    return tanh(x)'
    proto.graph.node[first.node].metadata_props.add(key="pkg.torch.onnx.stack_trace", value=trace)

    assert create_first_difference(proto, first, "one", tmp_path, tmp_path).place == Place("net.py", 2)


@pytest.mark.parametrize(
    ("observation", "reason"),
    [
        (Refused(failure=Failure(type="Fail", text="no\nmore")), "does not load: no$"),
        (
            Completed(
                result=RunResult(
                    providers=(), outputs=(), cases=(CaseResult(failure=Failure(type="Fail", text="bad")),)
                )
            ),
            "does not run: bad$",
        ),
    ],
)
def test_an_engine_that_refuses(observation: Observation, reason: str, tmp_path: Path) -> None:
    """The search ends with a reason if the model does not load or run with all values as outputs."""
    candidate = side(tmp_path, "candidate", compute_correctly)
    candidate.run = lambda model, case: observation

    with pytest.raises(SearchError, match=reason):
        candidate.values(["a"])


FIRST = FirstDifference(
    node="norm", operator="LayerNormalization", output="y", place=None, case="c", value=2e-4, before=0.0, share=math.inf
)
COMPARISON = Comparison(
    model="m.onnx",
    place=Place("m.onnx"),
    pair="source",
    runtime="r",
    reference="the source",
    differences=(),
    first=FIRST,
)


def test_difference_from_zeros_is_absolute() -> None:
    """A difference from zeros has no relative size, so its absolute size is reported."""
    described = describe_first_values(COMPARISON)

    assert described == "; the node's inputs are equal, but its output `y` differs from 0 by 0.0002"


def test_other_items_have_no_size() -> None:
    """The number of wrong items is not reported as a difference from 0."""
    wrong = Difference(
        output="z",
        case="c",
        optimization="all",
        agrees=False,
        metric="differing items",
        value=7.0,
        bound=0.0,
        bound_from="type",
        detail="box 3 is not listed; 7 of 9 items differ",
        compared="y",
        note=SELECTED,
    )
    described = describe_first_values(msgspec.structs.replace(COMPARISON, differences=(wrong,)))

    assert described == "; the node's inputs are equal, but its output `y` lists other items"
