"""The shipped table of limits, and what is read out of it."""

from __future__ import annotations

from itertools import pairwise

from packaging.version import Version

from onnxgate.support import limits


def test_releases_ascend() -> None:
    """The table is sorted by release, so that its first taker is the oldest."""
    releases = [Version(release) for release in limits.table().releases]

    assert releases == sorted(releases)


def test_patches_share_the_limits_of_their_minor() -> None:
    """No patch release ever moved a limit; a row that does is a wrong measurement."""
    pairs = [(Version(a), Version(b)) for a, b in pairwise(limits.table().releases)]
    moved = [
        (str(a), str(b))
        for a, b in pairs
        if a.release[:2] == b.release[:2] and limits.limits_of(str(a)) != limits.limits_of(str(b))
    ]

    assert moved == []


def test_limits_never_fall() -> None:
    """A newer release takes what an older one took: `works since` would be wrong otherwise."""
    fallen = [
        (a, b, domain)
        for a, b in pairwise(limits.table().releases)
        for domain, newest in limits.table().releases[b].opsets.items()
        if newest < limits.table().releases[a].opsets.get(domain, 0)
    ]

    assert fallen == []


def test_works_since() -> None:
    """The first release that takes a stamp; nothing for one that none takes."""
    said = (
        limits.ir_works_since(10),
        limits.ir_works_since(99),
        limits.opset_works_since("ai.onnx", 21),
        limits.opset_works_since("ai.onnx.ml", 4),
        limits.opset_works_since("com.microsoft", 2),
        limits.opset_works_since("my.domain", 7),
    )

    assert said == ("1.18.0", "", "1.18.0", "1.17.0", "", "1.8.0")


def test_known_domain_that_came_late() -> None:
    """`ai.onnx.preview` is limited from 1.28 on and harmless before."""
    assert [limits.loads(limits.table().releases[r], 8, {"ai.onnx.preview": 2}) for r in ("1.27.0", "1.28.0")] == [
        True,
        False,
    ]


def test_unmeasured_release() -> None:
    """A release that was not measured has no limits, rather than its neighbour's."""
    assert limits.limits_of("1.17.2") is None
