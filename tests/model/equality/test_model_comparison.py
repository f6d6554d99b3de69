"""Comparison of two model files: equality, and descriptions of differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper, numpy_helper

from onnxgate.model.equality import model_comparison
from onnxgate.model.equality.model_comparison import compare_models
from onnxgate.model.reading import structure
from tests.harness.models import HEAD, make_external, parse, write

NET = """g (float[N, 3, 8, 8] x) => (float[N, 4] y)
<float[2, 3, 3, 3] w, float[72, 4] m, int64[2] shape = {-1, 72}>
{
  c = Conv <kernel_shape = [3, 3]> (x, w)
  r = Relu (c)
  f = Reshape (r, shape)
  y = MatMul (f, m)
}"""


def net(text: str = NET, seed: int = 0, head: str = HEAD) -> onnx.ModelProto:
    """Return a small convolutional net whose two float weights are drawn from `seed`."""
    model = parse(text, head)
    random = np.random.default_rng(seed)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        values = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, value.name))
    model.graph.ClearField("value_info")
    return model


def compare(tmp_path: Path, old: onnx.ModelProto | str, new: onnx.ModelProto | str) -> tuple[str, ...]:
    """Return the differences of `new` from `old`."""
    return compare_models(write(tmp_path / "old.onnx", old), write(tmp_path / "new.onnx", new)).differences


def test_metadata_and_names_do_not_count(tmp_path: Path) -> None:
    """Producer, metadata, document strings, names, value infos and the graph's name are ignored."""
    old, new = net(), net(NET.replace(" c", " conv").replace("(c)", "(conv)").replace("g (", "main ("))
    new.producer_name, new.producer_version, new.doc_string = "pytorch", "2.13.0+cpu", "made today"
    new.metadata_props.add(key="author", value="someone")
    new.graph.node[0].name = "node_conv2d"
    new.graph.node[0].metadata_props.add(key="pkg.torch.onnx.stack_trace", value="somewhere")
    new.graph.value_info.add(name="conv")
    for tensor in new.graph.initializer:
        if tensor.name == "w":
            tensor.name = "conv1.weight"
    new.graph.node[0].input[1] = "conv1.weight"

    assert compare(tmp_path, old, new) == ()


AXES = "g (float[unk__6, unk__7] x) => (float[unk__6, unk__7] y) { y = Neg (x) }"


def test_axis_numbers_of_a_converter(tmp_path: Path) -> None:
    """tf2onnx numbers axes differently in each export; only which axes have the same name counts."""
    again = AXES.replace("unk__7", "unk__41").replace("unk__6", "unk__9")
    square = AXES.replace("unk__7", "unk__6")
    named = AXES.replace("unk__6", "batch")

    assert compare(tmp_path, AXES, again) == ()
    assert compare(tmp_path, AXES, square) == (
        "input `x`: axis 1 changed from `unk__1` to `unk__0`",
        "output `y`: axis 1 changed from `unk__1` to `unk__0`",
    )
    assert "input `x`: axis 0 changed from `unk__0` to `batch`" in compare(tmp_path, AXES, named)


def test_name_of_the_graph_and_order_of_imports(tmp_path: Path) -> None:
    """The graph name, which onnxmltools draws at random, and the order and repetition of opset imports are ignored."""
    old, new = net(), net()
    old.opset_import.add(domain="ai.onnx.ml", version=1)
    imported = [(it.domain, it.version) for it in old.opset_import]
    del new.opset_import[:]
    for domain, version in [*reversed(imported), imported[0]]:
        new.opset_import.add(domain=domain, version=version)
    old.graph.name, new.graph.name = "7669962962bf47dc90b7838f8bf48e22", "6358becc74814d9f9262c7a13bdb6077"

    assert compare(tmp_path, old, new) == ()


TREES = "g (float[N, 4] x) => (float[N, 1] y) { y = ai.onnx.ml.TreeEnsembleRegressor <nodes_values = [V]> (x) }"


@pytest.mark.parametrize(
    ("new", "says"),
    [
        ([0.5] * 8 + [0.25], "differs in 1 of 9 elements"),
        ([0.5] * 8, "changed from 9 to 8 elements"),
    ],
)
def test_long_lists(tmp_path: Path, new: list[float], says: str) -> None:
    """Long attribute lists are not printed in messages."""
    texts = [TREES.replace("V", ", ".join(map(str, values))) for values in ([0.5] * 9, new)]

    assert compare(tmp_path, *texts) == (f"node 0 `ai.onnx.ml.TreeEnsembleRegressor`: attribute `nodes_values` {says}",)


def test_ir_version_does_not_count(tmp_path: Path) -> None:
    """The IR version is ignored, because it does not affect the results."""

    assert compare(tmp_path, net(), net(head='<ir_version: 9, opset_import: ["" : 18]>\n')) == ()


def test_order_of_nodes_does_not_count(tmp_path: Path) -> None:
    """The order of nodes is ignored if the graph is the same."""
    text = "g (float[N] x) => (float[N] y) { %s y = Add (a, b) }"

    assert compare(tmp_path, text % "a = Relu (x) b = Neg (x)", text % "b = Neg (x) a = Relu (x)") == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Conv <kernel_shape = [3, 3]>", "Conv"),
        ("Conv", "Conv <strides = [1, 1], pads = [0, 0, 0, 0], dilations = [1, 1], group = 1>"),
        ('Conv <auto_pad = "NOTSET">', "Conv"),
    ],
)
def test_defaults_are_filled_in(tmp_path: Path, old: str, new: str) -> None:
    """An explicit attribute that equals its default or follows from the weight is not a difference."""
    text = NET.replace("Conv <kernel_shape = [3, 3]>", "%s")

    assert compare(tmp_path, net(text % old), net(text % new)) == ()


def test_weights_are_compared_by_value(tmp_path: Path) -> None:
    """Inline raw, inline typed and external data are equal if their values are."""
    raw, typed, external = net(), net(), net()
    for tensor in typed.graph.initializer:
        if tensor.raw_data:
            tensor.float_data.extend(numpy_helper.to_array(tensor).flatten().tolist())
            tensor.ClearField("raw_data")
    (tmp_path / "w.bin").write_bytes(make_external(external, "w.bin"))

    assert (compare(tmp_path, raw, typed), compare(tmp_path, typed, external)) == ((), ())


def test_large_files_are_compared_without_being_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were omitted when reading are compared from the file, raw or typed."""
    typed = net()
    for tensor in typed.graph.initializer:
        if tensor.raw_data:
            tensor.float_data.extend(numpy_helper.to_array(tensor).flatten().tolist())
            tensor.ClearField("raw_data")
    reading = structure.read_view
    monkeypatch.setattr(model_comparison, "read_view", lambda path: reading(path, large_bytes=0, small_bytes=64))

    assert (compare(tmp_path, net(), typed), len(compare(tmp_path, net(), net(seed=1)))) == ((), 2)


@pytest.mark.parametrize(("steps", "message"), [(4, ()), (5, ("weight `w` differs in 1 of 54 elements, by up to",))])
def test_rounding_is_equal(tmp_path: Path, steps: int, message: tuple[str, ...]) -> None:
    """Floats up to 4 representable numbers apart are equal."""
    old, new = net(), net()
    values = numpy_helper.to_array(new.graph.initializer[1]).copy()
    for _ in range(steps):
        values.flat[7] = np.nextafter(values.flat[7], np.float32(np.inf))
    new.graph.initializer[1].raw_data = values.tobytes()

    assert tuple(text.rpartition(" ")[0] for text in compare(tmp_path, old, new)) == message


def test_rounding_is_counted(tmp_path: Path) -> None:
    """Elements that are equal only within rounding are counted."""
    paths = [tmp_path / "old.onnx", tmp_path / "new.onnx"]
    old, new = net(), net()
    values = numpy_helper.to_array(new.graph.initializer[1]).copy()
    values.flat[7] = np.nextafter(values.flat[7], np.float32(np.inf))
    new.graph.initializer[1].raw_data = values.tobytes()
    for path, model in zip(paths, (old, new), strict=True):
        path.write_bytes(model.SerializeToString())

    assert model_comparison.compare_models(*paths) == model_comparison.ComparisonResult(
        (), ("weight `w` in 1 of 54 elements",)
    )
    assert model_comparison.compare_models(paths[0], paths[0]) == model_comparison.ComparisonResult()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zeros_and_nans_are_equal_to_themselves(tmp_path: Path, dtype: type) -> None:
    """Positive and negative zero are equal, and so are NaN values in the same place."""
    models = []
    for values in ([0.0, np.nan, 1.0], [-0.0, np.nan, 1.0]):
        model = parse("g (float[3] x) => (float[3] y) { c = Constant () t = CastLike (c, x) y = Add (x, t) }")
        model.graph.node[0].attribute.add(
            name="value", type=onnx.AttributeProto.TENSOR, t=numpy_helper.from_array(np.array(values, dtype))
        )
        models.append(model)

    assert compare(tmp_path, *models) == ()


CHANGES = {
    "attribute": (
        NET.replace("kernel_shape = [3, 3]", "pads = [1, 1, 1, 1]"),
        ("node 0 `Conv`: attribute `pads` changed from [0, 0, 0, 0] to [1, 1, 1, 1]",),
    ),
    "operator": (NET.replace("Relu", "Elu"), ("node 2 `Reshape`: input 0 changed from `Relu` to `Elu`",)),
    "inserted": (
        NET.replace("r = Relu (c)", "d = Neg (c) r = Relu (d)"),
        ("node 2 `Relu`: input 0 changed from `Conv` to `Neg`",),
    ),
    "axis": (NET.replace("float[N, 3,", "float[1, 3,"), ("input `x`: axis 0 changed from `N` to 1",)),
    "rank": (NET.replace("float[N, 4] y", "float[N] y"), ("output `y`: number of axes changed from 2 to 1",)),
    "input": (NET.replace("8] x)", "8] data)").replace("(x,", "(data,"), ("input `x` was renamed to `data`",)),
    "type": (
        NET.replace("float[N, 4] y", "float16[N, 4] y"),
        ("output `y`: type changed from tensor(float) to tensor(float16)",),
    ),
    "another output": (
        NET.replace("4] y)", "4] y, float[N, 72] f)"),
        ("output `f` was added",),
    ),
    "another input": (NET.replace("8] x)", "8] x, float[N] z)"), ("input `z` was added",)),
    "shape of a weight": (
        NET.replace("72, 4] m", "72, 5] m"),
        ("weight `m`: shape changed from [72, 4] to [72, 5]",),
    ),
    "dead node": (NET.replace("r = Relu", "d = Neg (c) r = Relu"), ("number of `Neg` nodes changed from 0 to 1",)),
    "constant": (NET.replace("{-1, 72}", "{-1, 36}"), ("weight `shape` differs in 1 of 2 elements, by up to 36",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_reported(tmp_path: Path, change: str) -> None:
    """Each change is reported once, with its place."""
    text, said = CHANGES[change]

    assert compare(tmp_path, net(), net(text)) == said


def test_opset_changes_are_reported(tmp_path: Path) -> None:
    """Another opset or domain is a difference; another IR version is not."""
    new = net(head='<ir_version: 9, opset_import: ["" : 20, "my.domain" : 1]>\n')

    assert compare(tmp_path, net(), new) == (
        "opset of `ai.onnx` changed from 18 to 20",
        "the import of opset 1 of `my.domain` was added",
    )


def test_too_few_data(tmp_path: Path) -> None:
    """A weight with too little data differs as a whole."""
    new = net()
    new.graph.initializer[1].raw_data = new.graph.initializer[1].raw_data[:-8]

    assert compare(tmp_path, net(), new) == ("weight `w` differs in 54 of 54 elements",)


def test_retrained_weights_are_counted(tmp_path: Path) -> None:
    """Each retrained weight is reported with its number of changed elements."""
    actual = compare(tmp_path, net(), net(seed=1))

    assert [text.partition(", by up to")[0] for text in actual] == [
        "weight `w` differs in 54 of 54 elements",
        "weight `m` differs in 288 of 288 elements",
    ]


BRANCHES = """g (bool c, float[N] x) => (float[N] y)
{
  y = If (c) <
    then_branch = t () => (float[N] a) { a = Relu (x) },
    else_branch = e () => (float[N] b) { h = Neg (x) b = Abs (h) }
  >
}"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("h = Neg (x) b = Abs (h)", "k = Neg (x) b = Abs (k)", ()),
        (
            "b = Abs (h)",
            "b = Relu (h)",
            ("node 0 `If`, attribute `else_branch`: output `b` changed from `Abs` to `Relu`",),
        ),
        (
            "a = Relu (x)",
            "a = Relu (a0) a0 = Neg (x)",
            ("node 0 `If`, attribute `then_branch`: node 0 `Relu`: input 0 changed from input `x` to `Neg`",),
        ),
    ],
)
def test_subgraphs(tmp_path: Path, before: str, after: str, message: tuple[str, ...]) -> None:
    """Branches are compared like graphs, including outer values."""
    assert compare(tmp_path, BRANCHES, BRANCHES.replace(before, after)) == message


FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
g (float[N] x) => (float[N] y) { y = local.act <slope = 0.5> (x) }
<domain: "local", opset_import: ["" : 18]>
act <slope> (v) => (w) { t = LeakyRelu <alpha: float = @slope> (v) w = Neg (t) }"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "(v) => (w) { t = LeakyRelu <alpha: float = @slope> (v)",
            "(q) => (w) { t = LeakyRelu <alpha: float = @slope> (q)",
            (),
        ),
        ("w = Neg (t)", "w = Abs (t)", ("local function `local.act`: output `w` changed from `Neg` to `Abs`",)),
        ("slope = 0.5", "slope = 0.25", ("node 0 `local.act`: attribute `slope` changed from 0.5 to 0.25",)),
    ],
)
def test_local_functions(tmp_path: Path, before: str, after: str, message: tuple[str, ...]) -> None:
    """The body of a local function is compared once, under its own name."""
    assert compare(tmp_path, parse(FUNCTION, ""), parse(FUNCTION.replace(before, after), "")) == message


def test_a_missing_local_function_is_reported_once(tmp_path: Path) -> None:
    """An added local function is reported once, regardless of the number of calls."""
    calls = " ".join(f"x{i + 1} = l.f (x{i})" for i in range(3))
    head = '<ir_version: 9, opset_import: ["" : 18, "l" : 1]>'
    graph = f"{head} g (float[N] x0) => (float[N] x3) {{ {calls} }}"
    body = '<domain: "l", opset_import: ["" : 18]> f (v) => (w) { w = Neg (v) }'

    assert compare(tmp_path, parse(graph, ""), parse(f"{graph} {body}", "")) == ("local function `l.f` was added",)


def test_removed_attributes_are_reported_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Removed attributes are reported in the order of the file, regardless of the hash seed."""
    old = parse("g (float[N] x) => (float[N] y) { y = Relu (x) }")
    new = parse("g (float[N] x) => (float[N] y) { y = Relu (x) }")
    for name in "srqp":
        old.graph.node[0].attribute.append(helper.make_attribute(name, numpy_helper.from_array(np.ones(3))))

    gone = [text.rpartition("attribute ")[2] for text in compare(tmp_path, old, new)]

    assert gone == ["`s` was removed", "`r` was removed", "`q` was removed", "`p` was removed"]


def test_missing_data_is_never_equal(tmp_path: Path) -> None:
    """Missing external data is never equal."""
    old, new = net(), net()
    make_external(new, "gone.bin")

    assert compare(tmp_path, old, new)[0] == "weight `w` could not be compared: `gone.bin` is missing"


def test_many_differences_are_cut(tmp_path: Path) -> None:
    """At most ten differences are reported."""
    text = (
        "g (float[N] x0) => (float[N] x20) { "
        + " ".join(f"x{i + 1} = Elu <alpha = %s> (x{i})" for i in range(20))
        + " }"
    )

    assert len(compare(tmp_path, text.replace("%s", "1.0"), text.replace("%s", "0.5"))) == 10


def constant(value: AttributeProto) -> onnx.ModelProto:
    """Return a model with one Constant that has this attribute."""
    model = parse("g () => (float[3] y) { y = Constant () }")
    model.graph.node[0].attribute.append(value)
    return model


def tensor_attribute(values: np.ndarray[Any, Any]) -> AttributeProto:
    """Return the `value` attribute of a Constant."""
    return AttributeProto(name="value", type=AttributeProto.TENSOR, t=numpy_helper.from_array(values))


def test_nan_bit_patterns_are_equal(tmp_path: Path) -> None:
    """All NaN bit patterns are equal; NaN and a number differ."""
    quiet, loud, number = (np.array([bits, 0, 0], np.uint32).view(np.float32) for bits in (0x7FC00000, 0xFFC00001, 0))
    models = [constant(tensor_attribute(values)) for values in (quiet, loud, number)]

    actual = compare(tmp_path, models[0], models[1]), compare(tmp_path, models[0], models[2])

    assert actual == ((), ("node 0 `Constant`: attribute `value` differs in 1 of 3 elements",))


@pytest.mark.parametrize(
    ("new", "message"), [([b"a", b"b"], 0), ([b"a", b"c"], 1), ([b"a", b"bb"], 1), ([b"ab", b""], 1)]
)
def test_strings(tmp_path: Path, new: list[bytes], message: int) -> None:
    """Strings are compared one by one."""
    old = constant(tensor_attribute(np.array([b"a", b"b"], object)))

    assert len(compare(tmp_path, old, constant(tensor_attribute(np.array(new, object))))) == message


def test_nan_attribute_is_itself(tmp_path: Path) -> None:
    """A NaN attribute equals itself, so that a model with one is not always stale."""
    nan, one = (AttributeProto(name="value_float", type=AttributeProto.FLOAT, f=f) for f in (float("nan"), 1.0))

    again = constant(nan)
    again.producer_name = "another"

    actual = compare(tmp_path, constant(nan), again), compare(tmp_path, constant(nan), constant(one))

    assert actual == ((), ("node 0 `Constant`: attribute `value_float` changed from nan to 1",))


def sparse(values: list[float], indices: list[int]) -> onnx.ModelProto:
    """Return a model with a sparse weight."""
    model = parse("g (float[9] x) => (float[9] y) { y = Add (x, w) }")
    model.graph.sparse_initializer.append(
        onnx.helper.make_sparse_tensor(
            numpy_helper.from_array(np.array(values, np.float32), "w"), numpy_helper.from_array(np.array(indices)), [9]
        )
    )
    return model


def test_sparse_weights(tmp_path: Path) -> None:
    """Sparse weights are compared by values and indices."""
    base = sparse([1, 2], [3, 4])

    actual = [compare(tmp_path, base, other) for other in (base, sparse([1, 3], [3, 4]), sparse([1, 2], [3, 5]))]

    assert actual == [
        (),
        ("sparse weight `w` differs in 1 of 2 elements, by up to 1",),
        ("sparse weight `w` (indices) differs in 1 of 2 elements, by up to 1",),
    ]


PAIRS = {
    "other output of a node": (
        "g (float[4] x) => (float[2] y) { a, b = Split <num_outputs = 2> (x) y = Relu (a) }",
        "g (float[4] x) => (float[2] y) { a, b = Split <num_outputs = 2> (x) y = Relu (b) }",
        ("node 1 `Relu`: input 0 changed from `Split` to output 1 of `Split`",),
    ),
    "number of outputs": (
        "g (float[4] x) => (float[2] y) { y, b = Split (x) }",
        "g (float[4] x) => (float[2] y) { y, b, c = Split (x) }",
        ("node 0 `Split`: number of outputs changed from 2 to 3",),
    ),
    "weight in two places": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { a = Add (x, w) y = Mul (a, w) }",
        "g (float[1] x) => (float[1] y) <float[1] w = {2}> { a = Add (x, w) y = Mul (a, w) }",
        ("weight `w` differs in 1 of 1 elements, by up to 1",),
    ),
    "weight that can be fed": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Add (x, w) }",
        "g (float[1] x, float[1] w) => (float[1] y) <float[1] w = {1}> { y = Add (x, w) }",
        ("weight `w` is now also an input",),
    ),
    "weight that nothing needs": (
        "g (float[1] x) => (float[1] y) <float[1] w = {1}> { y = Relu (x) }",
        "g (float[1] x) => (float[1] y) { y = Relu (x) }",
        ("number of weights changed from 1 to 0",),
    ),
    "input in place of a body's own": (
        """g (float[1] a, float[1] b, float[1] z, int64 n, bool k) => (float[1] y)
        { y = Loop (n, k, a) <body = l (int64 i, bool c, float[1] v) => (bool d, float[1] w)
        { d = Identity (c) w = Neg (v) }> }""",
        """g (float[1] a, float[1] b, float[1] z, int64 n, bool k) => (float[1] y)
        { y = Loop (n, k, a) <body = l (int64 i, bool c, float[1] v) => (bool d, float[1] w)
        { d = Identity (c) w = Neg (z) }> }""",
        ("node 0 `Loop`, attribute `body`: node 1 `Neg`: input 0 changed from input `v` to input `z`",),
    ),
    "swapped inputs": (
        "g (float[1] a, float[1] b) => (float[1] y) { y = Sub (a, b) }",
        "g (float[1] a, float[1] b) => (float[1] y) { y = Sub (b, a) }",
        (
            "node 0 `Sub`: input 0 changed from input `a` to input `b`",
            "node 0 `Sub`: input 1 changed from input `b` to input `a`",
        ),
    ),
    "order of inputs": (
        "g (float[1] a, float[1] b) => (float[1] y) { y = Sub (a, b) }",
        "g (float[1] b, float[1] a) => (float[1] y) { y = Sub (a, b) }",
        ("order of inputs changed from `a`, `b` to `b`, `a`",),
    ),
    "node of the same operator put in": (
        "g (float[1] x) => (float[1] y) { a = Relu (x) b = Exp (a) c = Neg (a) y = Add (b, c) }",
        "g (float[1] x) => (float[1] y) { a = Relu (x) b = Exp (a) d = Relu (a) c = Neg (d) y = Add (b, c) }",
        ("node 3 `Neg`: input 0 is a different `Relu`",),
    ),
    "optional input": (
        "g (float[1] x, float l, float h) => (float[1] y) { y = Clip (x, l, h) }",
        "g (float[1] x, float l, float h) => (float[1] y) { y = Clip (x, , h) }",
        ("node 0 `Clip`: input 1 is no longer provided (previously input `l`)",),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_pairs(tmp_path: Path, pair: str) -> None:
    """Similar-looking changes are distinguished."""
    old, new, said = PAIRS[pair]

    assert tuple(sorted(compare(tmp_path, old, new))) == said


def test_attribute_references(tmp_path: Path) -> None:
    """Attribute references and the opset imports of a function are compared."""
    text = FUNCTION.replace("act <slope>", "act <slope, other>").replace("slope = 0.5", "slope = 0.5, other = 0.5")
    imports = 'opset_import: ["" : 18]>\nact'

    actual = [
        compare(tmp_path, parse(text, ""), parse(text.replace(*change), ""))
        for change in (("@slope", "@other"), (imports, imports.replace("18", "17")))
    ]

    assert actual == [
        ("local function `local.act`: node 0 `LeakyRelu`: attribute `alpha` changed from slope to other",),
        ("local function `local.act` imports different opsets",),
    ]
