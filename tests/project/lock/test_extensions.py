"""Locking of packages that register custom operators, with the real uv and a local index."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import ConfigError, UsageError
from onnxgate.project.lock.comparison import policy_differences
from onnxgate.project.lock.lock_file import parse_lock, render_lock
from onnxgate.project.lock.types import Lock
from tests.harness.locks import project_of

from .conftest import LocalIndex, use_index
from .test_update import CONFIG, lock_first, locked, pins

WITH = CONFIG + 'extensions = ["ort-extras"]\n'
OLD = "numpy==1.26.4 onnxruntime==1.18.1 ort-extras=={}"
NEW = "numpy==2.4.0 onnxruntime==1.19.0 ort-extras=={}"


@pytest.fixture(autouse=True)
def published(local_index: LocalIndex) -> LocalIndex:
    """Publish the releases that exist at the time of the first lock."""
    for version in ("1.18.1", "1.19.0"):
        local_index.add("onnxruntime", version, ("3.11",))
    for version in ("1.26.4", "2.4.0"):
        local_index.add("numpy", version, ("3.11",))
    publish(local_index, "0.1", "0.2")
    return local_index


def publish(index: LocalIndex, *versions: str, pythons: tuple[str, ...] = ("3.11",)) -> None:
    """Publish releases of the extension."""
    for version in versions:
        index.add("ort_extras", version, pythons)
        index.files["ort-extras"] = index.files["ort_extras"]


def both(version: str) -> list[str]:
    """Return the pins of both runtimes with the given release of the extension."""
    return [OLD.format(version), NEW.format(version)]


def test_first(tmp_path: Path) -> None:
    """The newest release is pinned for each engine with its wheels; the lock survives a round trip and is not stale."""
    project = project_of(tmp_path, WITH)

    lock = locked(project)

    assert both("0.2") == pins(lock)
    assert {runtime.extensions for runtime in lock.targets["server"].runtimes} == {("ort-extras",)}
    assert [f"{package.name} {package.version}" for package in lock.packages if package.name == "ort-extras"] == [
        "ort-extras 0.2"
    ]
    assert lock == parse_lock(render_lock(lock), "onnxgate.lock")
    assert policy_differences(project.config, lock) == ()


def test_pins_stay(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A pin is kept when a newer release is published, and the index is not queried."""
    project = project_of(tmp_path, WITH)
    first = lock_first(project, published)
    publish(published, "0.3")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    asked = published.asked

    assert first == locked(project, first)
    assert asked == published.asked


def test_added_to_a_locked_target(tmp_path: Path, published: LocalIndex) -> None:
    """The lock is stale until it contains the new extension; the engine keeps its patch release."""
    before = lock_first(project_of(tmp_path, CONFIG), published)
    published.add("onnxruntime", "1.19.1", ("3.11",))
    project = project_of(tmp_path, WITH)

    after = locked(project, before)

    assert policy_differences(project.config, before)
    assert both("0.2") == pins(after)
    assert policy_differences(project.config, after) == ()


def test_removed_extension(tmp_path: Path, published: LocalIndex) -> None:
    """Removing the extension also removes its pin and wheels, and leaves the lock as if it had never been added."""
    without = lock_first(project_of(tmp_path, CONFIG), published)
    with_it = lock_first(project_of(tmp_path, WITH), published)

    assert without == locked(project_of(tmp_path, CONFIG), with_it)


@pytest.mark.parametrize(
    ("upgrade", "expected"),
    [
        ("ort-extras", "0.3"),
        ("", "0.3"),
        ("ort-extras=0.1", "0.1"),
        ("onnxruntime", "0.2"),
        ("numpy", "0.2"),
    ],
)
def test_upgrade(
    tmp_path: Path,
    published: LocalIndex,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    upgrade: str,
    expected: str,
) -> None:
    """The extension is upgraded only if `--upgrade` names it."""
    project = project_of(tmp_path, WITH)
    first = lock_first(project, published)
    publish(published, "0.3")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))

    upgraded = locked(project, first, upgrade=(upgrade,))

    assert both(expected) == pins(upgraded)
    assert policy_differences(project.config, upgraded) == ()


def test_upgrade_outside_the_requirement(tmp_path: Path, published: LocalIndex) -> None:
    """An upgrade to a release outside of the target's requirement is an error."""
    project = project_of(tmp_path, CONFIG + 'extensions = ["ort-extras<0.2"]\n')

    with pytest.raises(UsageError, match=r"`--upgrade ort-extras==0\.2`"):
        locked(project, lock_first(project, published), upgrade=("ort-extras=0.2",))


def test_targets_that_differ(tmp_path: Path) -> None:
    """The same release without extensions, with one, and with another requirement gives three runtimes with different
    names.
    """
    text = WITH + "".join(
        f'[targets.{name}]\nruntime = "onnxruntime==1.19.*"\n{rest}'
        for name, rest in (("plain", ""), ("older", 'extensions = ["ort_extras <0.2", "libs/my ops.so"]\n'))
    )
    lock = locked(project_of(tmp_path, text))
    rows = [lock.targets[name].runtimes[-1] for name in ("plain", "server", "older")]

    assert ["numpy==2.4.0 onnxruntime==1.19.0"] == pins(lock, "plain")
    assert [NEW.format("0.1")] == pins(lock, "older")
    assert [row.name for row in rows] == [
        "onnxruntime 1.19.0",
        "onnxruntime+ort-extras 1.19.0",
        "onnxruntime+ort-extras<0.2+libs/my%20ops.so 1.19.0",
    ]


def test_new_target_uses_existing_pin(tmp_path: Path, published: LocalIndex) -> None:
    """A newly added target uses the pin of another target if both have the same requirement."""
    first = lock_first(project_of(tmp_path, WITH), published)
    publish(published, "0.3")
    edge = '[targets.edge]\nruntime = "onnxruntime==1.19.*"\nextensions = ["{}"]\n'

    same = locked(project_of(tmp_path, WITH + edge.format("ort-extras")), first)
    other = locked(project_of(tmp_path, WITH + edge.format("ort-extras>=0.1")), first)

    assert [NEW.format("0.2")] == pins(same, "edge")
    assert [NEW.format("0.3")] == pins(other, "edge")


def test_releases_without_wheels_are_passed_over(tmp_path: Path, published: LocalIndex) -> None:
    """The newest release with wheels for the runtime's Python is selected."""
    publish(published, "0.9", pythons=("3.13",))

    assert both("0.2") == pins(locked(project_of(tmp_path, WITH)))


def test_no_wheels(tmp_path: Path, published: LocalIndex) -> None:
    """If no release has wheels, the error names the engine release that requires that Python."""
    publish(published, "0.9", pythons=("3.13",))
    project = project_of(tmp_path, CONFIG + 'extensions = ["ort-extras>0.5"]\n')

    with pytest.raises(ConfigError) as caught:
        locked(project)

    assert caught.value.message.startswith(
        "no release of `ort-extras>0.5` has wheels for Python 3.11, which onnxruntime 1.18.1 uses: "
    )


def test_libraries_alone(
    tmp_path: Path, published: LocalIndex, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A library needs no resolution and is locked without a pin."""
    before = lock_first(project_of(tmp_path, CONFIG), published)
    lock: Lock = locked(project_of(tmp_path, CONFIG + 'extensions = ["libs/foo.so"]\n'), before)
    use_index(monkeypatch, "http://127.0.0.1:9/simple", tmp_path_factory.mktemp("cache"))

    assert pins(before) == pins(lock)
    assert before.packages == lock.packages
    assert lock == locked(project_of(tmp_path, CONFIG + 'extensions = ["libs/foo.so"]\n'), lock)
    assert lock == parse_lock(render_lock(lock), "onnxgate.lock")
