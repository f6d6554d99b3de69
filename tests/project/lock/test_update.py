"""Making a new lock from an old one, with the real uv on an index of our own making."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from onnxgate.core.errors import ConfigError, LockError, ResolutionError, UnavailableError, UsageError
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import policy_differences, toolchain_policy
from onnxgate.project.lock.lock_file import render_lock
from onnxgate.project.lock.pins import BuildFinder
from onnxgate.project.lock.releases import parse_upgrade
from onnxgate.project.lock.types import Lock, LockedModel, LockedRuntime, LockedToolchain
from onnxgate.project.lock.update import Machine, update_lock, update_lock_models
from tests.harness.locks import MODEL, project_of

from .conftest import LocalIndex, use_index

CONFIG = """
models = ["m.onnx"]
[targets.server]
runtime = "onnxruntime>=1.18,<1.20"
"""
TOOLCHAIN = LockedToolchain(policy="?", python="3.11", packages={"torch": "2.13.0"})


@pytest.fixture
def published(local_index: LocalIndex) -> LocalIndex:
    """Releases as they were on the day of the first lock."""
    for version in ("1.18.0", "1.18.1", "1.19.0", "1.20.0"):
        local_index.add("onnxruntime", version, ("3.11",))
    for version in ("1.26.4", "2.4.0"):
        local_index.add("numpy", version, ("3.11",))
    return local_index


def publish_later(index: LocalIndex, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Newer patches and a newer numpy, that an index without a cache has."""
    for version in ("1.18.2", "1.19.1", "1.20.1"):
        index.add("onnxruntime", version, ("3.11",))
    index.add("numpy", "2.5.0", ("3.11",))
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))


def no_toolchain() -> LockedToolchain:
    """A machine without what models are exported with."""
    raise UnavailableError("no toolchain with `torch==2.13.*`")


def no_build(target: Target) -> LockedRuntime:
    """A machine without the environment of a target."""
    raise UnavailableError(f"there is no `{target.python}`")


def locked(
    project: Project,
    old: Lock | None = None,
    *,
    offline: bool = False,
    upgrade: tuple[str, ...] = (),
    find: BuildFinder = no_build,
) -> Lock:
    """A new lock of one model."""
    machine = Machine(no_toolchain, find, offline)
    return update_lock(project, old, {"m.onnx": MODEL}, machine, parse_upgrade(upgrade)).lock


_FIRST_LOCKS: dict[str, Lock] = {}


def lock_first(project: Project, index: LocalIndex) -> Lock:
    """Return the lock of a project that has none; uv resolves it once for the same config and files."""
    question = repr((project.config, index.files))
    if question not in _FIRST_LOCKS:
        _FIRST_LOCKS[question] = locked(project)
    return _FIRST_LOCKS[question]


def pins(lock: Lock, target: str = "server") -> list[str]:
    """Each runtime's packages."""
    return [" ".join(runtime.packages) for runtime in lock.targets[target].runtimes]


FIRST = ["numpy==1.26.4 onnxruntime==1.18.1", "numpy==2.4.0 onnxruntime==1.19.0"]


def test_first(tmp_path: Path, published: LocalIndex) -> None:
    """The newest patch of each minor, with its numpy, and the wheels of both; the lock is current at once."""
    project = project_of(tmp_path, CONFIG)

    lock = locked(project)

    assert pins(lock) == FIRST
    assert [f"{each.name} {each.version}" for each in lock.packages] == [
        "numpy 1.26.4",
        "numpy 2.4.0",
        "onnxruntime 1.18.1",
        "onnxruntime 1.19.0",
    ]
    assert policy_differences(project.config, lock) == ()


def test_nothing_of_the_index(tmp_path: Path, published: LocalIndex) -> None:
    """Neither where the index is nor when something was published is in the lock."""
    text = render_lock(locked(project_of(tmp_path, CONFIG)))

    assert "127.0.0.1" not in text
    assert "http" not in text


def test_same_bytes(tmp_path: Path, published: LocalIndex) -> None:
    """Two checkouts get the same bytes."""
    folders = [tmp_path / "one", tmp_path / "another" / "deeper"]
    for folder in folders:
        folder.mkdir(parents=True)

    one, other = (render_lock(locked(project_of(folder, CONFIG))) for folder in folders)

    assert one == other


def test_pins_stay(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A pin stays when a newer release comes out, and no index is asked."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))
    asked = published.asked

    assert first == locked(project, first)
    assert asked == published.asked


def test_pins_stay_without_an_index(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Where nothing must be resolved, no network is needed."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    use_index(monkeypatch, "http://127.0.0.1:9/simple", tmp_path_factory.mktemp("cache"))

    assert first == locked(project, first)
    with pytest.raises(ResolutionError):
        locked(project, None)


def test_wider_range(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A policy that takes one more minor adds it; the other pins stay, and so does the numpy that they share."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))

    second = locked(project_of(tmp_path, CONFIG.replace("<1.20", "<1.21")), first)

    assert [*FIRST, "numpy==2.4.0 onnxruntime==1.20.1"] == pins(second)


def test_narrower_range(tmp_path: Path, published: LocalIndex) -> None:
    """Pins that no longer fit go, with packages that nothing else needs."""
    first = lock_first(project_of(tmp_path, CONFIG), published)

    second = locked(project_of(tmp_path, CONFIG.replace(">=1.18", ">=1.19")), first)

    assert FIRST[1:] == pins(second)
    assert [each.name for each in second.packages] == ["numpy", "onnxruntime"]


def test_a_pin_that_no_longer_fits(tmp_path: Path, published: LocalIndex) -> None:
    """A patch that the policy excludes is replaced by another one of its minor."""
    first = lock_first(project_of(tmp_path, CONFIG), published)

    second = locked(project_of(tmp_path, CONFIG.replace("<1.20", "<1.20,!=1.18.1")), first)

    assert ["numpy==1.26.4 onnxruntime==1.18.0", FIRST[1]] == pins(second)


def test_newest(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`newest` takes the newest when its policy changes, and not before."""
    config = CONFIG + 'select = "newest"\n'
    first = lock_first(project_of(tmp_path, config), published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))

    assert ["numpy==2.4.0 onnxruntime==1.19.0"] == pins(first) == pins(locked(project_of(tmp_path, config), first))
    assert pins(locked(project_of(tmp_path, config.replace("<1.20", "<1.21")), first)) == [
        "numpy==2.4.0 onnxruntime==1.20.1"
    ]


@pytest.mark.parametrize(
    ("select", "expected"),
    [
        ("newest", ["numpy==2.4.0 onnxruntime==1.19.1"]),
        (
            "all",
            [f"numpy==1.26.4 onnxruntime==1.18.{patch}" for patch in (0, 1, 2)]
            + [f"numpy==2.4.0 onnxruntime==1.19.{patch}" for patch in (0, 1)],
        ),
        ("bounds", FIRST),
        ("minors", FIRST),
    ],
)
def test_selection_changes(
    tmp_path: Path,
    published: LocalIndex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    select: str,
    expected: list[str],
) -> None:
    """Another policy over the same range: who asks for the newest or for all gets it, else a minor keeps its patch."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))
    text = CONFIG.replace(">=1.18,<1.20", ">=1.18.0,<1.20") + f'select = "{select}"\n'

    assert expected == pins(locked(project_of(tmp_path, text), first))


def test_pins_that_differ(tmp_path: Path, published: LocalIndex) -> None:
    """A pin stays though another runtime of its kind has another one."""
    config = CONFIG.replace("<1.20", "<1.21")
    first = lock_first(project_of(tmp_path, config), published)
    mixed = locked(project_of(tmp_path, config), first, upgrade=("numpy<2",))
    target = mixed.targets["server"]
    own = msgspec.structs.replace(target.runtimes[2], packages=first.targets["server"].runtimes[2].packages)
    old = msgspec.structs.replace(
        mixed,
        targets={"server": msgspec.structs.replace(target, runtimes=(*target.runtimes[:2], own))},
        packages=tuple(sorted({*mixed.packages, *first.packages}, key=lambda each: (each.name, each.version))),
    )

    again = locked(project_of(tmp_path, config), old)

    assert pins(again) == [
        FIRST[0],
        "numpy==1.26.4 onnxruntime==1.19.0",
        "numpy==2.4.0 onnxruntime==1.20.0",
    ]


@pytest.mark.parametrize(
    ("upgrade", "expected"),
    [
        (("",), ["numpy==1.26.4 onnxruntime==1.18.2", "numpy==2.5.0 onnxruntime==1.19.1"]),
        (("onnxruntime",), ["numpy==1.26.4 onnxruntime==1.18.2", "numpy==2.4.0 onnxruntime==1.19.1"]),
        (("onnxruntime=1.19.1",), [FIRST[0], "numpy==2.4.0 onnxruntime==1.19.1"]),
        (("onnxruntime==1.18.0",), ["numpy==1.26.4 onnxruntime==1.18.0", FIRST[1]]),
        (("onnxruntime<1.19",), ["numpy==1.26.4 onnxruntime==1.18.2", FIRST[1]]),
        (("numpy",), [FIRST[0], "numpy==2.5.0 onnxruntime==1.19.0"]),
        (("numpy<2",), [FIRST[0], "numpy==1.26.4 onnxruntime==1.19.0"]),
        (("numpy", "onnxruntime=1.19.1"), [FIRST[0], "numpy==2.5.0 onnxruntime==1.19.1"]),
    ],
)
def test_upgrade(
    tmp_path: Path,
    published: LocalIndex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    upgrade: tuple[str, ...],
    expected: list[str],
) -> None:
    """What is named gives up its pins, and nothing else does."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))

    upgraded = locked(project, first, upgrade=upgrade)

    assert expected == pins(upgraded)
    assert policy_differences(project.config, upgraded) == ()


@pytest.mark.parametrize("upgrade", ["onnxruntime==1.31.1", "openvino", "onnxruntime==9.9 bad"])
def test_upgrade_that_nobody_takes(tmp_path: Path, published: LocalIndex, upgrade: str) -> None:
    """A release outside of every range is an error, and not silently left out."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)

    with pytest.raises(UsageError):
        locked(project, first, upgrade=(upgrade,))


def test_upgrade_to_what_is_not_there(tmp_path: Path, published: LocalIndex) -> None:
    """A release inside the range that does not exist."""
    project = project_of(tmp_path, CONFIG)

    with pytest.raises(ConfigError, match=r"1\.18\.7"):
        locked(project, lock_first(project, published), upgrade=("onnxruntime==1.18.7",))


def test_lost_wheels(tmp_path: Path, published: LocalIndex) -> None:
    """A pin whose wheels a merge lost gets them back, at the same version."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    published.add("onnxruntime", "1.18.2", ("3.11",))

    assert first == locked(project, msgspec.structs.replace(first, packages=first.packages[:1]))


def test_lost_rows(tmp_path: Path, published: LocalIndex) -> None:
    """A row that a merge lost is resolved anew; the pin that is left stays, whatever has been released since."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    target = first.targets["server"]
    lost = msgspec.structs.replace(target, runtimes=target.runtimes[1:])
    published.add("onnxruntime", "1.19.1", ("3.11",))

    again = locked(project, msgspec.structs.replace(first, targets={"server": lost}))

    assert pins(again) == FIRST
    assert first == again


def test_targets_of_the_config_alone(tmp_path: Path, published: LocalIndex) -> None:
    """A target that is new is added, one that is gone is taken out, the other stays."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    renamed = CONFIG + '[targets.edge]\nruntime = "onnxruntime==1.20.*"\n'

    second = locked(project_of(tmp_path, renamed), first)

    assert (pins(second), pins(second, "edge")) == (FIRST, ["numpy==2.4.0 onnxruntime==1.20.0"])
    assert first == locked(project_of(tmp_path, CONFIG), second)


def test_toolchain(tmp_path: Path, published: LocalIndex) -> None:
    """The toolchain that is found is locked; where none is, the locked one stays, and that is said."""
    project = project_of(tmp_path, CONFIG + '[toolchain]\nrequires = ["torch==2.13.*"]\n')

    found = update_lock(project, None, {}, Machine(lambda: TOOLCHAIN, no_build))
    kept = update_lock(project, found.lock, {}, Machine(no_toolchain, no_build))
    none = update_lock(project, None, {}, Machine(no_toolchain, no_build))

    assert msgspec.structs.replace(TOOLCHAIN, policy=toolchain_policy(project.config.toolchain)) == found.lock.toolchain
    assert found.lock == kept.lock
    assert kept.notes == ("no toolchain with `torch==2.13.*`; the locked toolchain is unchanged",)
    assert (none.lock.toolchain, none.notes) == (
        None,
        ("no toolchain with `torch==2.13.*`; the toolchain is not locked",),
    )
    assert policy_differences(project.config, none.lock)


NEWER = LockedToolchain(policy="?", python="3.12", packages={"torch": "2.13.1"})


@pytest.mark.parametrize(
    ("upgrade", "requires", "expected"),
    [
        ((), "torch==2.13.*", TOOLCHAIN),
        (("onnxruntime",), "torch==2.13.*", TOOLCHAIN),
        (("",), "torch==2.13.*", NEWER),
        (("torch",), "torch==2.13.*", NEWER),
        (("torch=2.13.1",), "torch==2.13.*", NEWER),
        ((), "torch>=2.13", NEWER),
    ],
)
def test_another_toolchain(
    tmp_path: Path, published: LocalIndex, upgrade: tuple[str, ...], requires: str, expected: LockedToolchain
) -> None:
    """A machine with another toolchain changes the lock where that is asked for, and is told of otherwise."""
    text = CONFIG + '[toolchain]\nrequires = ["{}"]\n'
    before = project_of(tmp_path, text.format("torch==2.13.*"))
    first = update_lock(before, None, {}, Machine(lambda: TOOLCHAIN, no_build)).lock
    project = project_of(tmp_path, text.format(requires))

    asked = parse_upgrade(upgrade)
    again = update_lock(project, first, {}, Machine(lambda: NEWER, no_build), upgrade=asked)

    assert again.lock.toolchain is not None
    assert again.lock.toolchain.packages == expected.packages
    assert again.notes == (
        ()
        if expected is NEWER
        else (
            "the installed toolchain differs from the locked one: Python 3.12 (locked: 3.11), "
            "torch 2.13.1 (locked: 2.13.0); run `onnxgate lock --upgrade` to lock it",
        )
    )


def test_no_toolchain_needed(tmp_path: Path, published: LocalIndex) -> None:
    """A project that exports nothing has no toolchain, and none is looked for."""
    project = project_of(tmp_path, CONFIG)

    relocked = update_lock(project, Lock(toolchain=TOOLCHAIN), {}, Machine(no_toolchain, no_build))

    assert (relocked.lock.toolchain, relocked.notes) == (None, ())


def test_some_models() -> None:
    """Entries of some models are rewritten, those of vanished ones taken out, all else is as it was."""
    other = msgspec.structs.replace(MODEL, sha256="dd" * 32)
    old = Lock(models={"a.onnx": MODEL, "b.onnx": MODEL, "c.onnx": MODEL}, toolchain=TOOLCHAIN)
    entries: dict[str, LockedModel] = {"b.onnx": other, "d.onnx": other}

    new = update_lock_models(old, entries, removed=("c.onnx",)).lock

    assert {"a.onnx": MODEL, "b.onnx": other, "d.onnx": other} == new.models
    assert msgspec.structs.replace(old, models=new.models) == new


def test_some_models_of_no_lock() -> None:
    """Without a lock there is nothing to keep."""
    with pytest.raises(LockError) as caught:
        update_lock_models(None, {})

    assert caught.value.hint == "run `onnxgate lock` without paths"
