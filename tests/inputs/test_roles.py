"""Roles of inputs, derived from graphs in ONNX text format."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
import onnx.parser
import pytest

from onnxgate.inputs.dataflow import DataflowGraph
from onnxgate.inputs.roles import (
    CategoryRole,
    IndexRole,
    LengthRole,
    MaskRole,
    PlainRole,
    Role,
    UnresolvedControl,
    find_role,
)
from onnxgate.model.reading.fact_extraction import read_value_infos
from onnxgate.model.reading.view import ModelView

HEAD = '<ir_version: 8, opset_import: ["" : 17, "local" : 1]>\n'


def _role(text: str, sizes: Mapping[str, int] | None = None) -> Role:
    """Return the role of a graph's first input."""
    model = onnx.parser.parse_model(HEAD + text)
    inputs = read_value_infos(model.graph.input)
    return find_role(inputs[0], inputs, DataflowGraph(ModelView(model)), sizes or {"N": 3, "T": 12})


def test_index_into_a_table() -> None:
    """Indices are limited by the table size, also through reshapes, casts and dequantized weights."""
    text = """g (int32[N, T] ids) => (float[N, T, 4] y) <int8[50, 4] table, float s = {1.0}>
        { i = Cast<to = 7>(ids)  a = Constant<value_ints = [-1]>()  f = Reshape(i, a)
          w = DequantizeLinear(table, s)  y = Gather(w, f) }"""

    assert IndexRole(0, 50) == _role(text)


def test_axis_of_the_table_counts() -> None:
    """The `axis` attribute determines the limiting size."""
    text = "g (int64[N] ids) => (float[50, N] y) <float[50, 4] table> { y = Gather<axis = -1>(table, ids) }"

    assert IndexRole(0, 4) == _role(text)


def test_constant_offset_moves_the_bounds() -> None:
    """A constant offset shifts the bounds, and the smaller of two tables counts."""
    text = """g (int64[N] p) => (float[N, 4] y) <float[20, 4] t, float[30, 4] u, int64 two = {2}, int64 one = {1}>
        { q = Add(p, two)  a = Gather(t, q)  r = Sub(p, one)  b = Gather(u, r)  y = Add(a, b) }"""

    assert IndexRole(1, 18) == _role(text)


def test_index_into_a_dynamic_axis() -> None:
    """Indices into a dynamic axis are limited by its size in the case."""
    text = "g (int64[E] edges, float[M, 4] nodes) => (float[E, 4] y) { y = Gather(nodes, edges) }"

    assert IndexRole(0, 3) == _role(text, {"E": 9, "M": 3})


def test_index_into_something_unknown_is_zero() -> None:
    """If the size is unknown, only index 0 is valid."""
    text = "g (int64[E] i, float[M, 4] x) => (float[E, 4] y) { z = Relu(x)  y = Gather(z, i) }"

    assert IndexRole(0, 1) == _role(text, {"E": 9, "M": 3})


def test_places_that_are_written_are_distinct() -> None:
    """Indices of ScatterElements are distinct along its axis."""
    text = """g (int64[N, 2] i, float[N, 2] u) => (float[N, 7] y) <float[3, 7] t>
        { y = ScatterElements<axis = 1>(t, i, u) }"""

    assert IndexRole(0, 7, distinct_along=1) == _role(text)


def test_padding_token_is_known() -> None:
    """An id that the graph compares with a constant is avoided, because it is a padding token."""
    text = """g (int64[N, T] ids) => (float[N, T, 4] y, bool[N, T] m) <float[50, 4] table, int64 pad = {1}>
        { m = Equal(ids, pad)  y = Gather(table, ids) }"""

    assert IndexRole(0, 50, avoid=1) == _role(text)


def test_table_inside_a_branch_and_a_local_function() -> None:
    """Tables in branches and local functions are found."""
    branch = """g (int64[N] ids, bool c) => (float[N, 4] y) <float[50, 4] t, float[60, 4] u>
        { y = If(c) <then_branch = a () => (z) { z = Gather(t, ids) },
                     else_branch = b () => (w) { w = Gather(u, ids) }> }"""
    function = """g (int64[N] ids) => (float[N, 4] y) <float[40, 4] t> { y = local.look(t, ids) }
        <domain: "local", opset_import: ["" : 17]> look (a, b) => (c) { c = Gather(a, b) }"""

    assert IndexRole(0, 50) == _role(branch)
    assert IndexRole(0, 40) == _role(function)


SCORES = "<float low = {-3.4e38}, float one = {1.0}, float zero = {0.0}>"
MASKS = {
    "bert": ("int64", "{ f = Cast<to = 1>(m)  g = Sub(one, f)  b = Mul(g, low)  y = Add(x, b) }", True),
    "masked_fill of dropped": ("bool", "{ y = Where(m, low, x) }", False),
    "where kept": ("bool", "{ y = Where(m, x, low) }", True),
    "negated": ("bool", "{ n = Not(m)  y = Where(n, low, x) }", True),
    "equal zero": ("int64", "<int64 nil = {0}> { n = Equal(m, nil)  y = Where(n, low, x) }", True),
    "greater zero": ("int64", "<int64 nil = {0}> { n = Greater(m, nil)  y = Where(n, low, x) }", False),
    "zero is less": ("int64", "<int64 nil = {0}> { n = Less(nil, m)  y = Where(n, x, low) }", True),
    "cast": ("int64", "{ n = Cast<to = 9>(m)  y = Where(n, x, low) }", True),
    "counted": ("bool", "{ f = Cast<to = 1>(m)  s = ReduceSum(f)  y = Div(x, s) }", True),
    "zeroed": ("bool", "{ y = Where(m, x, zero) }", None),
}


@pytest.mark.parametrize("case", MASKS)
def test_meaning_of_ones_in_a_mask(case: str) -> None:
    """The meaning of ones follows from how the mask changes the scores, or from what is counted."""
    element, body, keeps = MASKS[case]
    own, _, nodes = body.rpartition("> {")
    weights = SCORES if not own else SCORES[:-1] + ", " + own[1:] + ">"
    text = f"g ({element}[N, T] m, float[N, T] x) => (float[N, T] y) {weights} {{{nodes.removeprefix('{')}"

    assert MaskRole(keeps) == _role(text)


def test_mask_by_name() -> None:
    """Without evidence in the graph, ones keep positions, except in a padding mask; an added mask is zero."""
    plain = "{m} => (float[N, T] y) {{ y = Mul({n}, x) }}"
    for name, role in (("mask", MaskRole(True)), ("padding_mask", MaskRole(None))):
        text = plain.format(m=f"g (float[N, T] {name}, float[N, T] x)", n=name)
        assert role == _role(text)

    assert PlainRole("zero") == _role("g (float[N, T] mask, float[N, T] x) => (float[N, T] y) { y = Add(x, mask) }")


def test_mask_that_also_selects_is_a_mask() -> None:
    """A mask that is also used as an index is generated as a mask."""
    text = "g (int64[N, T] attention_mask) => (float[N, T, 4] y) <float[2, 4] t> { y = Gather(t, attention_mask) }"

    assert MaskRole(True) == _role(text)


def test_lengths() -> None:
    """Lengths are recognized by operator or name and limited by the shortest inner axis."""
    gru = """g (int32[N] s, float[T, N, 2] x) => (float[T, 1, N, 2] y) <float[1, 6, 2] w, float[1, 6, 2] r>
        { y = GRU<hidden_size = 2>(x, w, r, , s) }"""
    named = "g (int64[N] x_lengths, float[N, T] x) => (int64[N] y) { y = Identity(x_lengths) }"
    top = "g (int64[1] k, float[T] x) => (float[k] y, int64[k] i) { y, i = TopK(x, k) }"

    assert LengthRole(12) == _role(gru)
    assert LengthRole(12) == _role(named)
    assert LengthRole(1) == _role(top)


def test_counts_that_are_floats() -> None:
    """Floats whose sum is a count are counts; the number of floats above a threshold is not their sum."""
    text = """g (float[N, T] d, float[1] x) => (float[n] y) <float half = {0.5}, int64[1] zero = {0}>
        { r = Round(d)  c = Cast<to = 7>(r)  n = ReduceSum<keepdims = 0>(c)  u = Unsqueeze(n, zero)
          y = Expand(x, u) }"""
    compared = text.replace("Round(d)", "Greater(d, half)")

    assert LengthRole(1) == _role(text)
    assert PlainRole() == _role(compared)


def test_lengths_that_are_also_indices() -> None:
    """The length 0 masks all elements, so it is not used for an axis of unknown size."""
    text = "g (int64[N] x_lengths, float[N, T] x, float[K] t) => (float[N] y) { y = Gather(t, x_lengths) }"
    index = text.replace("x_lengths", "position")

    assert LengthRole(12) == _role(text)
    assert IndexRole(0, 1) == _role(index)


def test_input_that_determines_a_shape_is_not_generated() -> None:
    """An input that determines a shape is not generated."""
    text = "g (int64[2] shape, float[N, T] x) => (float y) { y = Reshape(x, shape) }"

    assert UnresolvedControl("Reshape") == _role(text)


@pytest.mark.parametrize(
    ("nodes", "domain"),
    [
        ("{ y = Log(x) }", "positive"),
        ("{ a = Identity(x)  y = Sqrt(a) }", "positive"),
        ("<float e = {0.5}> { y = Pow(x, e) }", "positive"),
        ("<float e = {2.0}> { y = Pow(x, e) }", "any"),
        ("{ y = Acos(x) }", "unit"),
        ("{ a = Relu(x)  y = Log(a) }", "any"),
    ],
)
def test_domain_of_a_function(nodes: str, domain: str) -> None:
    """Only a direct input of a function is limited to the function's domain."""
    assert domain == getattr(_role(f"g (float[N] x) => (float[N] y) {nodes}"), "domain", "")


def test_categories_of_encoders() -> None:
    """Categories are those that all encoders of an input know, also for a single column."""
    head = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>\n'
    one = "a = ai.onnx.ml.OneHotEncoder<cats_strings = {cats}, zeros = 0>({x})"
    text = one.format(cats='["red", "blue"]', x="x")
    label = 'c = ai.onnx.ml.ArrayFeatureExtractor(x, k)  b = ai.onnx.ml.LabelEncoder<keys_strings = ["blue"]>(c)'
    for nodes, known in ((text, ("red", "blue")), (f"{text}  {label}", ("blue",))):
        model = onnx.parser.parse_model(f"{head}g (string[N] x, int64[1] k) => (float[N, 2] a) {{ {nodes} }}")
        inputs = read_value_infos(model.graph.input)
        assert CategoryRole(known) == find_role(inputs[0], inputs, DataflowGraph(ModelView(model)), {"N": 3})

    numbers = "g (int64[N] x) => (float[N, 2] a) { a = ai.onnx.ml.OneHotEncoder<cats_int64s = [5, 9]>(x) }"
    model = onnx.parser.parse_model(head + numbers)
    assert CategoryRole((5, 9)) == find_role(
        read_value_infos(model.graph.input)[0], [], DataflowGraph(ModelView(model)), {"N": 3}
    )
