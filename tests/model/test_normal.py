"""Two files hold the same model, or what differs is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from onnxgate.model import normal, structure
from onnxgate.model.normal import differences
from tests.model.models import HEAD, make_external, parse, write

NET = """g (float[N, 3, 8, 8] x) => (float[N, 4] y)
<float[2, 3, 3, 3] w, float[72, 4] m, int64[2] shape = {-1, 72}>
{
  c = Conv <kernel_shape = [3, 3]> (x, w)
  r = Relu (c)
  f = Reshape (r, shape)
  y = MatMul (f, m)
}"""


def net(text: str = NET, seed: int = 0, head: str = HEAD) -> onnx.ModelProto:
    """A small convolutional net whose two float weights are drawn from `seed`."""
    model = parse(text, head)
    random = np.random.default_rng(seed)
    for value in model.graph.value_info:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        values = random.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, value.name))
    model.graph.ClearField("value_info")
    return model


def compare(tmp_path: Path, old: onnx.ModelProto | str, new: onnx.ModelProto | str) -> tuple[str, ...]:
    """What is said of `new` against `old`."""
    return differences(write(tmp_path / "old.onnx", old), write(tmp_path / "new.onnx", new))


def test_metadata_and_names_do_not_count(tmp_path: Path) -> None:
    """Producer, metadata, document strings, value and node names, value infos and the graph's name say nothing."""
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


def test_order_of_nodes_does_not_count(tmp_path: Path) -> None:
    """Nodes may stand in any order that computes the same."""
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
    """An attribute that is spelled out at its default, or that the weight gives away, is no difference."""
    text = NET.replace("Conv <kernel_shape = [3, 3]>", "%s")

    assert compare(tmp_path, net(text % old), net(text % new)) == ()


def test_weights_count_by_what_they_hold(tmp_path: Path) -> None:
    """Inline raw, inline typed and external data are the same where their values are."""
    raw, typed, external = net(), net(), net()
    for tensor in typed.graph.initializer:
        if tensor.raw_data:
            tensor.float_data.extend(numpy_helper.to_array(tensor).flatten().tolist())
            tensor.ClearField("raw_data")
    (tmp_path / "w.bin").write_bytes(make_external(external, "w.bin"))

    assert (compare(tmp_path, raw, typed), compare(tmp_path, typed, external)) == ((), ())


def test_large_files_are_compared_without_being_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were left in the file are read from there, raw or typed."""
    typed = net()
    for tensor in typed.graph.initializer:
        if tensor.raw_data:
            tensor.float_data.extend(numpy_helper.to_array(tensor).flatten().tolist())
            tensor.ClearField("raw_data")
    reading = structure.read_structure
    monkeypatch.setattr(normal, "read_structure", lambda path: reading(path, large_bytes=0, small_bytes=64))

    assert (compare(tmp_path, net(), typed), len(compare(tmp_path, net(), net(seed=1)))) == ((), 2)


@pytest.mark.parametrize(("steps", "said"), [(4, ()), (5, ("weight `w` differs in 1 of 54 elements, by up to",))])
def test_rounding_is_equal(tmp_path: Path, steps: int, said: tuple[str, ...]) -> None:
    """Floats up to 4 representable numbers apart are equal; further apart they are not."""
    old, new = net(), net()
    values = numpy_helper.to_array(new.graph.initializer[1]).copy()
    for _ in range(steps):
        values.flat[7] = np.nextafter(values.flat[7], np.float32(np.inf))
    new.graph.initializer[1].raw_data = values.tobytes()

    assert tuple(text.rpartition(" ")[0] for text in compare(tmp_path, old, new)) == said


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_zeros_and_nans_are_equal_to_themselves(tmp_path: Path, dtype: type) -> None:
    """Both zeros are one number, and NaN in the same place is no difference."""
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
        ("node 0 `Conv`: attribute `pads` is [1, 1, 1, 1], was [0, 0, 0, 0]",),
    ),
    "operator": (NET.replace("Relu", "Elu"), ("node 2 `Reshape`: input 0 is `Elu`, was `Relu`",)),
    "inserted": (
        NET.replace("r = Relu (c)", "d = Neg (c) r = Relu (d)"),
        ("node 2 `Relu`: input 0 is `Neg`, was `Conv`",),
    ),
    "axis": (NET.replace("float[N, 3,", "float[1, 3,"), ("input `x`: axis 0 is 1, was `N`",)),
    "rank": (NET.replace("float[N, 4] y", "float[N] y"), ("output `y` has 1 axis, had 2 axes",)),
    "input": (NET.replace("8] x)", "8] data)").replace("(x,", "(data,"), ("input `data`, was `x`",)),
    "type": (NET.replace("float[N, 4] y", "float16[N, 4] y"), ("output `y` is tensor(float16), was tensor(float)",)),
    "another output": (
        NET.replace("4] y)", "4] y, float[N, 72] f)"),
        ("output `f` is new",),
    ),
    "another input": (NET.replace("8] x)", "8] x, float[N] z)"), ("input `z` is new",)),
    "shape of a weight": (
        NET.replace("72, 4] m", "72, 5] m"),
        ("weight `m` has shape [72, 5], had [72, 4]",),
    ),
    "dead node": (NET.replace("r = Relu", "d = Neg (c) r = Relu"), ("1 `Neg` nodes, was 0",)),
    "constant": (NET.replace("{-1, 72}", "{-1, 36}"), ("weight `shape` differs in 1 of 2 elements, by up to 36",)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes_are_said(tmp_path: Path, change: str) -> None:
    """Each kind of change is said once, where it is."""
    text, said = CHANGES[change]

    assert compare(tmp_path, net(), net(text)) == said


def test_stamps_are_said(tmp_path: Path) -> None:
    """Another IR version, opset or domain is a difference."""
    new = net(head='<ir_version: 9, opset_import: ["" : 20, "my.domain" : 1]>\n')

    assert compare(tmp_path, net(), new) == (
        "IR version 9, was 8",
        "opset ai.onnx 20, was 18",
        "opset my.domain 1, was not imported",
    )


def test_retrained_weights_are_counted(tmp_path: Path) -> None:
    """Other weights in the same graph: each one, with how much of it differs."""
    said = compare(tmp_path, net(), net(seed=1))

    assert [text.partition(", by up to")[0] for text in said] == [
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
    ("before", "after", "said"),
    [
        ("h = Neg (x) b = Abs (h)", "k = Neg (x) b = Abs (k)", ()),
        (
            "b = Abs (h)",
            "b = Relu (h)",
            ("node 0 `If`, attribute `else_branch`: output `b` is `Relu`, was `Abs`",),
        ),
        (
            "a = Relu (x)",
            "a = Relu (a0) a0 = Neg (x)",
            ("node 0 `If`, attribute `then_branch`: node 0 `Relu`: input 0 is `Neg`, was input `x`",),
        ),
    ],
)
def test_subgraphs(tmp_path: Path, before: str, after: str, said: tuple[str, ...]) -> None:
    """Branches are compared like graphs, and see the values around them."""
    assert compare(tmp_path, BRANCHES, BRANCHES.replace(before, after)) == said


FUNCTION = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
g (float[N] x) => (float[N] y) { y = local.act <slope = 0.5> (x) }
<domain: "local", opset_import: ["" : 18]>
act <slope> (v) => (w) { t = LeakyRelu <alpha: float = @slope> (v) w = Neg (t) }"""


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            "(v) => (w) { t = LeakyRelu <alpha: float = @slope> (v)",
            "(q) => (w) { t = LeakyRelu <alpha: float = @slope> (q)",
            (),
        ),
        ("w = Neg (t)", "w = Abs (t)", ("local function `local.act`: output `w` is `Abs`, was `Neg`",)),
        ("slope = 0.5", "slope = 0.25", ("node 0 `local.act`: attribute `slope` is 0.25, was 0.5",)),
    ],
)
def test_local_functions(tmp_path: Path, before: str, after: str, said: tuple[str, ...]) -> None:
    """The body of a local function is compared once, under its own name."""
    assert compare(tmp_path, parse(FUNCTION, ""), parse(FUNCTION.replace(before, after), "")) == said


def test_missing_data_are_no_equality(tmp_path: Path) -> None:
    """Weights that are not there cannot be called equal."""
    old, new = net(), net()
    make_external(new, "gone.bin")

    assert compare(tmp_path, old, new)[0] == "weight `w` cannot be compared: `gone.bin` is missing"


def test_many_differences_are_cut(tmp_path: Path) -> None:
    """No more than ten are said."""
    text = (
        "g (float[N] x0) => (float[N] x20) { "
        + " ".join(f"x{i + 1} = Elu <alpha = %s> (x{i})" for i in range(20))
        + " }"
    )

    assert len(compare(tmp_path, text.replace("%s", "1.0"), text.replace("%s", "0.5"))) == 10
