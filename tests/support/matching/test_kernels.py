"""Matching of operations against releases; each case was observed on the release's wheel."""

from __future__ import annotations

from collections.abc import Sequence

import onnx.parser
import pytest

from onnxgate.model.reading.view import ModelView
from onnxgate.support import limits, operators
from onnxgate.support.matching.kernels import Implemented, find_implementation, predict
from onnxgate.support.matching.operations import Operation, Prediction
from onnxgate.support.matching.type_inference import infer_model_types
from tests.harness.release_differences import NAMED, node


def prediction(text: str, release: str, providers: Sequence[str] = ()) -> Prediction:
    """Return the predicted verdict of a release."""
    known = limits.get_limits(release)
    assert known is not None
    model = infer_model_types(ModelView(onnx.parser.parse_model(text)))
    return predict(model, operators.get_implementation(release), known, providers)


@pytest.mark.parametrize(("model", "release", "expected"), NAMED)
def test_operators_on_an_old_and_a_new_release(model: str, release: str, expected: str) -> None:
    """Kernels depend on version, type, function bodies, float16 casts and patch releases."""
    assert expected == prediction(model, release).verdict


@pytest.mark.parametrize(
    ("release", "opset", "expected"),
    [
        ("1.16.3", 18, "refused"),  # the body needs opset 1, its schema's own opset, for which no kernel exists
        ("1.17.0", 18, "loads"),
        ("1.31.1", 18, "loads"),
        ("1.31.1", 17, "refused"),  # supported since opset 18
        ("1.31.1", 19, "refused"),  # CastLike, which the body uses, has changed
    ],
)
def test_a_body_is_for_some_opsets(release: str, opset: int, expected: str) -> None:
    """Softplus of double has no kernel; its body is valid until an operator in it changes."""
    model = node(opset, "double[N] x", "double[N] y", "y = Softplus (x)")

    assert expected == prediction(model, release).verdict


def test_all_misses_at_once() -> None:
    """Every rejected node is listed with its own rule."""
    model = node(
        14,
        "uint16[N] x, double[1, 1, 9] d, double[1, 1, 3] w, float[N] f",
        "uint16[N] a, double[1, 1, c] b, float[N] c, float[N] e",
        "a = Add (x, x) b = Conv (d, w) c = NotAnOp (f) e = Relu <speed: int = 3> (f) u = Upsample (f, f)",
    )

    actual = prediction(model, "1.20.1").found

    expected = ["missing-kernel", "missing-kernel", "unknown-operator", "attribute-unsupported", "deprecated-operator"]
    assert expected == [each.miss.rule for each in actual if each.miss]


def test_releases_share_the_nodes_that_they_refuse() -> None:
    """A copy for each release would take many times the memory of the model."""
    model = infer_model_types(ModelView(onnx.parser.parse_model(node(14, "float[N] x", "float[N] y", "y = No (x)"))))
    known = limits.get_limits("1.20.1")
    assert known is not None

    first, second = (predict(model, operators.get_implementation(it), known) for it in ("1.20.1", "1.31.1"))

    assert first.found[0].node is second.found[0].node


def test_open_ended_kernel_covers_its_own_version() -> None:
    """In 1.17 the schema at opset 21 is that of 19, which has a kernel; only the opset limit refuses the model."""
    model = node(21, "float[N] x", "double[N] y", "y = Cast <to: int = 11> (x)")
    known = limits.get_limits("1.31.1")
    assert known is not None

    actual = predict(
        infer_model_types(ModelView(onnx.parser.parse_model(model))), operators.get_implementation("1.17.3"), known
    )

    assert actual.verdict == "loads"  # with the limits of 1.31.1


def test_domains() -> None:
    """Domains of the release need no import; other domains are unknown."""
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
    """A function must import all domains it uses, and the model must import the function's domain."""
    text = f"""<ir_version: 8, opset_import: [{imports}]> g (float[N] x) => (float[N] y) {{ y = my.Call (x) }}
        <domain: "my", opset_import: ["" : 18]> Call (a) => (b) {{ {body} }}
        <domain: "my", opset_import: ["" : 18]> Other (a) => (b) {{ b = Neg (a) }}"""

    actual = prediction(text, "1.31.1").found

    assert [(each.miss.rule, each.node.operation.domain) for each in actual if each.miss] == [
        ("unknown-domain", domain)
    ]


def test_machine_dependent_kernel_is_unknown() -> None:
    """StringNormalizer needs a locale of the machine, which a table cannot contain."""
    model = node(10, "string[N] x", "string[M] y", "y = StringNormalizer (x)")

    assert prediction(model, "1.16.3").verdict == "unknown"
    assert "en_US.UTF-8" in prediction(model, "1.16.3").found[0].unknown


def test_float16_is_not_cast_around_subgraphs_nor_before_opset_6() -> None:
    """Implicit casts of the runtime require Cast of opset 6 or newer."""
    old = node(5, "float16[N, 1, 3, 3] x", "float16[N, 1, 1, 1] y", "y = GlobalAveragePool (x)")
    new = node(6, "float16[N, 1, 3, 3] x", "float16[N, 1, 1, 1] y", "y = GlobalAveragePool (x)")

    assert prediction(old, "1.31.1").verdict == "refused"
    assert prediction(new, "1.31.1").verdict == "loads"


def test_unknown_type_matters_only_if_kernels_differ() -> None:
    """An unknown type does not matter if the kernel accepts every allowed type."""
    header = '<ir_version: 8, opset_import: ["" : 17, "acme" : 1]>'
    behind = header + " g (float[N] x) => (float[N] y) {{ u = acme.Do (x) y = {} }}"

    actual = prediction(behind.format("Softplus (u)"), "1.20.1").found

    assert [bool(each.miss) for each in actual] == [True, False]
    assert "input 1" in actual[1].unknown
    assert len(prediction(behind.format("Cast <to: int = 1> (u)"), "1.20.1").found) == 1


def test_missing_import_does_not_remove_types() -> None:
    """Type inference of onnx requires imports, but releases do not."""
    model = node(17, "double[N] x", "float[N] y", "c = Cast <to = 1> (x) g = com.microsoft.Gelu (c) y = Relu (g)")

    assert prediction(model, "1.20.1").verdict == "loads"


@pytest.mark.parametrize(
    ("types", "call", "body", "expected"),
    [
        ("float", "com.microsoft.Gelu (x)", '<domain: "com.microsoft"> Gelu (X) => (Y) { Y = Det (X) }', "loads"),
        ("double", "com.microsoft.Gelu (x)", '<domain: "com.microsoft"> Gelu (X) => (Y) { Y = Neg (X) }', "refused"),
        ("double", "com.microsoft.Nova (x)", '<domain: "com.microsoft"> Nova (X) => (Y) { Y = Neg (X) }', "loads"),
        ("double", "Relu (x)", '<domain: ""> Relu (X) => (Y) { Y = Erf (X) }', "loads"),
        ("float", "Nova (x)", '<domain: ""> Nova (X) => (Y) { Y = Neg (X) }', "refused"),
        ("float", "ai.onnx.ml.Nova (x)", '<domain: "ai.onnx.ml"> Nova (X) => (Y) { Y = Neg (X) }', "refused"),
        ("float", "ai.onnx.new.Nova (x)", '<domain: "ai.onnx.new"> Nova (X) => (Y) { Y = Neg (X) }', "loads"),
    ],
)
def test_local_function_does_not_replace_an_operator(types: str, call: str, body: str, expected: str) -> None:
    """A local function with the name of an existing operator is not called, nor a new one in a domain of ONNX."""
    header = '<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1, "ai.onnx.ml" : 3, "ai.onnx.new" : 1]>'
    function = body.replace(">", ', opset_import: ["" : 17]>', 1)
    text = f"{header} g ({types}[N, N] x) => ({types}[N, N] y) {{ y = {call} }} {function}"

    assert expected == prediction(text, "1.16.3").verdict
    assert expected == prediction(text, "1.31.1").verdict


def test_nodes_of_a_function_are_of_the_versions_that_the_model_imports() -> None:
    """A function of opset 17 in a model of opset 18 uses the kernels and bodies of 18."""
    text = """<ir_version: 8, opset_import: ["" : {}, "my" : 1]> g (double[N] x) => (double[N] y) {{ y = my.Call (x) }}
        <domain: "my", opset_import: ["" : {}]> Call (a) => (b) {{ b = Softplus (a) }}"""

    assert prediction(text.format(18, 17), "1.31.1").verdict == "loads"
    assert prediction(text.format(17, 18), "1.31.1").verdict == "refused"


CAUSAL_CONV = node(
    27, "float[2, 4, 8] x, float[4, 1, 4] w", "float[2, 4, 8] y, float[2, 4, 3] s", "y, s = CausalConvWithState (x, w)"
)


def test_a_body_that_depends_on_shapes_is_unknown() -> None:
    """1.32.0 expands CausalConvWithState to a Conv whose number of groups is a size of the weights."""
    found = prediction(CAUSAL_CONV, "1.32.0")

    assert found.verdict == "unknown"
    assert (
        found.found[0].unknown
        == "the function body of `CausalConvWithState(27)` depends on input shapes, so its nodes are unknown"
    )


@pytest.mark.parametrize(
    ("release", "attributes", "expected"),
    [("1.31.1", "", "loads"), ("1.31.1", "<is_causal = 1>", "refused"), ("1.32.0", "<is_causal = 1>", "loads")],
)
def test_mask_of_attention(release: str, attributes: str, expected: str) -> None:
    """Until 1.31.1, the body of a causal Attention is invalid for a double mask."""
    types = ", ".join(f"float[2, 3, {size}, 8] {name}" for name, size in (("q", 4), ("k", 8), ("v", 8)))
    call = f"y = Attention {attributes} (q, k, v, mask)"
    model = node(24, f"{types}, double[4, 8] mask", "float[2, 3, 4, 8] y", call)

    assert expected == prediction(model, release).verdict


@pytest.mark.parametrize(
    ("release", "mask", "attributes", "expected"),
    [
        ("1.23.2", "float", "", "refused"),
        ("1.29.0", "float", "", "refused"),
        ("1.30.0", "float", "", "refused"),
        ("1.31.0", "float", "", "loads"),
        ("1.30.0", "int64", "", "refused"),
        ("1.30.0", "bool", "", "loads"),
        ("1.30.0", "float16", "", "loads"),
        ("1.29.0", "float", "<softmax_precision = 1>", "loads"),
        ("1.30.0", "float", "<softmax_precision = 1>", "refused"),
    ],
)
def test_casts_of_float16_in_a_function_body(release: str, mask: str, attributes: str, expected: str) -> None:
    """A cast to the same type fails if no neighbor has a kernel for float16; 1.29.0 has one for MatMul."""
    types = ", ".join(f"float16[2, 3, {size}, 8] {name}" for name, size in (("q", 4), ("k", 8), ("v", 8)))
    call = f"y = Attention {attributes} (q, k, v, mask)"
    model = node(23, f"{types}, {mask}[4, 8] mask", "float16[2, 3, 4, 8] y", call)

    assert expected == prediction(model, release).verdict


def test_casts_of_float16_between_kernels() -> None:
    """GroupNormalization casts float16 to itself too, but next to a Reshape, which has a kernel for float16."""
    call = "y = GroupNormalization <num_groups = 2, stash_type = 10> (x, s, s)"
    model = node(21, "float16[2, 4, 3] x, float16[4] s", "float16[2, 4, 3] y", call)

    assert prediction(model, "1.30.0").verdict == "loads"


@pytest.mark.parametrize(
    ("release", "nodes", "expected"),
    [
        ("1.16.3", "p = MatMul (a, b) q = CastLike (p, b) y = Add (q, b)", "refused"),
        ("1.30.0", "p = MatMul (a, b) q = CastLike (p, b) y = Add (q, b)", "refused"),
        ("1.31.0", "p = MatMul (a, b) q = CastLike (p, b) y = Add (q, b)", "loads"),
        ("1.24.4", "p = MatMul (a, b) q = CastLike (p, b) y = Transpose (q)", "loads"),
        ("1.24.4", "p = Transpose (a) q = CastLike (p, b) y = Add (q, b)", "loads"),
        ("1.24.4", "q = CastLike (a, b) y = Add (q, b)", "loads"),
        ("1.24.4", "p = MatMul (a, b) y = CastLike (p, b)", "loads"),
        ("1.24.4", "p = MatMul (a, b) q = CastLike (p, b) r = CastLike (q, b) y = Add (r, b)", "loads"),
        ("1.24.4", "p = MatMul (a, b) q = CastLike (p, b) y = CastLike (d, q)", "refused"),
        ("1.24.4", "p = MatMul (a, b) i = Identity (p) q = CastLike (i, b) j = Identity (q) y = Sin (j)", "refused"),
        ("1.24.4", "p = Elu (a) q = CastLike (p, b) y = Elu (q)", "refused"),
        ("1.24.4", "p = Sin (a) q = CastLike (p, b) r = Mul (q, one) s = Transpose (r) y = Sin (s)", "loads"),
        ("1.24.4", "p = Sin (a) q = CastLike (p, b) r = Mul (q, two) s = Transpose (r) y = Sin (s)", "refused"),
        ("1.24.4", "p = Sin (a) q = CastLike (p, b) m = MatMul (q, b) y = Add (m, w)", "refused"),
        ("1.24.4", "p = Sin (t) q = CastLike (p, b) m = MatMul (q, b) n = Add (m, w) y = Squeeze (n)", "loads"),
        ("1.24.4", "p = Sin (a) q = CastLike (p, b) m = Relu (q) y = Clip (m, one, two)", "loads"),
        ("1.24.4", "p = Sin (a) q = CastLike (p, b) r = Sin (q) s = Shape (r) y = Expand (a, s)", "loads"),
        ("1.24.4", "p = MatMul (a, b) q = CastLike (p, b) y = com.microsoft.FastGelu (q)", "loads"),
    ],
)
def test_casts_of_float16_between_nodes(release: str, nodes: str, expected: str) -> None:
    """CastLike of float16 to itself fails between nodes without a kernel for float16, also inside function bodies."""
    text = f"""<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>
        g (float16[2, 2] a, float16[2, 2] b, double[2, 2] d, float16[1, 2, 2] t) => (float16[2, 2] y)
        <float16[1] one = {{15360}}, float16[1] two = {{16384}}, float16[2] w = {{0, 0}}> {{ {nodes} }}"""

    assert expected == prediction(text, release).verdict


@pytest.mark.parametrize(("release", "expected"), [("1.16.3", "refused"), ("1.17.3", "loads")])
def test_casts_of_float16_in_models_with_local_functions(release: str, expected: str) -> None:
    """ONNX Runtime 1.17 and newer expand all function bodies of such a model before they remove redundant casts."""
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float16[2, 2] a, float16[2, 2] b) => (float16[2, 2] y) { y = local.f (a, b) }
        <domain: "local", opset_import: ["" : 18]>
        f (a, b) => (y) { p = MatMul (a, b) q = CastLike (p, b) y = Add (q, b) }"""

    assert expected == prediction(text, release).verdict


@pytest.mark.parametrize(("opset", "is_refused"), [(8, True), (9, False)])
def test_gelu_of_float16_needs_the_operators_of_its_body(opset: int, is_refused: bool) -> None:
    """ONNX Runtime replaces com.microsoft.Gelu of float16 by nodes, of which Erf exists since opset 9."""
    text = f"""<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]>
        g (float16[2] x) => (float16[2] y) {{ y = com.microsoft.Gelu (x) }}"""

    assert bool(prediction(text, "1.24.4").found) == is_refused


@pytest.mark.parametrize("name", ["FastGelu", "Gelu", "QuickGelu"])
def test_contrib_operators_of_float16_run_as_their_bodies(name: str) -> None:
    """ONNX Runtime inserts casts at the nodes of the function body, as optimized models of 1.18.1 show."""
    types = ("tensor(float16)",)
    operation = Operation("com.microsoft", name, 1, 17, types, types, (), static=False)
    release = operators.get_implementation("1.18.1")

    assert release is not None
    assert find_implementation(operation, release) == Implemented("function")


@pytest.mark.parametrize(("version", "expected"), [(2**32 + 17, "loads"), (2**32 + 99, "refused"), (2**62, "refused")])
def test_opsets_of_more_than_32_bits(version: int, expected: str) -> None:
    """Releases read the low 32 bits of a version."""
    model = f'<ir_version: 8, opset_import: ["" : {version}]> g (float[2] x) => (float[2] y) {{ y = Relu (x) }}'

    assert expected == prediction(model, "1.31.1").verdict


def test_constants_that_are_outputs_of_another_type() -> None:
    """The type of the constant applies to the nodes that take it."""
    model = (
        '<ir_version: 8, opset_import: ["" : 17]> g (bool[2] b, float[2] x) => (int64[2] c, float[2] y) '
        "{ c = Constant <value = float[2] {1, 2}> () y = Where (b, c, x) }"
    )

    assert "loads" == prediction(model, "1.31.1").verdict


def test_dropout_that_a_function_returns() -> None:
    """Releases since 1.17 replace the call by the node, which the optimizer may then remove."""
    model = (
        '<ir_version: 8, opset_import: ["" : 6, "d" : 1]> g (float[2] x) => (float[2] y) { w = d.f (x) y = Neg (w) } '
        '<domain: "d", opset_import: ["" : 6]> f (x) => (w) { w = Dropout (x) }'
    )

    assert ["refused", "unknown"] == [prediction(model, release).verdict for release in ("1.16.3", "1.20.1")]


def test_body_of_unknown_types() -> None:
    """Nothing is known about a function body that depends on a type that is unknown."""
    model = (
        '<ir_version: 8, opset_import: ["" : 13, "d" : 1]> g (float[3, 5] x, int64[3] t) => (float[3] y) '
        "{ z = d.Unknown (x) y = NegativeLogLikelihoodLoss (z, t) }"
    )
    found = prediction(model, "1.31.1").found

    assert [""] == [it.miss.problem if it.miss else "" for it in found if it.node.operation.name.startswith("Neg")]
