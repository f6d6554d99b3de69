"""The shipped table of limits, and queries on it."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from packaging.version import Version

from onnxgate.model.reading.external_data import DataSpelling
from onnxgate.support import limits


def measured() -> list[tuple[str, limits.Limits]]:
    """Return the releases that these tests cover; the table may have newer ones."""
    return [row for row in limits.load_limit_table().releases.items() if Version(row[0]) <= Version("1.31.1")]


def test_releases_ascend() -> None:
    """Releases are ascending, so that the first match is the oldest."""
    releases = [Version(release) for release in limits.load_limit_table().releases]

    assert releases == sorted(releases)


def test_patches_share_the_limits_of_their_minor() -> None:
    """No patch release has changed a limit; such a row would be a wrong measurement."""
    rows = {
        Version(release): (row.ir, row.opsets, row.dev_opsets)
        for release, row in limits.load_limit_table().releases.items()
    }
    moved = [(str(a), str(b)) for a, b in pairwise(rows) if a.release[:2] == b.release[:2] and rows[a] != rows[b]]

    assert moved == []


def test_external_data_limits() -> None:
    """External data locations are refused since the releases that were measured with real files.

    Source: 1.19.0 began to accept absolute paths, 1.24.1 to refuse files outside the folder, 1.24.2 to follow a linked
    model.
    """
    history: list[tuple[str, set[str]]] = []
    for release, row in measured():
        assert row.external_data is not None
        refused = {name for name, taken in msgspec.structs.asdict(row.external_data).items() if not taken}
        if not history or history[-1][1] != refused:
            history.append((release, refused))

    assert [
        ("1.8.0", {"absolute"}),
        ("1.19.0", set()),
        ("1.24.1", {"outside", "link", "linked_model", "absolute"}),
        ("1.24.2", {"outside", "link", "absolute"}),
    ] == history


def test_opsets_that_are_not_released() -> None:
    """ALLOW_RELEASED_ONNX_OPSET_ONLY=0 allows one more opset on some releases."""
    unreleased = {release: row.dev_opsets for release, row in measured() if row.dev_opsets}

    assert {"1.10.0": 16, **dict.fromkeys(["1.28.0", "1.29.0", "1.30.0", "1.31.0", "1.31.1"], 27)} == {
        release: opsets["ai.onnx"] for release, opsets in unreleased.items()
    }
    assert {"ai.onnx"} == {domain for opsets in unreleased.values() for domain in opsets}


def test_limits_never_fall() -> None:
    """A newer release supports whatever an older one did; `works since` relies on it."""
    fallen = [
        (a, b, domain)
        for a, b in pairwise(limits.load_limit_table().releases)
        for domain, newest in limits.load_limit_table().releases[b].opsets.items()
        if newest < limits.load_limit_table().releases[a].opsets.get(domain, 0)
    ]

    assert fallen == []


def test_works_since() -> None:
    """The first release that supports an IR version or opset; "" if none does."""
    actual = (
        limits.find_first_release_for_ir(10),
        limits.find_first_release_for_ir(99),
        limits.find_first_release_for_opset("ai.onnx", 21),
        limits.find_first_release_for_opset("ai.onnx.ml", 4),
        limits.find_first_release_for_opset("com.microsoft", 2),
        limits.find_first_release_for_opset("my.domain", 7),
    )

    assert actual == ("1.18.0", "", "1.18.0", "1.17.0", "", "1.8.0")


def test_known_domain_that_came_late() -> None:
    """`ai.onnx.preview` is limited since 1.28 and unlimited before."""
    assert [
        limits.accepts_versions(limits.load_limit_table().releases[r], 8, {"ai.onnx.preview": 2})
        for r in ("1.27.0", "1.28.0")
    ] == [
        True,
        False,
    ]


def test_unmeasured_release() -> None:
    """A release that was not measured has no limits."""
    assert limits.get_limits("1.17.2") is None


def test_each_engine_has_its_own_table() -> None:
    """A release number belongs to an engine; ONNX Runtime Web has no 1.31.0. Other engines have no limits."""
    web = limits.get_limits("1.30.0", "onnxruntime-web")

    assert web is not None
    assert (web.ir, web.opsets["ai.onnx"]) == (13, 26)
    assert {"onnxruntime", "onnxruntime-web"} <= set(limits.list_table_engines())
    assert limits.get_limits("1.31.0", "onnxruntime-web") is None
    assert limits.get_limits("5.0.0", "opencv-python-headless") is None


def test_works_since_counts_the_releases_of_one_engine() -> None:
    """The first release is one of the same engine: ONNX Runtime Web has no table for 1.18.0."""
    actual = (
        limits.find_first_release_for_ir(10, "onnxruntime-web"),
        limits.find_first_release_for_ir(11, "onnxruntime-web"),
        limits.find_first_release_for_opset("ai.onnx", 23, "onnxruntime-web"),
        limits.find_first_release_for_opset("ai.onnx", 23, "opencv-python-headless"),
        limits.find_interface_type_span("tensor(bfloat16)", "onnxruntime-web"),
        limits.find_interface_type_span("tensor(float)", "onnxruntime-web"),
    )

    assert actual == ("1.20.0", "1.23.0", "1.23.0", "", ("", "1.21.1"), ("", ""))


def test_an_engine_may_accept_every_version() -> None:
    """Some engines read neither the IR version nor the opsets of a model."""
    unlimited = limits.Limits(ir=None, opsets={})

    assert limits.accepts_versions(unlimited, 99, {"ai.onnx": 99, "my.domain": 7})


@pytest.mark.parametrize(
    ("runtime", "spelling", "expected"),
    [
        ("onnxruntime 1.14.1", "hexadecimal", None),
        ("onnxruntime 1.15.1", "hexadecimal", True),
        ("onnxruntime 1.22.1", "hexadecimal", True),
        ("onnxruntime 1.23.0", "hexadecimal", False),
        ("onnxruntime-web 1.20.1", "hexadecimal", True),
        ("onnxruntime-web 1.30.0", "second-location", True),
        ("onnxruntime 1.32.0", "unknown-entry", True),
        ("openvino 2026.4.1", "unknown-entry", False),
        ("openvino 2024.6.0", "hexadecimal", None),
        ("openvino 2025.0.0", "hexadecimal", True),
        ("tract 0.23.9", "hexadecimal", True),
        ("tract 0.21.8", "signed", False),
        ("tract 0.21.8", "second-location", None),
        ("tract 0.23.9", "longer-file", True),
    ],
)
def test_spellings_by_engine(runtime: str, spelling: DataSpelling, expected: bool | None) -> None:
    """Each was loaded; nothing is predicted where the result depends on more than the spelling."""
    engine, release = runtime.split()
    refuses = limits.refuses_spelling(release, spelling, engine)

    assert (None if limits.is_spelling_unclear(release, spelling, engine) else refuses) == expected
