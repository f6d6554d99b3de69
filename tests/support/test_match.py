"""Whether a release implements an operation: each case was seen on the release's own wheel."""

from __future__ import annotations

import onnx.parser
import pytest

from onnxgate.support import limits, releases
from onnxgate.support.operations import Prediction
from onnxgate.support.predict import predict
from onnxgate.support.typing import prepare


def prediction(text: str, release: str) -> Prediction:
    """What the release is said to do with a model."""
    known = limits.limits_of(release)
    assert known is not None
    return predict(prepare(onnx.parser.parse_model(text)), releases.implementation(release), known)


def node(opset: int, inputs: str, outputs: str, call: str, *, microsoft: bool = False) -> str:
    """A model of one node."""
    domain = ', "com.microsoft" : 1' if microsoft else ""
    return f'<ir_version: 8, opset_import: ["" : {opset}{domain}]> g ({inputs}) => ({outputs}) {{ {call} }}'


MUL = node(14, "uint16[N] x", "uint16[N] y", "y = Mul (x, x)")
CONV = node(11, "double[N, 1, L] x, double[1, 1, 3] w", "double[a, b, c] y", "y = Conv (x, w)")
DET = node(11, "float16[N, N] x", "float16 y", "y = Det (x)")
HARD_SWISH = node(14, "float[N] x", "float[N] y", "y = HardSwish (x)")
HARD_SWISH_DOUBLE = node(14, "double[N] x", "double[N] y", "y = HardSwish (x)")
CAST_LIKE = node(15, "float[N] x, double[N] t", "double[N] y", "y = CastLike (x, t)")
NMS = node(11, "float[1, N, 4] b, float[1, 1, N] s", "int64[K, 3] y", "y = NonMaxSuppression (b, s)")
MAT_MUL_N_BITS = node(
    17,
    "float[1, 16] a, uint8[8, 1, 8] b, float[8] s",
    "float[1, 8] y",
    "y = com.microsoft.MatMulNBits <K: int = 16, N: int = 8, bits: int = 4, block_size: int = 16> (a, b, s)",
    microsoft=True,
)
MOE = node(
    17,
    "float[2, 4] x, float[2, 3] r, float[3, 8, 4] f, float[3, 4, 8] h",
    "float[2, 4] y",
    "y = com.microsoft.MoE (x, r, f, , h)",
    microsoft=True,
)
LINEAR_ATTENTION = node(
    17,
    "float[1, 2, 8] q, float[1, 2, 8] k, float[1, 2, 8] v",
    "float[1, 2, 8] y, float[1, 2, 4, 4] s",
    'y, s = com.microsoft.LinearAttention <q_num_heads: int = 2, kv_num_heads: int = 2, update_rule: string = "linear">'
    " (q, k, v)",
    microsoft=True,
)


@pytest.mark.parametrize(
    ("model", "release", "expected"),
    [
        (MUL, "1.20.1", "refused"),
        (MUL, "1.21.1", "loads"),
        (CONV, "1.16.3", "refused"),
        (CONV, "1.31.1", "refused"),
        (DET, "1.16.3", "loads"),
        (DET, "1.31.1", "loads"),
        (HARD_SWISH, "1.16.3", "loads"),
        (HARD_SWISH, "1.31.1", "loads"),
        (HARD_SWISH_DOUBLE, "1.16.3", "refused"),
        (HARD_SWISH_DOUBLE, "1.31.1", "refused"),
        (CAST_LIKE, "1.16.3", "loads"),
        (CAST_LIKE, "1.31.1", "loads"),
        (NMS, "1.16.3", "loads"),
        (NMS, "1.31.1", "loads"),
        (MAT_MUL_N_BITS, "1.16.1", "refused"),
        (MAT_MUL_N_BITS, "1.16.3", "loads"),
        (MOE, "1.23.0", "refused"),
        (MOE, "1.23.1", "loads"),
        (LINEAR_ATTENTION, "1.25.0", "refused"),
        (LINEAR_ATTENTION, "1.25.1", "loads"),
    ],
)
def test_operators_on_an_old_and_a_new_release(model: str, release: str, expected: str) -> None:
    """Kernels by version and type, function bodies, casts of float16, and patch releases are told apart."""
    assert expected == prediction(model, release).verdict


@pytest.mark.parametrize(
    ("release", "opset", "expected"),
    [
        ("1.16.3", 18, "refused"),  # the body is asked for at the schema's own opset, 1: none is that old
        ("1.17.0", 18, "loads"),
        ("1.31.1", 18, "loads"),
        ("1.31.1", 17, "refused"),  # written for opset 18
        ("1.31.1", 19, "refused"),  # CastLike, which is in it, has changed
    ],
)
def test_a_body_is_for_some_opsets(release: str, opset: int, expected: str) -> None:
    """Softplus of double has no kernel, and its body holds from its own opset until an operator in it changes."""
    model = node(opset, "double[N] x", "double[N] y", "y = Softplus (x)")

    assert expected == prediction(model, release).verdict


def test_all_misses_at_once() -> None:
    """Every node that is refused is named, with its own rule."""
    model = node(
        14,
        "uint16[N] x, double[1, 1, 9] d, double[1, 1, 3] w, float[N] f",
        "uint16[N] a, double[1, 1, c] b, float[N] c, float[N] e",
        "a = Add (x, x) b = Conv (d, w) c = NotAnOp (f) e = Relu <speed: int = 3> (f) u = Upsample (f, f)",
    )

    found = prediction(model, "1.20.1").found

    expected = ["missing-kernel", "missing-kernel", "unknown-operator", "attribute-unsupported", "deprecated-operator"]
    assert expected == [each.miss.rule for each in found if each.miss]


def test_an_open_ended_kernel_is_for_its_own_version_alone() -> None:
    """Cast 21 has no kernel in 1.17, whose newest is `19 and later`: by the opset it would be refused anyway."""
    model = node(21, "float[N] x", "double[N] y", "y = Cast <to: int = 11> (x)")
    known = limits.limits_of("1.31.1")
    assert known is not None

    found = predict(prepare(onnx.parser.parse_model(model)), releases.implementation("1.17.3"), known)

    assert found.verdict == "loads"  # its schema there is that of 19: the limit, not the kernel, is what refuses it


def test_domains() -> None:
    """Domains that the release knows need no import; one that nobody knows is said to be unknown."""
    loads = node(17, "float[N] x", "float[N] y", "y = com.microsoft.Gelu (x)")
    unimported = node(17, "float[N] x", "float[N] y", "y = ai.onnx.ml.Binarizer (x)")
    unknown = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]> g (float[N] x) => (float[N] y) { y = acme.Do (x) }'

    assert prediction(loads, "1.20.1").verdict == "loads"
    assert prediction(unimported, "1.20.1").verdict == "loads"
    assert [each.miss.rule for each in prediction(unknown, "1.20.1").found if each.miss] == ["unknown-domain"]


@pytest.mark.parametrize(
    ("imports", "body", "domain"),
    [
        ('"" : 18, "my" : 1', "b = com.microsoft.Gelu (a)", "com.microsoft"),
        ('"" : 18, "my" : 1', "b = my.Other (a)", "my"),
        ('"" : 18', "b = Relu (a)", "my"),
    ],
)
def test_functions_import_all_that_they_use(imports: str, body: str, domain: str) -> None:
    """A function imports by itself what it uses, also what the release knows; and the model the function's domain."""
    text = f"""<ir_version: 8, opset_import: [{imports}]> g (float[N] x) => (float[N] y) {{ y = my.Call (x) }}
        <domain: "my", opset_import: ["" : 18]> Call (a) => (b) {{ {body} }}
        <domain: "my", opset_import: ["" : 18]> Other (a) => (b) {{ b = Neg (a) }}"""

    found = prediction(text, "1.31.1").found

    assert [(each.miss.rule, each.node.operation.domain) for each in found if each.miss] == [("unknown-domain", domain)]


def test_what_depends_on_the_machine_is_unknown() -> None:
    """StringNormalizer asks the machine for a locale, which no table can know."""
    model = node(10, "string[N] x", "string[M] y", "y = StringNormalizer (x)")

    assert prediction(model, "1.16.3").verdict == "unknown"
    assert "en_US.UTF-8" in prediction(model, "1.16.3").found[0].unknown


def test_float16_is_not_cast_around_subgraphs_nor_before_opset_6() -> None:
    """The runtime's own casts need Cast as it is since opset 6."""
    old = node(5, "float16[N, 1, 3, 3] x", "float16[N, 1, 1, 1] y", "y = GlobalAveragePool (x)")
    new = node(6, "float16[N, 1, 3, 3] x", "float16[N, 1, 1, 1] y", "y = GlobalAveragePool (x)")

    assert prediction(old, "1.31.1").verdict == "refused"
    assert prediction(new, "1.31.1").verdict == "loads"


def test_an_unknown_type_is_told_only_where_it_matters() -> None:
    """A constraint that every allowed type fulfils needs no type."""
    stamps = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
    behind = stamps + " g (float[N] x) => (float[N] y) {{ u = acme.Do (x) y = {} }}"

    found = prediction(behind.format("Softplus (u)"), "1.20.1").found

    assert [bool(each.miss) for each in found] == [True, False]
    assert "input 1" in found[1].unknown
    assert len(prediction(behind.format("Cast <to: int = 1> (u)"), "1.20.1").found) == 1


def test_what_need_not_be_imported_takes_no_types_away() -> None:
    """Inference by onnx insists on imports, and releases do not."""
    model = node(17, "double[N] x", "float[N] y", "c = Cast <to = 1> (x) g = com.microsoft.Gelu (c) y = Relu (g)")

    assert prediction(model, "1.20.1").verdict == "loads"
