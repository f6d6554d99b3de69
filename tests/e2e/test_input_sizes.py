"""Faults that occur only at one size, at one optimization level or in a second run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.harness.models import parse, write
from tests.harness.repositories.checkout import commit
from tests.harness.repositories.user_repository import Repository

pytestmark = pytest.mark.index

CONFIG = """models = ["models/*.onnx", "wide/*.onnx"]

[targets.server]
runtime = "onnxruntime==1.31.1"

[[model]]
path = "models/*.onnx"
sizes = { batch = [2, 4] }

[[model]]
path = "wide/*.onnx"
sizes = { h = [32, 28] }
"""
FORMULAS = {"twice": "2*batch", "thrice": "3*batch"}
MODELS = {
    # `int(x.shape[0])` in `forward`, exported by TorchScript: a batch of 4 gets the output of a batch of 2.
    "baked": "g (float[batch, 4] x) => (float[batch, 1] y) <int64[2] s = {2, 1}>"
    " { m = ReduceMean(x)  y = Expand(m, s) }",
    # The same with `Dim.AUTO`: the values are correct, but the declared shape is wrong.
    "stamped": "g (float[batch, 4] x) => (float[2, 1] y) <int64[1] a = {1}> { y = ReduceMean(x, a) }",
    "doubled": "g (float[batch, 4] x) => (float[twice, 4] y) { y = Concat<axis = 0>(x, x) }",
    "undoubled": "g (float[batch, 4] x) => (float[thrice, 4] y) { y = Concat<axis = 0>(x, x) }",
    "found": "g (float[batch, 4] x) => (int64[2, found] y, int64[2, found] z)"
    " { n = Neg(x)  y = NonZero(x)  r = Relu(n)  z = NonZero(r) }",
    "reshaped": "g (float[batch, 4] x) => (float[batch, 2, 2] y) <int64[3] s = {2, 2, 2}> { y = Reshape(x, s) }",
    "../wide/flattened": "g (float[batch, 1, h, 8] x) => (float[batch, 3] y) <int64[2] s = {256, 3}>"
    " { w = ConstantOfShape(s)  f = Flatten(x)  y = MatMul(f, w) }",
    "training": "g (float[batch, 64] x) => (float[batch, 64] y) <float r = {0.5}, bool t = {1}>"
    " { y = Dropout(x, r, t) }",
    "noisy": "g (float[batch, 64] x) => (float[batch, 64] y) { n = RandomNormalLike(x)  y = Add(x, n) }",
}


def _formulas(model: onnx.ModelProto) -> onnx.ModelProto:
    """Set formulas as axis names, which the text form of ONNX does not support."""
    for dim in (dim for value in model.graph.output for dim in value.type.tensor_type.shape.dim):
        if dim.dim_param in FORMULAS:
            dim.dim_param = FORMULAS[dim.dim_param]
    return model


@pytest.fixture
def repository(command: Repository, tmp_path: Path) -> Repository:
    """Return a repository of these models."""
    made = command.at(tmp_path / "dimensions")
    for name, text in MODELS.items():
        write(made.folder / "models" / f"{name}.onnx", _formulas(parse(text)))
    made.write("onnxgate.toml", CONFIG)
    commit(made.folder)
    made.run("lock")
    return made


def test_dimensions(repository: Repository) -> None:
    """Each fault is reported with the sizes that cause it; data-dependent sizes and random noise are not faults."""
    report = repository.report("--stage", "runtime,parity", status=1)
    findings = {
        finding["model"]: (finding["rule"], re.split(r" \(onnxruntime|; ", finding["message"])[0])
        for finding in report["findings"]
    }

    assert findings == {
        "models/baked.onnx": (
            "output-shape-wrong",
            "output `y` is declared as (batch, 1) but has shape (2, 1) at batch=4",
        ),
        "models/stamped.onnx": (
            "output-shape-wrong",
            "output `y` is declared as (2, 1) but has shape (4, 1) at batch=4",
        ),
        "models/undoubled.onnx": (
            "output-shape-wrong",
            "output `y` is declared as (3*batch, 4) but has shape (4, 4) at batch=2",
        ),
        "models/reshaped.onnx": ("dynamic-axis-broken", "runs at batch=2 but fails at batch=4"),
        "wide/flattened.onnx": ("dynamic-axis-broken", "runs at h=32 but fails at h=28"),
        "models/training.onnx": (
            "output-unstable",
            "output `y` differs between two runs with the same inputs: a `Dropout` is in training mode",
        ),
    }
    assert report["undecided"] == []
    assert len(report["findings"]) == len(findings)


# All axes are unnamed. The weights w1 and w2 consist of ones and have these shapes.
UNNAMED: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "add": ("(float[b, t, f] x) => (float[o, p, q] y) { y = Add(x, w1) }", {"w1": (1, 77, 24)}),
    "attention": (
        "(float[b, h, s, d] x, float[b2, h2, p, d2] past, float[b3, h3, s3, t] mask) => (float[o, q, r, u] y) {"
        " all = Concat<axis = 2>(past, x)  k = Transpose<perm = [0, 1, 3, 2]>(all)  m = MatMul(x, k)  n = Add(m, mask)"
        "  a = Softmax<axis = -1>(n)  y = MatMul(a, all) }",
        {},
    ),
    "cache": ("(float[n, h, d] x, float[m, g, e] z) => (float[o, p, q] y) { y = ScatterND(x, i, z) }", {}),
    "concat": (
        "(float[b, c, h, w] x) => (float[o, p, q, r] y) { y = Concat<axis = 0>(x, w1) }",
        {"w1": (1, 2, 20, 30)},
    ),
    "convolution": ("(float[b, c, h, w] x) => (float[o, p, q, r] y) { y = Conv(x, w1) }", {"w1": (2, 3, 150, 1)}),
    "einsum": (
        '(float[b, t, f] x) => (float[o, p, q] y) { y = Einsum<equation = "bij,jk->bik">(x, w1) }',
        {"w1": (23, 5)},
    ),
    "gru": (
        "(float[t, b, f] x, float[d, c, g] h) => (float[o, p, q, r] y) { y = GRU<hidden_size = 4>(x, w1, w2, , , h) }",
        {"w1": (1, 12, 7), "w2": (1, 12, 4)},
    ),
    "groups": ("(float[b, c, t] x) => (float[o, p, q] y) { y = Conv<group = 2>(x, w1) }", {"w1": (6, 5, 3)}),
    "picture": (
        "(float[b, c, h, w] x) => (float[o, p] y) { v = Conv(x, w1)  f = Flatten(v)  y = Gemm(f, w2) }",
        {"w1": (4, 1, 3, 3), "w2": (2704, 3)},
    ),
    "reshape": (
        "(float[b, t, f] x) => (float[o, p] y) { r = Reshape(x, s)  y = MatMul(r, w1) }",
        {"w1": (84, 3)},
    ),
    "two": (
        "(float[b, f] x, float[c, g] z) => (float[o, p] y)"
        " { a = MatMul(x, w1)  d = MatMul(z, w2)  y = Concat<axis = 1>(a, d) }",
        {"w1": (37, 4), "w2": (53, 4)},
    ),
}


def _unnamed(name: str) -> onnx.ModelProto:
    text, weights = UNNAMED[name]
    model = parse(f"g {text}")
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            dim.ClearField("dim_param")
    constants = {name: np.ones(shape, np.float32) for name, shape in weights.items()}
    constants |= {"i": np.array([[2], [5]]), "s": np.array([-1, 84])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return model


def test_sizes_of_unnamed_axes(command: Repository, tmp_path: Path) -> None:
    """They follow from weights, recurrent operators and error texts, so that no model is undecided."""
    made = command.at(tmp_path / "unnamed")
    for name in UNNAMED:
        write(made.folder / "models" / f"{name}.onnx", _unnamed(name))
    made.write("onnxgate.toml", CONFIG.partition("[[model]]")[0].replace(', "wide/*.onnx"', ""))
    commit(made.folder)
    made.run("lock")
    report = made.report("--stage", "runtime", status=0)

    assert report["undecided"] == []
    assert report["findings"] == []


NAMED: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "features": (
        "(float[batch, seq, 4] x) => (float[batch, 4, d] y) { t = Transpose<perm = [0, 2, 1]>(x)  y = MatMul(t, w1) }",
        {"w1": (20, 20)},
    ),
    "patches": (
        "(float[batch, 3, h, w] x) => (float[batch, n, d] y) { c = Conv<strides = [8, 8]>(x, w1)  t = Reshape(c, p)"
        "  u = Transpose<perm = [0, 2, 1]>(t)  y = Add(u, w2) }",
        {"w1": (8, 3, 8, 8), "w2": (1, 49, 8)},
    ),
    "flattened": (
        "(float[batch, 3, h, w] x) => (float[batch, d] y) { f = Flatten(x)  y = MatMul(f, w1) }",
        {"w1": (2352, 4)},
    ),
    "wave": (
        "(float[batch, samples] x) => (float[batch, d] y) { v = Unsqueeze(x, o)  c = Conv<strides = [160]>(v, w1)"
        "  f = Flatten(c)  y = Gemm<transB = 1>(f, w2) }",
        {"w1": (4, 1, 400), "w2": (3, 392)},
    ),
    "blocks": ("(float[batch, time] x) => (float[batch, n, 128] y) { y = Reshape(x, b) }", {}),
    "positions": (
        "(int64[batch, seq] x) => (float[batch, seq, 4] y) { e = Gather(w1, x)  l = Shape<start = 1, end = 2>(x)"
        "  q = Slice(w2, z, l, o)  y = Add(e, q) }",
        {"w1": (50, 4), "w2": (1, 6, 4)},
    ),
    "frames": (
        "(float[batch, samples] x, float[batch, frames] m) => (float[batch, c, f] y) { v = Unsqueeze(x, o)"
        "  c = Conv<strides = [160], pads = [160, 160]>(v, w1)  k = Unsqueeze(m, o)  y = Mul(c, k) }",
        {"w1": (4, 1, 320)},
    ),
    # Each level has half the size, rounded up, and is added to the level below: 63 fits, 64 does, 126 does not.
    "pyramid": (
        "(float[batch, 3, h, w] x) => (float[batch, 3, i, j] y) { p0 = Identity(x)"
        + "".join(
            f" p{i} = MaxPool<kernel_shape = [3, 3], strides = [2, 2], pads = [1, 1, 1, 1]>(p{i - 1})"
            for i in range(1, 7)
        )
        + " u6 = Identity(p6)"
        + "".join(
            f' r{i} = Resize<mode = "nearest">(u{i + 1}, , double)  u{i} = Add(r{i}, p{i})' for i in range(5, 0, -1)
        )
        + " y = Identity(u1) }",
        {},
    ),
    # A table of positions fixes the area of the image, whose number of patches is a guessed width by chance.
    "area": (
        "(float[batch, 3, h, w] x) => (float[batch, n, d] y) { c = Conv<strides = [8, 8]>(x, w1)  t = Reshape(c, p)"
        "  u = Transpose<perm = [0, 2, 1]>(t)  y = Add(u, w2) }",
        {"w1": (8, 3, 8, 8), "w2": (1, 16, 8)},
    ),
    "many": (
        "(float[batch, ta, fa] xa, float[batch, tb, fb] xb, float[batch, tc, fc] xc, float[batch, td, fd] xd)"
        " => (float[batch, i, j] y) {"
        + "".join(f" m{name} = MatMul(x{name}, w{name})  s{name} = Add(m{name}, t{name})" for name in "abcd")
        + " y = Concat<axis = 1>(sa, sb, sc, sd) }",
        {
            **{f"w{name}": (size, 4) for name, size in zip("abcd", (5, 6, 7, 9), strict=True)},
            **{f"t{name}": (size, 4) for name, size in zip("abcd", (10, 11, 13, 14), strict=True)},
        },
    ),
    # Optimization replaces the size of the batch in the requested shape by -1.
    "columns": (
        "(float[batch, 4] x, float[1, m] e) => (float[batch, 16] y) { a = Shape<end = 1>(x)"
        " s = Concat<axis = 0>(a, sixteen)"
        "  r = Reshape(e, s)  k = ReduceMean(x, o)  y = Add(r, k) }",
        {},
    ),
    "rows": (
        "(float[batch, 4] x, float[m, 4] e) => (float[batch, 16, 4] y) { a = Shape<end = 1>(x)"
        "  s = Concat<axis = 0>(a, sixteen, four)  r = Reshape(e, s)  u = Unsqueeze(x, o)  y = Add(r, u) }",
        {},
    ),
}
INTEGERS = {"p": [0, 8, -1], "b": [0, -1, 128], "z": [0], "o": [1], "sixteen": [16], "four": [4]}


def test_single_sizes_of_named_axes(command: Repository, tmp_path: Path) -> None:
    """A hard-coded size is reported; multiples, maximum sizes and sizes that depend on each other are valid."""
    made = command.at(tmp_path / "named")
    for name, (text, weights) in NAMED.items():
        model = parse(f"g {text}")
        constants = {name: np.ones(shape, np.float32) for name, shape in weights.items()}
        constants |= {name: np.array(numbers) for name, numbers in INTEGERS.items()}
        constants["double"] = np.array([1, 1, 2, 2], np.float32)
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
        write(made.folder / "models" / f"{name}.onnx", model)
    made.write("onnxgate.toml", CONFIG.partition("[[model]]")[0].replace(', "wide/*.onnx"', ""))
    commit(made.folder)
    made.run("lock")
    report = made.report("--stage", "runtime", status=0)

    assert (report["undecided"], [it["model"] for it in report["skipped"]]) == ([], [])
    assert {
        (it["model"], it["rule"], it["level"], it["message"].partition(", such")[0]) for it in report["findings"]
    } == {
        (
            f"models/{name}.onnx",
            "dynamic-axis-broken",
            "warning",
            f"runs at {at} but fails at all other tested sizes of {axes}",
        )
        for name, at, axes in (
            ("features", "seq=20", "`seq`"),
            ("flattened", "h=28 w=28", "`h` and `w`"),
            (
                "many",
                "ta=10 fa=5 tb=11 fb=6 tc=13 fc=7 td=14 fd=9",
                "`ta`, `fa`, `tb`, `fb`, `tc`, `fc`, `td` and `fd`",
            ),
            ("patches", "h=56 w=56", "`h` and `w`"),
            ("wave", "samples=16038", "`samples`"),
        )
    }

    messages = {it["model"]: it["message"] for it in report["findings"]}
    for replay in report["replays"]:
        again = made.report(replay["model"], "--stage", "runtime", *_select(replay["cases"]), status=0)
        assert {it["model"]: it["message"] for it in again["findings"]} == {replay["model"]: messages[replay["model"]]}

    (made.folder / "onnxgate.toml").write_text(
        (made.folder / "onnxgate.toml").read_text()
        + '[[model]]\npath = "models/features.onnx"\nsizes = { seq = [20] }\n'
        + '[[model]]\npath = "models/flattened.onnx"\nsizes = { h = [28], w = [28] }\n'
        + '[[model]]\npath = "models/many.onnx"\n'
        + "sizes = { ta = [10], fa = [5], tb = [11], fb = [6], tc = [13], fc = [7], td = [14], fd = [9] }\n"
        + '[[model]]\npath = "models/wave.onnx"\nsizes = { samples = [16000] }\n'
        + '[[model]]\npath = "models/patches.onnx"\nsizes = { h = [56], w = [56] }\n'
    )
    assert made.report("--stage", "runtime", status=0)["findings"] == []


# An integer is divided by zero at height 64. Releases before 1.23 do not check the divisor, so the process ends.
CRASHING = """g (float[batch, 3, h, w] x) => (float[batch, 3, h, w] y) <int64[1] k = {64}, int64[1] n = {96}> {
    s = Shape<start = 2, end = 3>(x)  d = Sub(s, k)  q = Div(n, d)  f = Cast<to = 1>(q)  y = Mul(x, f) }"""


def test_crash_at_a_guessed_size(command: Repository, tmp_path: Path) -> None:
    """A runtime that crashes at a guessed size runs the model at others; the crash is a warning with these sizes."""
    made = command.at(tmp_path / "crash")
    write(made.folder / "models" / "m.onnx", parse(CRASHING))
    made.write("onnxgate.toml", """models = ["models/*.onnx"]\n[targets.t]\nruntime = "onnxruntime==1.22.1"\n""")
    commit(made.folder)
    made.run("lock")
    report = made.report("--stage", "runtime", status=0)
    (finding,) = report["findings"]
    (replay,) = report["replays"]
    again = made.report("models/m.onnx", "--stage", "runtime", *_select(replay["cases"]), status=0)

    assert report["undecided"] == []
    assert (finding["rule"], finding["level"], again["findings"]) == ("runtime-crashed", "warning", report["findings"])
    assert finding["message"] == (
        "runs at h=8 w=8 but crashes the runtime at h=64 w=96; onnxruntime 1.22.1 ends with SIGFPE"
    )
    assert "set `sizes = { h = [8], w = [8] }` for the model" in finding["fix"]

    (made.folder / "onnxgate.toml").write_text(
        (made.folder / "onnxgate.toml").read_text()
        + '[[model]]\npath = "models/m.onnx"\nsizes = { h = [8], w = [8] }\n'
    )
    assert made.report("--stage", "runtime", status=0)["findings"] == []


SIZED = {
    # The decoder of a segmentation model: the mask is resized, cropped to the part that is an image, and resized again.
    "mask": "(float[1, 4, 64, 64] x, float[2] size) => (float[1, 4, h, w] y) { m = ReduceMax<keepdims = 0>(size)"
    "  r = Reciprocal(m)  t = Mul(r, side)  u = Mul(t, size)  v = Add(u, half)  f = Floor(v)  i = Cast<to = 7>(f)"
    '  a = Slice(i, z, o)  b = Slice(i, o, two)  d = Resize<mode = "linear">(x, , , large)  e = Slice(d, z, a, two)'
    "  g = Slice(e, z, b, three)  s = Shape<end = 2>(g)  c = Cast<to = 7>(size)  n = Concat<axis = 0>(s, c)"
    '  y = Resize<mode = "linear">(g, , , n) }',
    "grid": "(float[1, 4, 64] x, int64 rows, int64 columns) => (float[1, 4, h, w] y) { a = Unsqueeze(rows, z)"
    "  b = Unsqueeze(columns, z)  n = Concat<axis = 0>(o, four, a, b)  y = Reshape(x, n) }",
    "factor": "(float[1, 4, 8, 8] x, float[1] by) => (float[1, 4, h, w] y) {"
    '  f = Concat<axis = 0>(ones, ones, by, by)  y = Resize<mode = "linear">(x, , f) }',
    # The number of columns is not computed before a run: 64 and 1 are among the values that are tried, 48 is not.
    "retried": "(float[1, 4, 64] x, float[1] n) => (float[1, 4, 64] y) { c = Cast<to = 7>(n)  k = Expand(o, c)"
    "  q = ReduceSum(k)  p = Tile(ones, q)  y = Mul(x, p) }",
    "single": "(float[1, 4, 48] x, float[1] n) => (float[1, 4, 48] y) { c = Cast<to = 7>(n)  k = Expand(o, c)"
    "  f = Cast<to = 1>(k)  y = Mul(x, f) }",
    "rejected": "(float[1, 4, 48] x, float[1] n) => (float[1, 4, 48] y) { c = Cast<to = 7>(n)  k = Expand(o, c)"
    "  q = ReduceSum(k)  r = Max(q, two)  p = Tile(ones, r)  y = Mul(x, p) }",
}


def test_sizes_that_are_computed_from_values(command: Repository, tmp_path: Path) -> None:
    """Values of small inputs give valid sizes on old and new releases; if none does, the model is undecided."""
    made = command.at(tmp_path / "sized")
    numbers = {"z": [0], "o": [1], "two": [2], "three": [3], "four": [4], "large": [1, 4, 128, 128]}
    constants = {name: np.array(values) for name, values in numbers.items()}
    constants |= {"side": np.float32(128), "half": np.float32(0.5), "ones": np.ones(1, np.float32)}
    for name, text in SIZED.items():
        model = parse(f"g {text}")
        model.graph.initializer.extend(numpy_helper.from_array(np.asarray(it), key) for key, it in constants.items())
        write(made.folder / "models" / f"{name}.onnx", model)
    releases = "onnxruntime>=1.18.1,<1.31.2,!=1.19.*,!=1.20.*,!=1.21.*,!=1.22.*,!=1.23.*,!=1.24.*,!=1.25.*,!=1.26.*"
    excluded = ",!=1.27.*,!=1.28.*,!=1.29.*,!=1.30.*"
    made.write("onnxgate.toml", f'models = ["models/*.onnx"]\n[targets.t]\nruntime = "{releases}{excluded}"\n')
    commit(made.folder)
    made.run("lock")
    report = made.report("--stage", "runtime", status=3)

    assert [it["model"] for it in report["undecided"]] == ["models/rejected.onnx"]
    assert {(it["model"], it["rule"]) for it in report["findings"]} == {("models/rejected.onnx", "inputs-unusable")}


def _select(cases: list[str]) -> list[str]:
    return [word for case in cases for word in ("--case", case)]
