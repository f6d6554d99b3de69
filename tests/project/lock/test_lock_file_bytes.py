"""Writing the lock."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from onnxgate.core.errors import LockError, StorageError
from onnxgate.project.lock.lock_file import load_lock, parse_lock, render_lock, write_lock
from onnxgate.project.lock.types import Lock, LockedTarget, LockedToolchain
from onnxgate.project.toml import find_key_lines, loads
from tests.harness.locks import MODEL, locks, package, runtime

LOCKS = Path(__file__).parents[3] / "fixtures" / "locks"
SAMPLE = Lock(
    targets={
        "server": LockedTarget(policy="11" * 32, runtimes=(runtime("1.19.2"), runtime("1.9.0", "1.26.4"))),
        "edge": LockedTarget(policy="22" * 32, runtimes=(runtime("1.31.1"),)),
    },
    toolchain=LockedToolchain(policy="33" * 32, python="3.11", packages={"torch": "2.13.0", "onnx": "1.23.2"}),
    models={"models/b.onnx": MODEL, "models/a.onnx": MODEL},
    packages=(
        *(package("onnxruntime", release) for release in ("1.31.1", "1.19.2", "1.9.0")),
        *(package("numpy", release) for release in ("2.4.6", "1.26.4")),
    ),
)


def test_sample() -> None:
    """The rendered text is sorted, orders releases by version, and has one line per value and wheel."""
    expected = (LOCKS / "sample.lock").read_text(encoding="utf-8")

    assert expected == render_lock(SAMPLE)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(locks)
def test_round_trip(lock: Lock) -> None:
    """A lock that is written and read again is equal to the original."""

    assert lock == parse_lock(render_lock(lock), "onnxgate.lock")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(locks)
def test_order_does_not_matter(lock: Lock) -> None:
    """The order in which tables were created does not change the rendered bytes."""
    turned = msgspec.structs.replace(
        lock,
        models=dict(reversed(lock.models.items())),
        targets=dict(reversed(lock.targets.items())),
        packages=lock.packages[::-1],
    )

    assert render_lock(lock).encode() == render_lock(turned).encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(locks)
def test_places(lock: Lock) -> None:
    """The line of each model's table is found for any model name."""
    text = render_lock(lock)
    lines, numbers = text.split("\n"), find_key_lines(text)

    for model in lock.models:
        assert model in loads(lines[numbers["models", model] - 1])["models"]


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\ufeff", "\x1b", "\x85", "\u2028", "\U000e0041", "\n"])
def test_nothing_hidden(hidden: str) -> None:
    """Invisible and bidirectional characters are written as escapes."""
    header = render_lock(Lock(models={f"a{hidden}b.onnx": MODEL})).split("[models.")[1].partition(".onnx")[0]

    assert hidden not in header
    assert header.startswith('"a\\')


def test_write(tmp_path: Path) -> None:
    """The lock is replaced atomically, and not rewritten if it is unchanged."""
    path = tmp_path / "onnxgate.lock"

    assert write_lock(SAMPLE, path)
    os.utime(path, (0, 0))
    assert not write_lock(SAMPLE, path)
    assert path.stat().st_mtime == 0
    assert load_lock(path) == parse_lock(render_lock(SAMPLE), "")
    assert list(tmp_path.iterdir()) == [path]
    assert b"\r" not in path.read_bytes()


def test_write_fails_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed write leaves the old lock and no temporary file."""
    path = tmp_path / "onnxgate.lock"
    path.write_text("old")

    def fail(self: Path, target: Path) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(StorageError, match=r"no space.*; the old lock is unchanged"):
        write_lock(SAMPLE, path)
    with pytest.raises(StorageError, match=r"no space left on device$"):
        write_lock(SAMPLE, tmp_path / "first.lock")

    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_instead_of_a_lock(tmp_path: Path) -> None:
    """The permissions of a folder are not the cause, and the hint works."""
    (tmp_path / "onnxgate.lock").mkdir()
    with pytest.raises(LockError, match=r"cannot read `onnxgate\.lock`: is a directory") as caught:
        load_lock(tmp_path / "onnxgate.lock")

    assert caught.value.hint == "rename or remove the folder `onnxgate.lock`, then run `onnxgate lock`"
