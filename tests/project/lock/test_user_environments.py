"""Locking of targets with a user environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import UsageError
from onnxgate.project.config.project import Project
from onnxgate.project.config.schema import Target
from onnxgate.project.lock.comparison import policy_differences
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.pins import BuildFinder
from onnxgate.project.lock.releases import parse_upgrade
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.project.lock.update import LockUpdate, Machine, update_lock
from tests.harness.locks import MODEL, project_of

from .conftest import LocalIndex
from .test_update import no_build, no_toolchain

OWN = '[targets.own]\nruntime = "onnxruntime>=1.23"\npython = ".venv"\n'
EXTENDED = 'extensions = ["ort-extras>=0.1"]\n'


def build(release: str, extras: str = "") -> BuildFinder:
    """Return a function that finds an environment with the given releases of the engine and extension."""

    def find(target: Target) -> LockedRuntime:
        assert target.python is not None
        return LockedRuntime(
            engine="onnxruntime",
            release=release,
            packages=(f"ort-extras=={extras}",) if extras else (),
            extensions=target.extensions,
            environment=target.python,
        )

    return find


@pytest.fixture(autouse=True)
def no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the package index unreachable, because user environments need no resolution."""
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")


def relocked(project: Project, old: Lock | None, find: BuildFinder, upgrade: tuple[str, ...] = ()) -> LockUpdate:
    """Lock one model again and return the update with its notes."""
    requested = parse_upgrade(upgrade)
    entries = {"m.onnx": MODEL}
    return update_lock(project, old, entries, Machine(no_toolchain, find), upgrade=requested)


def rows(relocked: LockUpdate) -> list[str]:
    """Return the names and packages of the target's runtimes."""
    runtimes = relocked.lock.targets["own"].runtimes
    return [" ".join((runtime.name, *runtime.packages)) for runtime in runtimes]


def test_first(tmp_path: Path) -> None:
    """The installed releases of the engine and its extensions are locked, without wheels; the lock survives a round
    trip.
    """
    project = project_of(tmp_path, OWN + EXTENDED)
    actual = relocked(project, None, build("1.24.0", "0.2"))
    text = render_lock(actual.lock)

    assert rows(actual) == ["onnxruntime@.venv+ort-extras>=0.1 1.24.0 ort-extras==0.2"]
    assert (actual.lock.packages, actual.notes) == ((), ())
    assert actual.lock == parse_lock(text, "onnxgate.lock")
    assert 'release = "1.24.0", packages = ["ort-extras==0.2"], extensions = ["ort-extras>=0.1"]' in text
    assert policy_differences(project.config, actual.lock) == ()


def test_missing_environment_keeps_pins(tmp_path: Path) -> None:
    """On a machine without the environment the locked pins are kept with a note."""
    project = project_of(tmp_path, OWN)
    first = relocked(project, None, build("1.24.0"))

    again = relocked(project, first.lock, no_build)

    assert first.lock == again.lock
    assert again.notes == ("target `own`: there is no `.venv`; the locked pins are unchanged",)


def test_other_installed_release_keeps_pins(tmp_path: Path) -> None:
    """A different installed release is reported, and locked only with an explicit upgrade."""
    project = project_of(tmp_path, OWN)
    first = relocked(project, None, build("1.24.0"))

    again = relocked(project, first.lock, build("1.25.0"))

    assert first.lock == again.lock
    assert again.notes == (
        "target `own`: `.venv` has onnxruntime==1.25.0 (locked: onnxruntime==1.24.0); "
        "run `onnxgate lock --upgrade` to lock the installed versions",
    )


@pytest.mark.parametrize("upgrade", ["", "onnxruntime", "onnxruntime=1.25.0", "onnxruntime>=1.25"])
def test_upgrade(tmp_path: Path, upgrade: str) -> None:
    """An explicit upgrade locks the installed release."""
    project = project_of(tmp_path, OWN)
    first = relocked(project, None, build("1.24.0"))

    again = relocked(project, first.lock, build("1.25.0"), (upgrade,))

    assert (rows(again), again.notes) == (["onnxruntime@.venv 1.25.0"], ())


def test_upgrade_to_a_release_that_is_not_installed(tmp_path: Path) -> None:
    """An upgrade to a release other than the installed one is an error."""
    project = project_of(tmp_path, OWN)
    first = relocked(project, None, build("1.24.0"))

    with pytest.raises(UsageError):
        relocked(project, first.lock, build("1.25.0"), ("onnxruntime=1.26.0",))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (OWN.replace(">=1.23", ">=1.22"), ["onnxruntime@.venv 1.24.0"]),
        (OWN.replace(">=1.23", ">=1.25"), []),
        (OWN.replace(".venv", "other"), []),
        (OWN + EXTENDED, []),
    ],
)
def test_another_policy(tmp_path: Path, config: str, expected: list[str]) -> None:
    """A row is kept as long as it satisfies the target, even if the environment is not available."""
    first = relocked(project_of(tmp_path, OWN), None, build("1.24.0"))
    project = project_of(tmp_path, config)

    again = relocked(project, first.lock, no_build)

    assert policy_differences(project.config, first.lock)
    assert expected == rows(again)
    assert bool(policy_differences(project.config, again.lock)) == (not expected)


def test_not_locked(tmp_path: Path) -> None:
    """A required target without an installed build makes the lock stale; an optional target does not."""
    required, optional = OWN, OWN + "required = false\n"
    actual = relocked(project_of(tmp_path, required), None, no_build)

    assert (rows(actual), actual.notes) == ([], ("target `own`: there is no `.venv`; it is not locked",))
    assert policy_differences(project_of(tmp_path, required).config, actual.lock) == (
        "target `own` is locked without any runtime, because `.venv` did not contain "
        "`onnxruntime>=1.23`; install the package in this environment, or set `required = false`",
    )
    assert policy_differences(project_of(tmp_path, optional).config, actual.lock) == ()
    assert actual.lock == parse_lock(render_lock(actual.lock), "onnxgate.lock")


def test_locked_environment_instead(tmp_path: Path, local_index: LocalIndex) -> None:
    """Switching between a user environment and a locked one never reuses the other's pins."""
    for package, version in (("onnxruntime", "1.24.0"), ("onnxruntime", "1.24.1"), ("numpy", "2.4.0")):
        local_index.add(package, version, ("3.11",))
    own, made = OWN, OWN.replace('python = ".venv"\n', "")
    first = relocked(project_of(tmp_path, own), None, build("1.24.0"))

    second = relocked(project_of(tmp_path, made), first.lock, no_build)
    third = relocked(project_of(tmp_path, own), second.lock, build("1.24.0"))

    assert rows(second) == ["onnxruntime 1.24.1 numpy==2.4.0 onnxruntime==1.24.1"]
    assert first.lock == third.lock
