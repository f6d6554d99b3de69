"""Resolution of engine releases, with the real uv and a local index."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from onnxgate.core import files
from onnxgate.core.errors import ConfigError, ResolutionError
from onnxgate.project.config.schema import ReleaseSelection
from onnxgate.project.lock import index
from onnxgate.project.lock.index import Release, ReleaseNotFound, UvIndex
from onnxgate.project.lock.releases import NumpyResolver, find_releases, supports_numpy_2

from .conftest import LocalIndex, use_index

NOWHERE = "http://127.0.0.1:9/simple"  # the discard port: refuses connections immediately
MODERN = ("3.10", "3.11", "3.12")


def publish_onnxruntime(index: LocalIndex) -> None:
    """Publish releases that resemble the real ones: old ones lack wheels for 3.11, and some patches support only some
    Pythons.
    """
    index.add("onnxruntime", "1.14.0", ("3.9", "3.10"))
    index.add("onnxruntime", "1.14.1", ("3.9", "3.10"))
    index.add("onnxruntime", "1.18.0", MODERN)
    index.add("onnxruntime", "1.18.1", MODERN)
    index.add("onnxruntime", "1.19.0", ("3.8", "3.11"))
    index.add("onnxruntime", "1.19.2", ("3.8", "3.11"))
    index.add("onnxruntime", "1.31.0", ("3.11", "3.13"))
    index.add("onnxruntime", "1.31.1", ("3.12", "3.13"))
    index.add("onnxruntime", "1.32.0rc1", ("3.11",))


def list_releases(requirement: str, select: ReleaseSelection) -> list[tuple[str, str]]:
    """Return the releases with their Python versions."""
    return [
        (str(release.version), release.python) for release in find_releases(Requirement(requirement), select, UvIndex())
    ]


@pytest.mark.parametrize(
    ("requirement", "select", "expected"),
    [
        ("onnxruntime", "minors", [("1.14.1", "3.10"), ("1.18.1", "3.11"), ("1.19.2", "3.11"), ("1.31.1", "3.13")]),
        ("onnxruntime", "newest", [("1.31.1", "3.13")]),
        ("onnxruntime", "bounds", [("1.14.1", "3.10"), ("1.31.1", "3.13")]),
        ("onnxruntime==1.18.*", "bounds", [("1.18.1", "3.11")]),
        (
            "onnxruntime>=1.18,<1.20",
            "all",
            [("1.18.0", "3.11"), ("1.18.1", "3.11"), ("1.19.0", "3.11"), ("1.19.2", "3.11")],
        ),
        ("onnxruntime<1.19,!=1.18.1", "minors", [("1.14.1", "3.10"), ("1.18.0", "3.11")]),
        ("onnxruntime>=1.31,<1.31.1", "minors", [("1.31.0", "3.11")]),
        ("onnxruntime>=1.32.0rc1", "newest", [("1.32.0rc1", "3.11")]),
    ],
)
def test_select(
    local_index: LocalIndex, requirement: str, select: ReleaseSelection, expected: list[tuple[str, str]]
) -> None:
    """All minors in the range are found, each with Python 3.11 or, if it has no such wheels, the newest supported
    Python.
    """
    publish_onnxruntime(local_index)

    assert expected == list_releases(requirement, select)


def test_release_without_our_platforms(local_index: LocalIndex) -> None:
    """A release without wheels for a supported platform is skipped, and older releases are tried."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))
    local_index.add("onnxruntime", "1.18.1", ("3.11",), platforms=("win_arm64",))

    assert list_releases("onnxruntime", "minors") == [("1.18.0", "3.11")]


def test_no_such_release(local_index: LocalIndex) -> None:
    """A requirement that no release satisfies is a config error that lists the available releases."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))

    with pytest.raises(ConfigError) as caught:
        list_releases("onnxruntime>=2", "minors")

    assert "no release of `onnxruntime` satisfies `>=2`" in caught.value.message
    assert "1.18.0" in caught.value.message
    assert caught.value.exit_code == 2


def test_unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """An unreachable index is a resolution error with a one-line message."""
    use_index(monkeypatch, "http://127.0.0.1:9/simple", tmp_path_factory.mktemp("cache"))

    with pytest.raises(ResolutionError) as caught:
        list_releases("onnxruntime>=1", "minors")

    assert caught.value.message.startswith("cannot query the package index: Failed to fetch")
    assert "\n" not in caught.value.message
    assert caught.value.exit_code == 3


def test_offline_with_a_cold_cache(local_index: LocalIndex) -> None:
    """With `--offline` no request is made, and the error does not blame the requirement."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))

    with pytest.raises(ResolutionError) as caught:
        UvIndex(offline=True).newest(Requirement("onnxruntime"), "3.11")

    assert caught.value.hint == "run the command once without `--offline`"
    assert local_index.asked == 0


def test_offline_with_a_warm_cache(local_index: LocalIndex) -> None:
    """With `--offline` releases in uv's cache can be resolved."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))
    online = UvIndex().newest(Requirement("onnxruntime"), "3.11")

    assert online == UvIndex(offline=True).newest(Requirement("onnxruntime"), "3.11")


def test_hashes_are_the_index_s(local_index: LocalIndex) -> None:
    """A release has only the wheels for its Python, sorted by file name, with the hashes of the index."""
    local_index.add("onnxruntime", "1.18.0", ("3.11", "3.12"), platforms=("manylinux_2_28_x86_64", "win_amd64"))

    release = UvIndex().newest(Requirement("onnxruntime"), "3.11")

    assert not isinstance(release, ReleaseNotFound)
    files = [f"onnxruntime-1.18.0-cp311-cp311-{each}.whl" for each in ("manylinux_2_28_x86_64", "win_amd64")]
    assert [(file, local_index.sha256("onnxruntime", file)) for file in files] == [
        (wheel.file, wheel.sha256) for wheel in release.wheels
    ]


@pytest.mark.parametrize("name", ["uv.toml", "pyproject.toml"])
def test_settings_next_to_the_temporary_folder(
    local_index: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """A parent of the temporary folder does not choose the index of a lock; the user's `uv.toml` does."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))
    (tmp_path / name).write_text(f"{'[tool.uv]' if name == 'pyproject.toml' else ''}\nindex-url = '{NOWHERE}'\n")
    (tmp_path / "user" / "uv").mkdir(parents=True)
    (tmp_path / "user" / "uv" / "uv.toml").write_text(f"index-url = '{os.environ['UV_DEFAULT_INDEX']}'\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.delenv("UV_DEFAULT_INDEX")
    monkeypatch.delenv("UV_NO_CONFIG")
    monkeypatch.setattr(files, "_process_root", lambda: tmp_path)

    release = UvIndex().newest(Requirement("onnxruntime"), "3.11")

    assert isinstance(release, Release)
    assert release.pin == "onnxruntime==1.18.0"


def test_settings_of_other_projects(local_index: LocalIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Constraints from the user's shell environment do not affect the lock."""
    local_index.add("onnxruntime", "1.18.0", ("3.11",))
    local_index.add("onnxruntime", "1.19.0", ("3.11",))
    monkeypatch.setenv("UV_CONSTRAINT", "/nowhere/constraints.txt")

    assert list_releases("onnxruntime", "newest") == [("1.19.0", "3.11")]


@pytest.mark.parametrize(
    ("release", "expected"),
    [("1.18.1", False), ("1.19.0", True), ("1.19.0rc1", True), ("1.31.1", True), ("1.9.0", False), ("2.0", True)],
)
def test_takes_numpy_2(release: str, expected: bool) -> None:
    """Releases before 1.19 cannot be imported with numpy 2."""

    assert expected == supports_numpy_2(Version(release))


def test_numpy_is_shared(local_index: LocalIndex) -> None:
    """Runtimes with the same Python share a numpy version, below 2 if the engine requires that."""
    for version in ("1.26.4", "2.4.0"):
        local_index.add("numpy", version, ("3.11",))
    companions = NumpyResolver(UvIndex())
    old, new, newer = (companions.numpy(Version(each), "3.11") for each in ("1.18.1", "1.19.2", "1.31.1"))
    asked = local_index.asked

    assert (old.pin, new.pin) == ("numpy==1.26.4", "numpy==2.4.0")
    assert new is newer
    assert asked == local_index.asked


@pytest.mark.index
def test_real_index() -> None:
    """On the real index, 1.14 has no wheels for Python 3.11, and 1.17.2 does not exist."""
    expected = [("1.14.1", "3.10"), ("1.15.1", "3.11"), ("1.16.3", "3.11"), ("1.17.3", "3.11"), ("1.18.1", "3.11")]

    assert expected == list_releases("onnxruntime>=1.14,<1.19", "minors")


VERSIONS = [f"1.{minor}.{patch}" for minor in range(4) for patch in range(3)]
SPECIAL = ("1.1.0rc1", "1.2.0.post1", "1.3.0rc2", "2!1.0")
OPERATORS = (">=", "<", "<=", ">", "==", "!=", "~=")


def find_newest(specifier: SpecifierSet, versions: Iterable[str]) -> str:
    """Return the newest version in a range; prereleases only if the range names one."""
    explicit = any(Version(it.version.removesuffix(".*")).is_prerelease for it in specifier)
    return str(max(map(Version, specifier.filter(versions, prereleases=explicit)), default=""))


def draw_specifier(rng: random.Random) -> SpecifierSet:
    """Return a range with up to three bounds."""
    names = [*VERSIONS, "1.0", "1.2", "1.3", "2", *SPECIAL]
    bounds = [rng.choice(OPERATORS[: rng.choice((2, 2, 7))]) + rng.choice(names) for _ in range(rng.randrange(4))]
    bounds += [f"{rng.choice(OPERATORS[4:6])}1.{rng.randrange(4)}.*"] * rng.choice((0, 0, 1))
    return SpecifierSet(",".join(it for it in bounds if not it.startswith("~=2")))


def test_an_answer_about_another_range_is_right() -> None:
    """What follows from the newest release in one range is what the index would answer about another range."""
    rng = random.Random(20)
    followed = 0
    for _ in range(4000):
        published = rng.sample([*VERSIONS, *SPECIAL], rng.randrange(1, 12))
        asked, wanted = draw_specifier(rng), draw_specifier(rng)
        found = find_newest(asked, published)
        answer = Release("x", Version(found), "3.11", ()) if found else ReleaseNotFound("none")
        actual = index.Answer(asked, answer).apply(wanted)
        if actual is not None:
            followed += 1
            version = str(actual.version) if isinstance(actual, Release) else ""

            assert version == find_newest(wanted, published), (asked, wanted, published)
    assert followed > 300


def test_different_ranges_share_answers(local_index: LocalIndex) -> None:
    """Ranges that only differ in their lower bounds cost no requests, and an unsatisfiable one has its own message."""
    for minor in range(10, 20):
        local_index.add("onnxruntime", f"1.{minor}.1", ("3.11",))
    shared = UvIndex()
    find_releases(Requirement("onnxruntime<1.20"), "minors", shared)
    before = local_index.asked
    found = [find_releases(Requirement(f"onnxruntime>=1.{low},<1.20"), "minors", shared) for low in range(10, 20)]

    assert [len(releases) for releases in found] == list(range(10, 0, -1))
    assert local_index.asked == before
    with pytest.raises(ConfigError, match=r"satisfies `<1\.20,>=1\.19\.2`: .*onnxruntime<=1\.19\.1"):
        find_releases(Requirement("onnxruntime>=1.19.2,<1.20"), "minors", shared)
