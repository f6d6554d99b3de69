"""Updating a lock, with the real uv and a local index."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from onnxgate.core import subprocesses
from onnxgate.core.errors import ConfigError, LockError, ResolutionError, UnavailableError, UsageError
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import policy_differences, toolchain_policy
from onnxgate.project.lock.lock_file import load_lock_to_update, render_lock
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
    """Publish the releases that exist at the time of the first lock."""
    for version in ("1.18.0", "1.18.1", "1.19.0", "1.20.0"):
        local_index.add("onnxruntime", version, ("3.11",))
    for version in ("1.26.4", "2.4.0"):
        local_index.add("numpy", version, ("3.11",))
    return local_index


def publish_later(index: LocalIndex, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """Publish newer patches and a newer numpy, and use an empty uv cache."""
    for version in ("1.18.2", "1.19.1", "1.20.1"):
        index.add("onnxruntime", version, ("3.11",))
    index.add("numpy", "2.5.0", ("3.11",))
    monkeypatch.setenv("UV_CACHE_DIR", str(cache))


def no_toolchain() -> LockedToolchain:
    """Raise the error of a machine without an export toolchain."""
    raise UnavailableError("no toolchain with `torch==2.13.*`")


def no_build(target: Target) -> LockedRuntime:
    """Raise the error of a machine without the target's environment."""
    raise UnavailableError(f"there is no `{target.python}`")


def locked(
    project: Project,
    old: Lock | None = None,
    *,
    offline: bool = False,
    upgrade: tuple[str, ...] = (),
    find: BuildFinder = no_build,
) -> Lock:
    """Return a new lock of one model."""
    machine = Machine(no_toolchain, find, offline)
    return update_lock(project, old, {"m.onnx": MODEL}, machine, parse_upgrade(upgrade)).lock


_FIRST_LOCKS: dict[str, Lock] = {}


def lock_first(project: Project, index: LocalIndex) -> Lock:
    """Return the first lock of a project; it is resolved once per config and set of published files."""
    question = repr((project.config, index.files))
    if question not in _FIRST_LOCKS:
        _FIRST_LOCKS[question] = locked(project)
    return _FIRST_LOCKS[question]


def pins(lock: Lock, target: str = "server") -> list[str]:
    """Return the packages of each runtime."""
    return [" ".join(runtime.packages) for runtime in lock.targets[target].runtimes]


FIRST = ["numpy==1.26.4 onnxruntime==1.18.1", "numpy==2.4.0 onnxruntime==1.19.0"]


def test_first(tmp_path: Path, published: LocalIndex) -> None:
    """The newest patch of each minor is locked with its numpy and all wheels; the lock is not stale."""
    project = project_of(tmp_path, CONFIG)

    lock = locked(project)

    assert pins(lock) == FIRST
    assert [f"{package.name} {package.version}" for package in lock.packages] == [
        "numpy 1.26.4",
        "numpy 2.4.0",
        "onnxruntime 1.18.1",
        "onnxruntime 1.19.0",
    ]
    assert policy_differences(project.config, lock) == ()


@pytest.mark.parametrize("target", ['runtime = "onnxruntime>=1.18,<1.20"', 'runtime = "onnxruntime"\npython = ".venv"'])
def test_equal_targets_ask_once(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """The number of questions, each of which starts a program, does not depend on the number of equal targets."""
    questions: list[str] = []
    run, build = subprocesses.run_supervised, LockedRuntime(engine="onnxruntime", release="1.19.0", environment=".venv")
    monkeypatch.setattr(subprocesses, "run_supervised", lambda *args, **kw: questions.append("uv") or run(*args, **kw))

    def find(target: Target) -> LockedRuntime:
        questions.append("build")
        return build

    counts, rows = [], []
    for count in (1, 5):
        config = 'models = ["m.onnx"]\n' + "".join(f"[targets.t{number}]\n{target}\n" for number in range(count))
        questions.clear()
        lock = locked(project_of(tmp_path, config), find=find)
        counts.append(len(questions))
        rows += [row.runtimes for row in lock.targets.values()]

    assert (counts[0], 1) == (counts[1], len(set(rows)))


def test_nothing_of_the_index(tmp_path: Path, published: LocalIndex) -> None:
    """The lock contains neither the index URL nor upload times."""
    text = render_lock(locked(project_of(tmp_path, CONFIG)))

    assert "127.0.0.1" not in text
    assert "http" not in text


def test_same_bytes(tmp_path: Path, published: LocalIndex) -> None:
    """Two checkouts of the same project produce identical locks."""
    folders = [tmp_path / "one", tmp_path / "another" / "deeper"]
    for folder in folders:
        folder.mkdir(parents=True)

    one, other = (render_lock(locked(project_of(folder, CONFIG))) for folder in folders)

    assert one == other


def test_pins_stay(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A pin is kept when a newer release is published, and the index is not queried."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))
    asked = published.asked

    assert first == locked(project, first)
    assert asked == published.asked


def test_pins_stay_without_an_index(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """If nothing needs to be resolved, no network is used."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    use_index(monkeypatch, "http://127.0.0.1:9/simple", tmp_path_factory.mktemp("cache"))

    assert first == locked(project, first)
    with pytest.raises(ResolutionError):
        locked(project, None)


def test_wider_range(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A wider range adds one minor; the other pins and their shared numpy are kept."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))

    second = locked(project_of(tmp_path, CONFIG.replace("<1.20", "<1.21")), first)

    assert [*FIRST, "numpy==2.4.0 onnxruntime==1.20.1"] == pins(second)


def test_narrower_range(tmp_path: Path, published: LocalIndex) -> None:
    """Pins outside of the new range are removed, with the packages that are no longer needed."""
    first = lock_first(project_of(tmp_path, CONFIG), published)

    second = locked(project_of(tmp_path, CONFIG.replace(">=1.18", ">=1.19")), first)

    assert FIRST[1:] == pins(second)
    assert [package.name for package in second.packages] == ["numpy", "onnxruntime"]


def test_a_pin_that_no_longer_fits(tmp_path: Path, published: LocalIndex) -> None:
    """A pinned patch that the policy now excludes is replaced by another patch of the same minor."""
    first = lock_first(project_of(tmp_path, CONFIG), published)

    second = locked(project_of(tmp_path, CONFIG.replace("<1.20", "<1.20,!=1.18.1")), first)

    assert ["numpy==1.26.4 onnxruntime==1.18.0", FIRST[1]] == pins(second)


def test_newest(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`newest` selects a newer release only when the policy changes."""
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
    """If `select` changes to `newest` or `all`, newer releases are added; other values keep the locked patches."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))
    text = CONFIG.replace(">=1.18,<1.20", ">=1.18.0,<1.20") + f'select = "{select}"\n'

    assert expected == pins(locked(project_of(tmp_path, text), first))


def test_pins_that_differ(tmp_path: Path, published: LocalIndex) -> None:
    """A pin is kept even if another runtime of the same kind has a different one."""
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
    """Only the named packages are upgraded."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    publish_later(published, monkeypatch, tmp_path_factory.mktemp("cache"))

    upgraded = locked(project, first, upgrade=upgrade)

    assert expected == pins(upgraded)
    assert policy_differences(project.config, upgraded) == ()


@pytest.mark.parametrize(
    ("upgrade", "hint"),
    [
        ("onnxruntime==1.31.1", "change `runtime` of a target, then run `onnxgate lock`"),
        ("openvino", "expected one of `numpy`, `onnxruntime`"),
        ("onnxruntim==1.18.1", "did you mean `--upgrade onnxruntime==1.18.1`?"),
        ("onnxruntime==9.9 bad", None),
    ],
)
def test_upgrade_outside_every_range(tmp_path: Path, published: LocalIndex, upgrade: str, hint: str | None) -> None:
    """An upgrade to a release outside of every range is an error and is not ignored."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)

    with pytest.raises(UsageError) as caught:
        locked(project, first, upgrade=(upgrade,))

    assert hint == caught.value.hint


def test_upgrade_to_missing_release(tmp_path: Path, published: LocalIndex) -> None:
    """An upgrade to a release that does not exist is an error."""
    project = project_of(tmp_path, CONFIG)

    with pytest.raises(ConfigError, match=r"1\.18\.7"):
        locked(project, lock_first(project, published), upgrade=("onnxruntime==1.18.7",))


def test_missing_wheels_are_restored(tmp_path: Path, published: LocalIndex) -> None:
    """If a merge removed the wheels of a pin, they are restored for the same version."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    published.add("onnxruntime", "1.18.2", ("3.11",))

    assert first == locked(project, msgspec.structs.replace(first, packages=first.packages[:1]))


def test_missing_row_is_resolved_again(tmp_path: Path, published: LocalIndex) -> None:
    """If a merge removed a row, it is resolved again; the remaining pin is kept even if newer releases exist."""
    project = project_of(tmp_path, CONFIG)
    first = lock_first(project, published)
    text = render_lock(first)
    project.lock_path.write_text(text.replace(next(line for line in text.splitlines(True) if '"1.18.1"' in line), ""))
    published.add("onnxruntime", "1.19.1", ("3.11",))

    lost, damages = load_lock_to_update(project.lock_path, repair=True)
    again = locked(project, lost)

    assert damages == ("target `server` does not match `resolved`: a line was changed or removed",)
    assert pins(lost) == FIRST[1:]
    assert first == again


def test_targets_follow_the_config(tmp_path: Path, published: LocalIndex) -> None:
    """New targets are added, removed ones are deleted, and the others are kept."""
    first = lock_first(project_of(tmp_path, CONFIG), published)
    renamed = CONFIG + '[targets.edge]\nruntime = "onnxruntime==1.20.*"\n'

    second = locked(project_of(tmp_path, renamed), first)

    assert (pins(second), pins(second, "edge")) == (FIRST, ["numpy==2.4.0 onnxruntime==1.20.0"])
    assert first == locked(project_of(tmp_path, CONFIG), second)


def test_toolchain(tmp_path: Path, published: LocalIndex) -> None:
    """The toolchain that is found is locked; if there is none, the locked toolchain is kept with a note."""
    project = project_of(tmp_path, CONFIG + '[toolchain]\nrequires = ["torch==2.13.*"]\n')

    lock = update_lock(project, None, {}, Machine(lambda: TOOLCHAIN, no_build))
    kept = update_lock(project, lock.lock, {}, Machine(no_toolchain, no_build))
    none = update_lock(project, None, {}, Machine(no_toolchain, no_build))

    assert msgspec.structs.replace(TOOLCHAIN, policy=toolchain_policy(project.config.toolchain)) == lock.lock.toolchain
    assert lock.lock == kept.lock
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
    """A different toolchain is locked after an upgrade or a changed requirement, and reported with a note otherwise."""
    text = CONFIG + '[toolchain]\nrequires = ["{}"]\n'
    before = project_of(tmp_path, text.format("torch==2.13.*"))
    first = update_lock(before, None, {}, Machine(lambda: TOOLCHAIN, no_build)).lock
    project = project_of(tmp_path, text.format(requires))

    requested = parse_upgrade(upgrade)
    again = update_lock(project, first, {}, Machine(lambda: NEWER, no_build), upgrade=requested)

    assert again.lock.toolchain is not None
    assert again.lock.toolchain.packages == expected.packages
    assert again.notes == (
        ()
        if expected is NEWER
        else (
            "the installed toolchain differs from the locked one: Python 3.12 (locked: 3.11), "
            "torch 2.13.1 (locked: 2.13.0); run `onnxgate lock --upgrade torch` to lock the installed toolchain",
        )
    )


def test_no_toolchain_needed(tmp_path: Path, published: LocalIndex) -> None:
    """A project that exports no models has no toolchain, and none is searched."""
    project = project_of(tmp_path, CONFIG)

    relocked = update_lock(project, Lock(toolchain=TOOLCHAIN), {}, Machine(no_toolchain, no_build))

    assert (relocked.lock.toolchain, relocked.notes) == (None, ())


def test_some_models() -> None:
    """The given entries are rewritten, those of removed models are deleted, and everything else is kept."""
    other = msgspec.structs.replace(MODEL, sha256="dd" * 32)
    old = Lock(models={"a.onnx": MODEL, "b.onnx": MODEL, "c.onnx": MODEL}, toolchain=TOOLCHAIN)
    entries: dict[str, LockedModel] = {"b.onnx": other, "d.onnx": other}

    new = update_lock_models(old, entries, removed=("c.onnx",)).lock

    assert {"a.onnx": MODEL, "b.onnx": other, "d.onnx": other} == new.models
    assert msgspec.structs.replace(old, models=new.models) == new


def test_updating_models_requires_a_lock() -> None:
    """Updating single models requires a lock."""
    with pytest.raises(LockError) as caught:
        update_lock_models(None, {})

    assert caught.value.hint == "run `onnxgate lock` without paths"
