"""Answers to questions about support, from the tables that are shipped."""

from __future__ import annotations

import pytest

from onnxgate.support.answers import OperatorSupport, SupportSpan, VersionSupport
from onnxgate.support.operators import list_known_releases
from onnxgate.support.queries import describe_operator, find_newest_versions, list_operators

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
    assert spans_of(one_version(microsoft, 1), "T", "float16") == [(FIRST, LAST, "cast")]
    assert gelu.spans[0] == SupportSpan(FIRST, "1.16.3", "none", "opset 20 is too new")


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


def test_removed_and_folded_nodes_have_a_condition() -> None:
    """Shape of a complex tensor has no kernel, but is replaced by a constant if all sizes are fixed."""
    (shape,) = describe_operator("Shape", opset=15)
    (support,) = (it for it in shape.versions[0].types if it.type == "tensor(complex64)")

    assert support.spans == (SupportSpan(FIRST, LAST, "folded", "if all sizes of the input are fixed"),)


def test_deprecated_versions_are_refused() -> None:
    """Upsample is deprecated since opset 10."""
    (upsample,) = describe_operator("Upsample")

    assert [it.deprecated for it in upsample.versions] == [False, False, False, True]
    assert {span.way for span in upsample.versions[-1].spans} == {"none"}


def test_attributes_that_kernels_require_are_assumed() -> None:
    """LSTM needs `hidden_size`, RegexFullMatch `pattern`: the schemas do not require them."""
    for name, opset in (("LSTM", 14), ("RegexFullMatch", 20), ("TfIdfVectorizer", 9)):
        assert describe_operator(name, opset=opset)[0].versions[0].spans[-1].way == "kernel"


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
