"""The shipped data is complete, consistent and agrees with real wheels."""

from __future__ import annotations

import re

import msgspec
import pytest
from packaging.utils import parse_wheel_filename
from packaging.version import Version

from onnxgate.support import harvest, limits, operators

SHIPPED = operators.load_shipped_table()
KNOWN = operators.build_implementations(SHIPPED, {})


def kernels(release: str, domain: str, name: str) -> int:
    """Return the number of kernels and schemas of a release."""
    operator = KNOWN[release].operator(domain, name)
    return len(operator.kernels) if operator else 0


def test_every_measured_release_since_1_16_has_kernels() -> None:
    """No other release has kernels."""
    measured = [release for release in limits.load_limit_table().releases if Version(release) >= Version("1.16")]

    assert measured == [source.release for source in SHIPPED.sources]
    assert "linux x86_64" == SHIPPED.platform


def test_every_release_is_from_a_wheel_of_its_own() -> None:
    """Each source has file name and sha256, and the commit if the build reports it."""
    for source in SHIPPED.sources:
        name, version, _, _ = parse_wheel_filename(source.wheel)

        assert ("onnxruntime", Version(source.release)) == (name, version)
        assert re.fullmatch("[0-9a-f]{64}", source.sha256)
        assert bool(re.fullmatch("[0-9a-f]{7,}", source.commit)) is (version >= Version("1.17"))
    assert len(SHIPPED.sources) == len({source.sha256 for source in SHIPPED.sources})


def test_table_is_reproducible() -> None:
    """The files were not edited by hand: splitting and joining them gives the same bytes."""
    single = [harvest.select_releases(SHIPPED, [source.release]) for source in SHIPPED.sources]

    assert msgspec.json.encode(SHIPPED) == msgspec.json.encode(harvest.join_tables(single))


@pytest.mark.parametrize(
    ("domain", "name", "release", "there"),
    [
        ("com.microsoft", "MatMulNBits", "1.16.1", False),
        ("com.microsoft", "MatMulNBits", "1.16.2", True),
        ("com.microsoft", "MoE", "1.23.0", False),
        ("com.microsoft", "MoE", "1.23.1", True),
        ("com.microsoft", "LinearAttention", "1.25.0", False),
        ("com.microsoft", "LinearAttention", "1.25.1", True),
        ("ai.onnx", "CastLike", "1.31.1", False),
        ("com.microsoft.nchwc", "MaxPool", "1.16.0", True),
    ],
)
def test_patch_releases_differ(domain: str, name: str, release: str, there: bool) -> None:
    """Source: the real wheel loaded or rejected each; CastLike has a function body and no kernel."""
    assert there is (kernels(release, domain, name) > 0)


def test_counts_are_those_of_the_wheels() -> None:
    """Source: results of `get_all_opkernel_def` and `get_all_operator_schema` of the installed wheel."""
    counts = {}
    for release in ("1.16.3", "1.23.2", "1.31.1"):
        pairs = [(domain, name) for domain in SHIPPED.operators for name in KNOWN[release].operators(domain)]
        operators = [operator for pair in pairs if (operator := KNOWN[release].operator(*pair))]
        counts[release] = (sum(len(each.kernels) for each in operators), sum(len(each.schemas) for each in operators))

    assert {"1.16.3": (966, 651), "1.23.2": (1313, 778), "1.31.1": (1465, 847)} == counts


@pytest.mark.parametrize("engine", limits.list_table_engines())
def test_the_files_of_each_engine_belong_together(engine: str) -> None:
    """All releases with kernels have limits, and both files name the engine."""
    table, measured = operators.load_shipped_table(engine), limits.load_limit_table(engine)
    known = operators.list_known_releases(engine)

    assert (table.engine, measured.engine) == (engine, engine)
    assert known == tuple(release for release in measured.releases if release in known)
    assert {operators.get_implementation(release, engine).engine for release in known} == {engine}  # type: ignore[union-attr]


def test_web_packages_are_identified_by_npm_integrity() -> None:
    """The digest of a release is the one that npm verifies."""
    sources = operators.load_shipped_table("onnxruntime-web").sources

    assert all(re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", source.sha256) for source in sources)
    assert [f"onnxruntime-web-{it.release}.tgz" for it in sources] == [it.wheel for it in sources]
