"""Answers to questions about support, from the tables that are shipped."""

from __future__ import annotations

import itertools

import pytest

from onnxgate.support.answers.minimal_nodes import list_operations
from onnxgate.support.answers.operator_answers import OperatorSupport, SupportSpan, VersionSupport
from onnxgate.support.answers.queries import describe_operator, find_newest_versions, list_operators
from onnxgate.support.matching.kernels import Implemented, find_implementation
from onnxgate.support.operators import get_implementation, list_known_releases

FIRST, LAST = list_known_releases()[0], list_known_releases()[-1]


def one_version(operator: OperatorSupport, opset: int) -> VersionSupport:
    """Return the only version of an operator that models with an opset use."""
    (version,) = (
        it for it in operator.versions if it.first_opset <= opset and (it.last_opset is None or opset <= it.last_opset)
    )
    return version


def spans_of(version: VersionSupport, parameter: str, type_name: str) -> list[tuple[str, str, str]]:
    """Return first release, last release and way of each span of a type."""
    (support,) = (it for it in version.types if (it.parameter, it.type) == (parameter, f"tensor({type_name})"))
    return [(span.since, span.until, span.way) for span in support.spans]


def test_operator_is_described_in_each_domain() -> None:
    """Without a domain, the answer names all domains that users can import, and none of the optimizer's own."""
    assert [(it.domain, it.operator) for it in describe_operator("Conv")] == [("ai.onnx", "Conv")]
    assert [it.domain for it in describe_operator("Gelu")] == ["ai.onnx", "com.microsoft"]
    assert [it.domain for it in describe_operator("Gelu", domain="com.microsoft")] == ["com.microsoft"]
    assert describe_operator("Gelu", domain="ai.onnx.ml") == ()
    assert [it.domain for it in describe_operator("Conv", domain="com.microsoft.nchwc")] == ["com.microsoft.nchwc"]


def test_spans_name_the_way() -> None:
    """A release uses a kernel, the function body, or a kernel between casts; releases with too old opsets refuse."""
    standard, microsoft = describe_operator("Gelu")
    gelu = one_version(standard, 20)

    assert spans_of(gelu, "T", "float") == [
        (FIRST, "1.16.3", "none"),
        ("1.17.0", "1.17.3", "function"),
        ("1.18.0", LAST, "kernel"),
    ]
    assert spans_of(gelu, "T", "float16") == [(FIRST, "1.16.3", "none"), ("1.17.0", LAST, "function")]
    assert spans_of(one_version(microsoft, 1), "T", "float16") == [(FIRST, LAST, "function")]
    assert gelu.spans[0] == SupportSpan(FIRST, "1.16.3", "none", "opset 20 is too new")


@pytest.mark.parametrize(
    ("engine", "name", "opset"),
    [
        *(
            ("onnxruntime", name, 22)
            for name in ("Cast", "CastLike", "Identity", "Loop", "MaxPool", "Shape", "Softplus")
        ),
        *(("onnxruntime", name, 24) for name in ("Attention", "Constant", "Dropout", "Resize", "Swish")),
        ("onnxruntime", "Pad", 18),
        ("onnxruntime", "StringNormalizer", 10),
        ("onnxruntime", "com.microsoft.QuickGelu", 1),
        ("onnxruntime-web", "StringNormalizer", 10),
        *((engine, name, 13) for engine in ("openvino", "tract") for name in ("If", "Loop", "SequenceAt")),
    ],
)
def test_releases_with_the_same_operator_share_only_what_they_have_in_common(
    engine: str, name: str, opset: int
) -> None:
    """The answer about a release is the same in a question about this release and in one about all releases."""
    domain, _, operator = name.rpartition(".")
    domain = domain or "ai.onnx"
    (whole,) = describe_operator(operator, domain=domain, engine=engine, opset=opset)
    releases = list_known_releases(engine)
    expected = {
        release: [(it.parameter, it.type, it.spans[0].way, it.spans[0].reason) for it in single.versions[0].types]
        for release in releases
        for single in describe_operator(operator, domain=domain, engine=engine, opset=opset, releases=[release])
    }

    assert expected == {
        release: [
            (it.parameter, it.type, span.way, span.reason)
            for it in whole.versions[0].types
            for span in it.spans
            if releases.index(span.since) <= index <= releases.index(span.until)
        ]
        for index, release in enumerate(releases)
    }


def test_the_best_way_of_all_combinations_counts() -> None:
    """A release may run one combination of types with a kernel, and similar types only between casts."""
    (operator,) = describe_operator("GroupQueryAttention")

    assert spans_of(operator.versions[0], "T_CACHE", "float16")[-1] == ("1.20.0", LAST, "kernel")


def test_patch_releases_are_distinguished() -> None:
    """A patch release may add an operator."""
    (operator,) = describe_operator("LinearAttention", domain="com.microsoft")

    assert [(span.since, span.until, span.way) for span in operator.versions[0].spans] == [
        (FIRST, "1.25.0", "none"),
        ("1.25.1", LAST, "kernel"),
    ]


def test_every_span_list_covers_all_releases() -> None:
    """Spans follow each other without gaps, so that each release has an answer."""
    releases = list_known_releases()
    for name in ("Attention", "Upsample", "SequenceMap", "Cast"):
        for operator in describe_operator(name):
            for version in operator.versions:
                for spans in (version.spans, *(it.spans for it in version.types)):
                    covered = [releases[releases.index(it.since) : releases.index(it.until) + 1] for it in spans]

                    assert tuple(release for part in covered for release in part) == releases


def test_unreleased_opsets_are_named() -> None:
    """A release that knows an opset, but accepts it only with an environment variable, refuses it by default."""
    (operator, *_) = describe_operator("LinearAttention")

    assert [span.reason for span in one_version(operator, 27).spans][1] == (
        "opset 27 requires ALLOW_RELEASED_ONNX_OPSET_ONLY=0"
    )


def test_types_of_other_parameters_can_be_fixed() -> None:
    """A type counts as supported if any choice of the others works, unless these are fixed."""
    (free, *_) = describe_operator("DequantizeLinear", domain="ai.onnx", opset=21)
    (fixed, *_) = describe_operator("DequantizeLinear", domain="ai.onnx", opset=21, types={"T1": "tensor(int32)"})

    assert {it.parameter for it in free.versions[0].types} == {"T1", "T2"}
    assert [it.type for it in fixed.versions[0].types if it.parameter == "T1"] == ["tensor(int32)"]
    assert describe_operator("Gelu", domain="ai.onnx", types={"T9": "tensor(float)"}) == ()


def test_function_bodies_depend_on_the_opset() -> None:
    """Releases do not use a function body if its operators changed in the opset that the model imports."""
    (mish,) = describe_operator("Mish")

    assert [(it.version, it.first_opset, it.last_opset) for it in mish.versions] == [
        (18, 18, 18),
        (18, 19, 21),
        (22, 22, None),
    ]
    assert describe_operator("Mish", opset=20)[0].versions[0].first_opset == 20


def test_bodies_of_onnx_runtime_need_an_opset() -> None:
    """The body that ONNX Runtime defines for LayerNormalization uses Slice with inputs, which opset 10 adds."""
    old, new = (describe_operator("LayerNormalization", opset=opset)[0].versions[0] for opset in (9, 10))

    assert spans_of(old, "T", "float16") == [(FIRST, "1.19.2", "none"), ("1.20.0", LAST, "kernel")]
    assert spans_of(new, "T", "float16") == [(FIRST, "1.19.2", "function"), ("1.20.0", LAST, "kernel")]


@pytest.mark.parametrize(
    ("name", "type_name", "opset", "since", "condition"),
    [
        ("Shape", "int4", 21, "1.19.0", "only if all sizes of the input are fixed"),
        ("Identity", "int4", 21, "1.19.0", "only if the optimizer can remove the node"),
        ("Dropout", "bfloat16", 13, FIRST, "only if the optimizer can remove the node"),
    ],
)
def test_nodes_without_a_kernel_that_may_be_removed(
    name: str, type_name: str, opset: int, since: str, condition: str
) -> None:
    """Whether a release removes such a node depends on the model, so that this does not count as support."""
    (operator,) = describe_operator(name, opset=opset, types={"": f"tensor({type_name})"})

    assert operator.versions[0].spans[-1] == SupportSpan(since, LAST, "unknown", condition)
    assert not operator.is_supported


def test_unknown_outcomes_are_not_an_answer() -> None:
    """Older releases load StringNormalizer only if a locale is installed on the machine."""
    (operator,) = describe_operator("StringNormalizer")

    assert [(it.since, it.until, it.way) for it in operator.versions[0].spans] == [
        (FIRST, "1.26.0", "unknown"),
        ("1.27.0", LAST, "kernel"),
    ]


def test_deprecated_versions_are_refused() -> None:
    """Upsample is deprecated since opset 10."""
    (upsample,) = describe_operator("Upsample")

    assert [it.deprecated for it in upsample.versions] == [False, False, False, True]
    assert {span.way for span in upsample.versions[-1].spans} == {"none"}


def test_attributes_that_kernels_require_are_assumed() -> None:
    """LSTM needs `hidden_size`, RegexFullMatch `pattern`: the schemas do not require them."""
    for name, opset in (("LSTM", 14), ("RegexFullMatch", 20), ("TfIdfVectorizer", 9)):
        assert describe_operator(name, opset=opset)[0].versions[0].spans[-1].way == "kernel"


@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearAveragePool", "QLinearMul", "QLinearSigmoid"])
def test_zero_points_that_inference_requires_are_assumed(name: str) -> None:
    """The schemas do not require them, but all releases refuse the nodes without."""
    (operator,) = describe_operator(name, domain="com.microsoft")

    assert [(FIRST, LAST, "kernel")] == [(it.since, it.until, it.way) for it in operator.versions[0].spans]


@pytest.mark.parametrize("name", ["If", "Loop", "Scan", "SequenceMap", "Constant", "GroupNormalization", "Optional"])
def test_operators_with_graphs_and_required_values(name: str) -> None:
    """Operators whose attributes decide about types and bodies work on the newest release."""
    (operator,) = describe_operator(name, domain="ai.onnx")
    newest = [it for it in operator.versions if it.version <= 25][-1]

    assert newest.spans[-1].way in ("kernel", "function", "folded")


def test_newest_versions_of_a_range() -> None:
    """The oldest release of a range limits it."""
    newest = find_newest_versions(["1.18.0", "1.32.0"])

    assert (newest.ir_version, newest.opsets["ai.onnx"], newest.opsets["ai.onnx.ml"]) == (10, 21, 5)
    with pytest.raises(ValueError, match=r"0\.1\.0"):
        find_newest_versions(["1.18.0", "0.1.0"])


def test_list_of_operators() -> None:
    """All operators of public domains are listed."""
    listed = list_operators()

    assert ("ai.onnx", "Conv") in listed
    assert ("com.microsoft", "Gelu") in listed
    assert not [domain for domain, _ in listed if "nchwc" in domain]


@pytest.mark.parametrize(("name", "opset"), [("Attention", 23), ("LayerNormalization", 18), ("CastLike", 21)])
def test_no_other_combination_of_types_changes_an_answer(name: str, opset: int) -> None:
    """Only a few combinations of types are tried; all combinations together support no other type."""
    (described,) = describe_operator(name, domain="ai.onnx", opset=opset)
    release = get_implementation("1.26.0")
    operator = release.operator("ai.onnx", name) if release else None
    assert release is not None
    assert operator is not None
    schema = operator.schema(opset)
    assert schema is not None
    constraints = {key: sorted(types) for key, types in schema.constraints.items()}
    supported = set()
    for types in itertools.product(*constraints.values()):
        binding = tuple(zip(constraints, types, strict=True))
        for operation in list_operations(operator, schema.since, opset, binding[0][0], binding):
            if isinstance(find_implementation(operation, release), Implemented):
                supported.update(binding)

    assert supported == {
        (it.parameter, it.type)
        for it in described.versions[0].types
        for span in it.spans
        if span.since <= "1.26.0" <= span.until and span.way not in ("none", "unknown")
    }


@pytest.mark.parametrize(
    ("name", "opset", "parameter", "type_name"),
    [
        ("TreeEnsemble", 5, "T", "tensor(float16)"),  # a cast input would differ from the tensors in attributes
        ("Shape", 15, "T", "tensor(complex64)"),  # not even a constant can have this type
        ("Identity", 14, "V", "seq(tensor(complex64))"),  # removed, but the type is not supported at all
        ("SequenceInsert", 11, "T", "tensor(complex64)"),  # a sequence of other elements would be accepted
        ("SplitToSequence", 11, "S", "seq(tensor(int8))"),
        ("LayerNormalization", 17, "U", "tensor(double)"),
    ],
)
def test_types_that_only_seem_to_be_supported(name: str, opset: int, parameter: str, type_name: str) -> None:
    """Real loads refuse these types."""
    (operator,) = describe_operator(name, opset=opset, types={parameter: type_name})

    assert {span.way for span in operator.versions[0].spans} == {"none"}


def test_a_type_without_a_parameter_is_about_the_one_with_a_choice() -> None:
    """People ask about the values of Where, not about its condition, which is always bool."""
    (where,) = describe_operator("Where", opset=16, types={"": "tensor(bool)"})
    (quantize,) = describe_operator("QuantizeLinear", domain="ai.onnx", opset=17, types={"": "tensor(int16)"})

    assert where.versions[0].fixed == {"T": "tensor(bool)"}
    assert quantize.versions[0].fixed == {"T2": "tensor(int16)"}


def test_engines_that_convert_operators_have_no_kernels() -> None:
    """Their tables list what they load, so that "kernel" would be a claim about something that does not exist."""
    (gelu,) = describe_operator("Gelu", domain="ai.onnx", engine="openvino")
    ways = {span.way for version in gelu.versions for row in version.types for span in row.spans}

    assert "converted" in ways
    assert not {"kernel", "function", "cast"} & ways


@pytest.mark.parametrize(
    ("engine", "name", "opset", "value_type", "reason"),
    [
        ("openvino", "Bernoulli", 15, "", "only with `seed`"),
        ("openvino", "Dropout", 6, "", "only with `is_test`"),
        ("openvino", "Dropout", 7, "", None),
        ("openvino", "Mod", 13, "tensor(float)", "only with `fmod`"),
        ("openvino", "Mod", 13, "tensor(int32)", None),
        ("tract", "Squeeze", 11, "", "only with `axes`"),
        ("tract", "BlackmanWindow", 17, "", "only if all inputs are constant"),
        ("tract", "MatMul", 9, "tensor(int64)", "only if all inputs are constant"),
        ("tract", "STFT", 17, "", "only with `window` or `frame_length`"),
        ("openvino", "QuantizeLinear", 13, "", "only with `axis` or `y_zero_point`"),
    ],
)
def test_conditions_on_which_probed_engines_accept_a_node(
    engine: str, name: str, opset: int, value_type: str, reason: str | None
) -> None:
    """An engine may need an optional attribute or constant inputs: then a node decides, not the operator."""
    types = {"T": value_type} if value_type else None
    (operator,) = describe_operator(name, domain="ai.onnx", engine=engine, opset=opset, types=types)
    first = operator.versions[0].spans[0]

    assert (first.way, first.reason) == (("converted", "") if reason is None else ("unknown", reason))


@pytest.mark.parametrize(
    ("name", "release", "way", "reason"),
    [
        ("SequenceInsert", "2026.2.1", "unknown", "only in a `Loop`"),
        ("SequenceInsert", "2026.3.0", "converted", "`position` must be constant"),
        ("SequenceErase", "2026.3.0", "converted", "`position` must be constant"),
        (
            "SequenceAt",
            "2026.2.1",
            "converted",
            "`position` must be constant; not with a sequence from other operators than "
            "`SequenceConstruct` and `SplitToSequence`",
        ),
        ("SequenceAt", "2026.3.0", "converted", ""),
        (
            "ConcatFromSequence",
            "2026.4.1",
            "converted",
            "not with a sequence from `If`, `Identity` or a surrounding graph",
        ),
    ],
)
def test_what_openvino_refuses_of_sequences_is_stated(name: str, release: str, way: str, reason: str) -> None:
    """Probes of single nodes do not show that OpenVINO replaces only some patterns of nodes with sequences.

    Source: the rule for predictions, in `matching/probed/openvino_sequences`.
    """
    (operator,) = describe_operator(name, engine="openvino", releases=[release])

    assert operator.versions[-1].spans == (SupportSpan(release, release, way, reason),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "release", "reason"),
    [
        ("If", "0.23.9", "tract refuses many models with control flow, so they have no prediction"),
        (
            "NonZero",
            "0.23.9",
            "tract refuses many models whose sizes it must derive from others, so they have no prediction",
        ),
        (
            "Range",
            "0.22.4",
            "not with inputs that mix sizes and other integers; with inputs of variable size, tract refuses many "
            "models whose sizes it must derive from others, so they have no prediction",
        ),
        ("Relu", "0.23.9", ""),
    ],
)
def test_models_that_tract_often_refuses_are_named(name: str, release: str, reason: str) -> None:
    """A user who learns that tract supports `If` expects that models with it load; they have no prediction."""
    (operator,) = describe_operator(name, domain="ai.onnx", engine="tract", releases=[release])

    assert operator.versions[-1].spans == (SupportSpan(release, release, "converted", reason),)


@pytest.mark.parametrize("value_type", ["seq(tensor(float))", "seq(tensor(float8e5m2))", "optional(tensor(int4))"])
def test_types_without_a_probe_are_not_known(value_type: str) -> None:
    """tract refuses inputs that are sequences; a type whose probes are missing is not one that it accepts.

    Source: models with such inputs, all refused by 0.21.8 and 0.23.9.
    """
    (operator,) = describe_operator("If", engine="tract", opset=25, types={"V": value_type})

    assert {span.way for span in operator.versions[0].spans} == {"unknown"}


def test_types_of_other_parameters_must_be_known() -> None:
    """tract has no sequences, so that it does not support an operator on them because the position may be int64.

    Source: models with SequenceConstruct, all refused by 0.22.4 to 0.23.9.
    """
    (operator,) = describe_operator("SequenceInsert", engine="tract", types={"I": "tensor(int64)"})

    assert {span.way for span in operator.versions[0].spans} == {"unknown"}


def test_releases_without_the_newest_version_use_an_older_one() -> None:
    """ONNX Runtime 1.24 to 1.31 accept opset 25, but do not know the change to Attention in it."""
    (attention,) = describe_operator("Attention", domain="ai.onnx", opset=25)

    ways = [(span.since, span.until) for span in attention.versions[0].spans if span.way == "kernel"]
    assert ways == [("1.24.1", "1.31.1")]


@pytest.mark.parametrize(
    ("name", "parameter", "type_name", "spans"),
    [
        ("com.microsoft.MatMulNBits", "T3", "float", [("1.18.0", LAST, "kernel")]),
        ("com.microsoft.GroupQueryAttention", "T_CACHE", "int8", [("1.25.0", LAST, "kernel")]),
        ("com.microsoft.MultiHeadAttention", "QK", "float16", [("1.22.0", LAST, "kernel")]),
        ("com.microsoft.DecoderMaskedMultiHeadAttention", "V", "float", [("1.20.0", LAST, "kernel")]),
        ("ai.onnx.NonMaxSuppression", "boxes", "float16", []),
        ("ai.onnx.StringNormalizer", "X", "int64", []),
    ],
)
def test_types_that_the_schema_of_a_release_lacks(
    name: str, parameter: str, type_name: str, spans: list[tuple[str, str, str]]
) -> None:
    """Releases check fixed types of inputs; older schemas of a version lack arguments, or give them other types."""
    domain, _, name = name.rpartition(".")
    (operator,) = describe_operator(name, domain=domain, types={parameter: f"tensor({type_name})"})
    found = spans_of(operator.versions[-1], parameter, type_name)

    assert [span for span in found if span[2] != "none"] == spans


@pytest.mark.parametrize(
    ("name", "opset", "parameter", "type_name"),
    [
        ("Cast", 6, "T2", "string"),
        ("Cast", 9, "T2", "bfloat16"),
        ("ConstantOfShape", 9, "T2", "bfloat16"),
        ("Bernoulli", 15, "T2", "string"),
        ("DequantizeLinear", 23, "T3", "double"),
    ],
)
def test_result_types_that_only_the_standard_forbids(name: str, opset: int, parameter: str, type_name: str) -> None:
    """Releases load nodes whose attribute selects such a type, although the models are not valid ONNX."""
    types = {parameter: f"tensor({type_name})"}
    (operator,) = describe_operator(name, domain="ai.onnx", opset=opset, types=types)

    assert "unknown" in {span.way for span in operator.versions[0].spans}
    assert not operator.is_supported


def test_types_with_and_without_a_parameter() -> None:
    """A type without a parameter is about a parameter that no other type names."""
    fixed = [
        describe_operator(name, opset=opset, types=types)[0].versions[0].fixed
        for name, opset, types in (
            ("Cast", 13, {"T1": "tensor(float)", "": "tensor(int8)"}),
            ("Slice", 13, {"T": "tensor(float)", "": "tensor(int32)"}),
            ("OneHot", 11, {"": "tensor(float16)", "T1": "tensor(int64)"}),
        )
    ]

    assert fixed == [
        {"T1": "tensor(float)", "T2": "tensor(int8)"},
        {"T": "tensor(float)", "Tind": "tensor(int32)"},
        {"T1": "tensor(int64)", "T2": "tensor(float16)"},
    ]
    assert describe_operator("Conv", types={"T": "tensor(float)", "": "tensor(float16)"}) == ()


def test_elements_of_optionals() -> None:
    """OptionalGetElement returns the value of an optional, and values that are not optional as they are."""
    ways = [
        describe_operator("OptionalGetElement", opset=18, types={"O": container, "V": "tensor(float)"})[0]
        .versions[0]
        .spans[-1]
        .way
        for container in ("optional(tensor(float))", "tensor(float)", "seq(tensor(float))")
    ]

    assert ways == ["kernel", "kernel", "none"]


def test_types_that_models_cannot_have_as_inputs() -> None:
    """JavaScript represents no bfloat16 values: since 1.22.0, only values inside of a model can have this type."""
    types = {"T1": "tensor(bfloat16)"}
    (cast,) = describe_operator("Cast", opset=13, engine="onnxruntime-web", types=types)
    condition = "only if no input or output of the model is a `tensor(bfloat16)`"

    assert [(it.since, it.way, it.reason) for it in cast.versions[0].spans] == [
        ("1.20.0", "kernel", ""),
        ("1.22.0", "unknown", condition),
    ]


def test_reasons_are_about_the_types_in_question() -> None:
    """If several types are refused, the reason is not about one that the question does not fix."""
    (operator,) = describe_operator("DequantizeLinear", domain="ai.onnx", opset=23, types={"T3": "tensor(double)"})

    assert operator.versions[0].spans[-1].reason == (
        "there is no kernel for `DequantizeLinear(23)` with `T3` = `tensor(double)`"
    )


@pytest.mark.parametrize(
    ("name", "releases", "expected"),
    [
        ("Mish", ("1.17.3", "1.18.0"), {"1.17.3": 20}),
        ("Mish", ("1.16.3", "1.17.3", "1.18.0"), {"1.16.3": 19, "1.17.3": 20}),
        ("Mish", ("1.18.0", "1.18.1"), {}),
        ("Gelu", ("1.16.3", "1.17.3", "1.18.0"), {"1.17.3": 20}),
        ("ai.onnx.ml.Scaler", ("1.16.3", "1.17.3"), {"1.16.3": 3}),
        ("ai.onnx.ml.Scaler", ("1.17.3", "1.18.0"), {}),
    ],
)
def test_releases_that_do_not_accept_all_opsets_of_an_answer(
    name: str, releases: tuple[str, ...], expected: dict[str, int]
) -> None:
    """Releases in question that accept only the first opsets of a version are recorded with their newest opset."""
    domain, _, short_name = name.rpartition(".")
    (operator,) = describe_operator(short_name, domain=domain or "ai.onnx", releases=releases)

    assert expected == operator.opset_limits
