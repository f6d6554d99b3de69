"""Answers about support: the best way, consecutive releases and accepted versions."""

from __future__ import annotations

import pytest

from onnxgate.support.answers.operator_answers import (
    SUPPORTED_WAYS,
    WAYS,
    OperatorSupport,
    SupportSpan,
    SupportWay,
    VersionSupport,
    join_spans,
    list_ranges,
)
from tests.harness.reports.sample_answers import DESCRIBED, RELEASES

A, B, C, D, E = RELEASES


def version(*spans: SupportSpan) -> VersionSupport:
    """Return a version of an operator with these spans."""
    return VersionSupport(1, 1, None, False, spans, ())


@pytest.mark.parametrize("way", WAYS)
def test_what_counts_as_support(way: SupportWay) -> None:
    """A release that refuses the model, or for which this is unknown, does not count; the best way comes first."""
    span = SupportSpan(A, E, way)
    operator = OperatorSupport("onnxruntime", "ai.onnx", "Gelu", (version(span),))

    assert {way in SUPPORTED_WAYS} == {span.is_supported, operator.versions[0].is_supported, operator.is_supported}
    assert span.is_supported == (WAYS.index(way) < WAYS.index("unknown") < WAYS.index("none"))


def test_the_best_way_of_each_release() -> None:
    """It is the best one at any opset; equal ways of consecutive releases are one span."""
    versions = (
        version(SupportSpan(A, B, "none", "x"), SupportSpan(C, E, "cast")),
        version(SupportSpan(A, A, "unknown", "y"), SupportSpan(B, D, "function"), SupportSpan(E, E, "kernel")),
    )
    operator = OperatorSupport("onnxruntime", "com.microsoft", "Gelu", versions)

    assert operator.label == "com.microsoft.Gelu"
    assert operator.find_best_spans(RELEASES) == (
        SupportSpan(A, A, "unknown", "y"),
        SupportSpan(B, D, "function"),
        SupportSpan(E, E, "kernel"),
    )


def test_ranges_are_of_consecutive_releases() -> None:
    """Spans are joined if the second one begins with the release after the first one."""
    assert list_ranges([], RELEASES) == []
    assert list_ranges([SupportSpan(A, B, "kernel"), SupportSpan(C, C, "cast")], RELEASES) == [(A, C)]
    assert list_ranges([SupportSpan(A, A, "kernel"), SupportSpan(C, E, "kernel")], RELEASES) == [(A, A), (C, E)]


def test_reasons_matter_if_support_is_not_known() -> None:
    """Refusals for several reasons can be one span, but not unknown support on several conditions."""
    refused = [SupportSpan(A, A, "none", "x"), SupportSpan(B, B, "none", "y")]
    unknown = [SupportSpan(A, A, "unknown", "x"), SupportSpan(B, B, "unknown", "y")]

    assert join_spans(refused, with_reasons=False) == (SupportSpan(A, B, "none"),)
    assert join_spans(refused, with_reasons=True) == tuple(refused)
    assert join_spans(unknown, with_reasons=False) == tuple(unknown)


@pytest.mark.parametrize(
    ("ir_version", "opset", "accepted"),
    [(None, None, RELEASES), (9, None, RELEASES), (10, None, (D, E)), (None, 20, (B, C, D, E)), (9, 21, (D, E))],
)
def test_accepted_versions(ir_version: int | None, opset: int | None, accepted: tuple[str, ...]) -> None:
    """A release accepts all versions up to its newest ones."""
    assert accepted == tuple(it.release for it in DESCRIBED if it.accepts(ir_version, opset))
