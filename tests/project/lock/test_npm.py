"""ONNX Runtime Web in the lock, with the real npm and a local registry."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from onnxgate.core import files
from onnxgate.core.errors import ConfigError, LockError, ResolutionError
from onnxgate.project.config.schema import ReleaseSelection
from onnxgate.project.lock.comparison import policy_differences
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.npm import NpmClient, NpmResolver, summarize_npm_error
from onnxgate.project.lock.releases import parse_upgrade
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget, NpmPackage
from onnxgate.project.lock.update import Machine, update_lock
from tests.conftest import need
from tests.harness.locks import project_of

from .npm_registry import COMPANION, ENGINE, Registry, integrity, serve, use_registry
from .test_update import no_build, no_toolchain

CONFIG = """
models = ["m.onnx"]
[targets.web]
runtime = "onnxruntime-web>=1.20"
"""
NIGHTLY = "1.31.0-dev.20260914-8d85527a0"
ROWS = (
    LockedRuntime(engine=ENGINE, release="1.20.1", packages=(f"{COMPANION}==1.20.1", f"{ENGINE}==1.20.1")),
    LockedRuntime(engine=ENGINE, release="1.30.0", packages=(f"{COMPANION}==1.30.0", f"{ENGINE}==1.30.0")),
)
NPM = tuple(
    NpmPackage(name=name, version=version, integrity=integrity(name, version))
    for name in (COMPANION, ENGINE)
    for version in ("1.20.1", "1.30.0")
)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Registry]:
    """Publish releases that resemble the real ones, with a nightly build."""
    need("npm")
    with serve() as registry:
        use_registry(monkeypatch, registry.url, tmp_path / "npm")
        registry.engine("1.19.2", "1.20.0", "1.20.1", "1.30.0", NIGHTLY)
        yield registry


def locked(folder: Path, old: Lock | None = None, config: str = CONFIG, upgrade: tuple[str, ...] = ()) -> Lock:
    """Return the lock of a project without models."""
    project = project_of(folder, config)
    requested = parse_upgrade(upgrade)
    return update_lock(
        project,
        old,
        {},
        Machine(no_toolchain, no_build),
        upgrade=requested,
    ).lock


@pytest.mark.surface
@pytest.mark.parametrize(
    ("specifier", "select", "expected"),
    [
        ("", "minors", ["1.19.2", "1.20.1", "1.30.0"]),
        ("", "newest", ["1.30.0"]),
        (">=1.20", "bounds", ["1.20.1", "1.30.0"]),
        ("<1.30", "all", ["1.19.2", "1.20.0", "1.20.1"]),
        ("==1.20.*,!=1.20.1", "minors", ["1.20.0"]),
    ],
)
def test_select(registry: Registry, specifier: str, select: ReleaseSelection, expected: list[str]) -> None:
    """A version range means the same as for a Python package; nightly builds are excluded."""
    actual = NpmResolver(Lock()).find(Requirement(f"{ENGINE}{specifier}"), select)

    assert expected == [str(each.version) for each in actual]


@pytest.mark.surface
def test_a_target_is_locked_by_integrity(registry: Registry, tmp_path: Path) -> None:
    """Only the engine and its companion are locked, without the URL of the registry."""
    lock = locked(tmp_path)

    assert (ROWS, NPM, ()) == (lock.targets["web"].runtimes, lock.npm, lock.packages)
    assert policy_differences(project_of(tmp_path, CONFIG).config, lock) == ()
    assert "127.0.0.1" not in render_lock(lock)


@pytest.mark.surface
def test_the_same_bytes_again(registry: Registry, tmp_path: Path) -> None:
    """The lock survives a round trip, and locking again makes no requests although newer releases exist."""
    first = locked(tmp_path)
    text = render_lock(first)
    registry.engine("1.20.2", "1.31.0")
    registry.asked = 0
    again = locked(tmp_path, parse_lock(text, "onnxgate.lock"))

    assert (text, 0) == (render_lock(again), registry.asked)


@pytest.mark.surface
def test_an_upgrade_takes_the_place_of_the_old_pins(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade of one or of all releases replaces the old pins and removes integrities that are no longer used."""
    first = locked(tmp_path)
    registry.engine("1.30.1")
    use_registry(monkeypatch, registry.url, tmp_path / "cold")
    one = locked(tmp_path, first, upgrade=(f"{ENGINE}=1.30.1",))
    every = locked(tmp_path, first, upgrade=("",))

    assert ["1.20.1", "1.30.1"] == [runtime.release for runtime in one.targets["web"].runtimes]
    assert {"1.20.1", "1.30.1"} == {each.version for each in one.npm}
    assert one == every


@pytest.mark.surface
def test_settings_next_to_the_temporary_folder(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workspace around the temporary folder does not choose the registry; the user's `.npmrc` does."""
    (tmp_path / ".npmrc").write_text("registry=http://127.0.0.1:9/\n")  # the discard port
    (tmp_path / "package.json").write_text('{"workspaces": ["*"]}')
    (tmp_path / "user").write_text(f"registry={registry.url}\n")
    monkeypatch.setattr(files, "_process_root", lambda: tmp_path)
    monkeypatch.delenv("npm_config_registry")
    monkeypatch.setenv("npm_config_userconfig", str(tmp_path / "user"))

    assert Version("1.30.0") in NpmClient().releases(ENGINE)
    assert {ENGINE, COMPANION} <= NpmClient().needed(ENGINE, "1.30.0").keys()


@pytest.mark.surface
def test_equal_targets_ask_once(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second target with the same policy gets the same rows without another request."""
    locked(tmp_path)
    single, registry.asked = registry.asked, 0
    use_registry(monkeypatch, registry.url, tmp_path / "cold")
    lock = locked(tmp_path, config=f'{CONFIG}\n[targets.again]\nruntime = "onnxruntime-web>=1.20"\n')

    assert (single, ROWS, ROWS) == (registry.asked, *(target.runtimes for target in lock.targets.values()))


@pytest.mark.surface
def test_a_narrower_range_drops_pins(registry: Registry, tmp_path: Path) -> None:
    """A minor release that is in both ranges is kept."""
    lock = locked(tmp_path, locked(tmp_path), CONFIG.replace(">=1.20", ">=1.21"))

    assert (ROWS[1:], {"1.30.0"}) == (lock.targets["web"].runtimes, {each.version for each in lock.npm})


@pytest.mark.surface
def test_missing_table_is_resolved_again(registry: Registry, tmp_path: Path) -> None:
    """Missing integrities damage the lock; `onnxgate lock` resolves them again from the pins of the rows."""
    lock = locked(tmp_path)
    lost = msgspec.structs.replace(lock, npm=())
    with pytest.raises(LockError) as caught:
        parse_lock(render_lock(lost), "onnxgate.lock")

    assert (
        f"target `web` needs `{COMPANION}==1.20.1` from npm, but the lock contains no integrity hash for this package"
        == caught.value.problems[0]
    )
    assert lock == locked(tmp_path, lost)


@pytest.mark.surface
@pytest.mark.parametrize("name", ["unrelated", COMPANION])
def test_dependencies_outside_the_registry(registry: Registry, name: str) -> None:
    """Nothing is downloaded from the git repositories and URLs that a package names as its dependencies."""
    places = (f"git+{registry.url}/evil.git", f"{registry.url}/evil.tgz")
    for minor, place in enumerate(places):
        registry.add(ENGINE, f"2.{minor}.0", {COMPANION: "1.30.0", name: place})
    found = [NpmClient().needed(ENGINE, f"2.{minor}.0").keys() for minor in range(len(places))]

    assert [{ENGINE} if name == COMPANION else {ENGINE, COMPANION}] * len(places) == found
    assert registry.names <= {ENGINE, COMPANION}


@pytest.mark.surface
def test_range_of_a_companion(registry: Registry) -> None:
    """Old releases accept a range of their companion; its newest release without prereleases is locked."""
    for version in ("1.16.1", "1.16.10", "1.16.2", "1.16.11-dev.1", "1.17.0"):
        registry.add(COMPANION, version)
    registry.add(ENGINE, "1.16.1", {COMPANION: "~1.16.1"})

    assert NpmClient().needed(ENGINE, "1.16.1")[COMPANION].version == "1.16.10"


@pytest.mark.surface
def test_unlockable_releases(registry: Registry, tmp_path: Path) -> None:
    """A missing release and a release without a SHA-512 integrity hash have different error messages."""
    registry.add(COMPANION, "2.0.0")
    registry.add(ENGINE, "2.0.0", {COMPANION: "2.0.0"}, hashed=False)

    with pytest.raises(ConfigError, match=r"no release of `onnxruntime-web` on npm satisfies `>=3`"):
        locked(tmp_path, config=CONFIG.replace(">=1.20", ">=3"))
    with pytest.raises(ResolutionError, match=r"no SHA-512 integrity hash for `onnxruntime-web`"):
        locked(tmp_path, config=CONFIG.replace(">=1.20", ">=2"))


@pytest.mark.surface
def test_no_registry(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown package, an unreachable registry, an empty offline cache and a missing npm are each reported."""
    with pytest.raises(ResolutionError, match=r"cannot query the npm registry: 404 Not Found"):
        NpmClient().releases("onnxruntime-nothing")
    use_registry(monkeypatch, "http://127.0.0.1:9", tmp_path / "cold")
    with pytest.raises(ResolutionError, match=r"cannot query the npm registry: .*ECONNREFUSED"):
        NpmClient().releases(ENGINE)
    with pytest.raises(ResolutionError, match=r"not in npm's cache, and `--offline` is set"):
        NpmClient(offline=True).releases(ENGINE)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResolutionError, match=r"npm is not installed") as failed:
        NpmClient().releases(ENGINE)
    assert failed.value.hint == "install Node 18 or newer, which includes npm"


@pytest.mark.parametrize(
    ("problem", "right", "expected"),
    [
        (
            NPM[0].integrity,
            "sha512-abc",
            "npm package `onnxruntime-common`: `sha512-abc` is not a valid SHA-512 integrity hash",
        ),
        (f'"{COMPANION}==1.20.1", ', "", "`onnxruntime-common` is not pinned in `packages`"),
        (
            'release = "1.20.1", ',
            'release = "1.20.1", python = "3.11", ',
            "runs without Python, but `python` is `3.11`",
        ),
    ],
)
def test_damaged_lock_is_reported(problem: str, right: str, expected: str) -> None:
    """A lock with values that onnxgate never writes is reported as damaged."""
    text = render_lock(Lock(targets={"web": LockedTarget(policy="p", runtimes=ROWS)}, npm=NPM))
    assert problem in text

    with pytest.raises(LockError, match=expected):
        parse_lock(text.replace(problem, right), "onnxgate.lock")


@pytest.mark.parametrize(
    "message", ["npm error code E404\nnpm error 404 Not Found - GET x\n", "npm ERR! 404 Not Found - GET x"]
)
def test_cause_is_extracted_from_npm_output(message: str) -> None:
    """The cause is extracted from the error output of old and new npm releases."""
    assert summarize_npm_error(message) == "404 Not Found - GET x"
