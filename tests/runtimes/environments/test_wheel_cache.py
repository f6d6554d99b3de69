"""The shared wheel cache: which wheels are used, downloaded again or removed."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from filelock import FileLock
from packaging.tags import platform_tags

from onnxgate.core.errors import UnavailableError
from onnxgate.core.subprocesses import CommandRunner
from onnxgate.project.lock.types import LockedPackage, LockedRuntime, NpmPackage, Wheel
from onnxgate.runtimes.environments import wheels
from onnxgate.runtimes.environments.builder import Environments, find_interpreter
from onnxgate.runtimes.environments.node import NodeBuilder
from onnxgate.runtimes.environments.wheels import Downloads, WheelCache, rank_wheels, remove_unlocked

MINOR = f"{sys.version_info[0]}.{sys.version_info[1]}"
TAG = f"cp{MINOR.replace('.', '')}"
PLATFORMS = list(platform_tags())
NOWHERE = "http://127.0.0.1:9/simple"
GOOD = b"what the index gave"
EVIL = b"what an attacker wrote"

Locked = tuple[LockedRuntime, tuple[LockedPackage, ...]]


def wheel(platform: str = PLATFORMS[0], content: bytes = GOOD, name: str = "engine") -> Wheel:
    """Return a wheel with this content."""
    return Wheel(file=f"{name}-1.0-{TAG}-{TAG}-{platform}.whl", sha256=hashlib.sha256(content).hexdigest())


def package(*wheels: Wheel) -> LockedPackage:
    """Return a package with these wheels."""
    return LockedPackage(name="engine", version="1.0", python=MINOR, wheels=wheels)


def leave(folder: Path, kept: Wheel, content: bytes) -> Path:
    """Write content to the cache path of a wheel."""
    place = folder / "wheels" / kept.sha256 / kept.file
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    return place


class Index:
    """A package index with fixed content per package."""

    def __init__(self, **contents: bytes | None) -> None:
        self.contents = contents
        self.asked: list[str] = []

    def __call__(self, packages: Sequence[LockedPackage]) -> Downloads:
        """Return download functions for the wheels."""
        self.asked += [package.name for package in packages]
        return {
            wheel.file: functools.partial(_download, self.contents.get(package.name))
            for package in packages
            for wheel in package.wheels
        }


def _download(content: bytes | None) -> Iterator[bytes]:
    """Yield the content in two chunks, or half of it followed by an error."""
    yield (content or GOOD)[:4]
    if content is None:
        raise OSError("connection reset")
    yield content[4:]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return the folder from which wheels are installed."""
    (tmp_path / "target").mkdir()
    return tmp_path / "target"


def test_fetched_wheel_is_reused(tmp_path: Path, target: Path) -> None:
    """A second machine uses the cached wheel and does not query the index."""
    first, second = Index(engine=GOOD), Index()
    kept = package(wheel())
    gathered = WheelCache(tmp_path / "kept", first).gather([kept], target)
    shutil.rmtree(target)
    target.mkdir()
    again = WheelCache(tmp_path / "kept", second).gather([kept], target)

    assert (True, ["engine"]) == (gathered, first.asked)
    assert (True, []) == (again, second.asked)
    assert [GOOD] == [path.read_bytes() for path in target.iterdir()]


def _tampered(place: Path, tmp_path: Path) -> None:
    place.write_bytes(EVIL)


def _same_size(place: Path, tmp_path: Path) -> None:
    place.write_bytes(GOOD[:-1] + b"!")


def _link(place: Path, tmp_path: Path) -> None:
    (tmp_path / "right").write_bytes(GOOD)
    place.unlink()
    place.symlink_to(tmp_path / "right")


def _folder(place: Path, tmp_path: Path) -> None:
    place.unlink()
    place.mkdir()


def _empty(place: Path, tmp_path: Path) -> None:
    place.write_bytes(b"")


def _pipe(place: Path, tmp_path: Path) -> None:
    place.unlink()
    os.mkfifo(place)


ATTACKS = [_tampered, _same_size, _link, _folder, _empty, *([_pipe] if hasattr(os, "mkfifo") else [])]
Attack = Callable[[Path, Path], None]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_wheel_is_never_installed(tmp_path: Path, target: Path, attack: Attack) -> None:
    """A forged wheel is downloaded again; if that is impossible, no wheel is provided."""
    kept = wheel()
    attack(leave(tmp_path / "kept", kept, GOOD), tmp_path)
    nowhere = WheelCache(tmp_path / "kept", lambda _: {}).gather([package(kept)], target)
    left = list(target.iterdir())
    fetched = WheelCache(tmp_path / "kept", Index(engine=GOOD)).gather([package(kept)], target)

    assert (False, [], True) == (nowhere, left, fetched)
    assert [GOOD] == [path.read_bytes() for path in target.iterdir()]


@pytest.mark.parametrize("content", [EVIL, None])
def test_wrong_or_incomplete_download_is_not_cached(tmp_path: Path, target: Path, content: bytes | None) -> None:
    """A download that is wrong or incomplete is not cached."""
    gathered = WheelCache(tmp_path / "kept", Index(engine=content)).gather([package(wheel())], target)

    assert (False, [], False) == (gathered, list(target.iterdir()), (tmp_path / "kept").exists())


@pytest.mark.parametrize("platform", ["/../../x.any", "/../x.any"])
def test_wheel_name_cannot_be_a_path(tmp_path: Path, target: Path, platform: str) -> None:
    """A wheel name with path separators in the lock cannot escape the folder, although packaging 24 accepts its tag."""
    (target / "engine-1.0-py3-none-").mkdir()
    strange = Wheel(file=f"engine-1.0-py3-none-{platform}.whl", sha256=hashlib.sha256(GOOD).hexdigest())
    gathered = WheelCache(tmp_path / "kept", Index(engine=GOOD)).gather([package(strange)], target)

    assert (False, [target]) == (gathered, list(tmp_path.iterdir()))
    assert ["engine-1.0-py3-none-"] == [path.name for path in target.rglob("*")]


def test_the_most_specific_wheel_is_preferred() -> None:
    """The order matches an installer's, whatever the order in the lock; wheels for other systems are excluded."""
    general, specific, foreign = wheel(PLATFORMS[-1]), wheel(PLATFORMS[0]), wheel("plan9_x86_64")

    assert (specific, general) == rank_wheels(package(general, foreign, specific))


@pytest.mark.parametrize("attack", ATTACKS)
def test_sweep_reports_forged_wheels(tmp_path: Path, attack: Attack) -> None:
    """A forged wheel is removed and reported; valid wheels stay."""
    forged, right = wheel(content=GOOD), wheel(content=b"another", name="numpy")
    attack(leave(tmp_path / "kept", forged, GOOD), tmp_path)
    place = leave(tmp_path / "kept", right, b"another")
    actual = remove_unlocked(tmp_path / "kept", [package(forged), package(right)])

    assert [forged.file] == actual
    assert [place] == list((tmp_path / "kept").rglob("*.whl"))


def test_sweep_removes_unlocked_files(tmp_path: Path) -> None:
    """Unlocked wheels, environments, links and other files are removed without being reported."""
    kept = tmp_path / "kept"
    right, old, beside = wheel(), wheel(content=b"of another lock"), wheel(content=b"x")
    leave(kept, old, b"of another lock")
    crowded = leave(kept, beside, b"x")
    crowded.with_name("zip-9.0-py3-none-any.whl").write_bytes(EVIL)
    place = leave(kept, right, GOOD)
    for name in ("environments/onnxruntime/ready.json", "npm/_cacache/content", "wheels/notes.txt", "file"):
        (kept / name).parent.mkdir(parents=True, exist_ok=True)
        (kept / name).write_bytes(EVIL)
    (kept / "npm" / "out").symlink_to(tmp_path)
    (kept / "wheels" / ("0" * 64)).symlink_to(tmp_path)
    actual = remove_unlocked(
        kept, [package(right, beside), NpmPackage(name="web", version="1.0", integrity="sha512-x")]
    )

    assert [] == actual
    assert {place, kept / "npm/_cacache/content"} == {
        path for path in kept.rglob("*") if not path.is_dir() or path.is_symlink()
    }
    assert {"wheels", "npm"} == {path.name for path in kept.iterdir()}


def test_sweep_of_a_missing_folder_is_silent(tmp_path: Path) -> None:
    """A missing folder is handled without output, and a link in its place is removed."""
    (tmp_path / "link").symlink_to(tmp_path)

    assert ([], []) == (remove_unlocked(tmp_path / "none", []), remove_unlocked(tmp_path / "link", []))
    assert not (tmp_path / "link").is_symlink()


def test_npm_uses_the_shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """npm is called with the shared cache folder and `--prefer-offline`."""
    commands = CommandRunner()
    asked: list[Sequence[str]] = []

    def remember(argv: Sequence[str], **_: object) -> None:
        asked.append(argv)
        raise RuntimeError

    monkeypatch.setattr(commands, "run", remember)
    monkeypatch.setattr(shutil, "which", lambda _: "npm")
    runtime = LockedRuntime(engine="onnxruntime-web", release="1.0")
    with pytest.raises(RuntimeError):
        NodeBuilder(commands, offline=False, npm_cache=tmp_path / "npm").build(tmp_path / "attempt", runtime, [])

    assert ["--cache", str(tmp_path / "npm"), "--prefer-offline"] == list(asked[0][asked[0].index("--cache") :][:3])


@pytest.fixture
def small(locked: Callable[[str], Locked]) -> Locked:
    """Return a real release."""
    try:
        find_interpreter("3.11", CommandRunner(), offline=True)
    except UnavailableError as error:
        pytest.skip(error.message)
    return locked("1.18.1")


@pytest.fixture(scope="module")
def filled(shared_folder: Path, locked: Callable[[str], Locked]) -> Path:
    """Return a folder with the real wheels of that release, as a first machine leaves it."""
    kept = shared_folder / "kept"
    with FileLock(shared_folder / "kept.lock"):
        Environments(shared_folder / "first machine", offline=False, shared=kept).prepare(*locked("1.18.1"))
    return kept


def _no_index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", NOWHERE)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setattr(wheels, "find_downloads", lambda *_: {})


@pytest.mark.index
def test_environment_is_built_from_cached_wheels(
    small: Locked, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is built without the index and without uv's own cache."""
    _no_index(monkeypatch, tmp_path)
    interpreter = Environments(tmp_path / "second machine", offline=False, shared=filled).prepare(*small)
    packages = interpreter.parent.parent / "lib" / "python3.11" / "site-packages"

    assert {"numpy-1.26.4", "onnxruntime-1.18.1"} == {path.stem for path in packages.glob("*.dist-info")}
    assert not any((tmp_path / "uv").rglob("*.so"))


@pytest.mark.index
@pytest.mark.parametrize("index", [True, False])
def test_poisoned_wheel_is_replaced(
    small: Locked, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: bool
) -> None:
    """A poisoned wheel is replaced from the index; without an index the runtime is unavailable."""
    kept = tmp_path / "kept"
    shutil.copytree(filled, kept)
    poisoned = next(kept.glob("wheels/*/onnxruntime-*.whl"))
    right = poisoned.read_bytes()
    poisoned.write_bytes(right[: len(right) // 2] + b"!" + right[len(right) // 2 + 1 :])
    if not index:
        _no_index(monkeypatch, tmp_path)
        with pytest.raises(UnavailableError, match=r"^packages cannot be downloaded"):
            Environments(tmp_path / "cache", offline=False, shared=kept).prepare(*small)
        return
    Environments(tmp_path / "cache", offline=False, shared=kept).prepare(*small)

    assert right == poisoned.read_bytes()
