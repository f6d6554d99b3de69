"""Atomic replacement of a model file."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onnxgate.commands.fix.model_file import replace_model_file
from onnxgate.core.errors import OnnxgateError
from onnxgate.core.files import sha256_of

OLD, NEW = b"the old model", b"the new model"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model in a repository."""
    path = tmp_path / "repository" / "m.onnx"
    path.parent.mkdir()
    path.write_bytes(OLD)
    return path


@pytest.fixture
def fresh(tmp_path: Path) -> Path:
    """Return the replacement."""
    path = tmp_path / "fresh"
    path.write_bytes(NEW)
    return path


def put(model: Path, fresh: Path, tmp_path: Path) -> Path:
    """Replace the model and return the path of its backup."""
    return replace_model_file(model, tmp_path / "repository", sha256_of(model), fresh, tmp_path / "backups")


def list_files(model: Path) -> list[str]:
    """Return the names of the files in the model's folder."""
    return sorted(path.name for path in model.parent.iterdir())


def test_replaced(model: Path, fresh: Path, tmp_path: Path) -> None:
    """The new file has the permissions of the old one, whose backup is outside the repository."""
    model.chmod(0o640)
    kept = put(model, fresh, tmp_path)

    assert (model.read_bytes(), kept.read_bytes()) == (NEW, OLD)
    assert stat.S_IMODE(model.stat().st_mode) == 0o640
    assert kept.is_relative_to(tmp_path / "backups")
    assert list_files(model) == ["m.onnx"]


def test_backups_are_not_overwritten(model: Path, fresh: Path, tmp_path: Path) -> None:
    """Each old content has a backup, which a later repair does not overwrite."""
    first = put(model, fresh, tmp_path)
    fresh.write_bytes(b"newer yet")
    second = put(model, fresh, tmp_path)

    assert (first.read_bytes(), second.read_bytes(), model.read_bytes()) == (OLD, NEW, b"newer yet")


def test_link_is_preserved(model: Path, fresh: Path, tmp_path: Path) -> None:
    """A link is kept, and its target is replaced."""
    link = model.with_name("link.onnx")
    link.symlink_to("m.onnx")
    put(link, fresh, tmp_path)

    assert (link.is_symlink(), model.read_bytes()) == (True, NEW)


def test_outside_is_not_written(model: Path, fresh: Path, tmp_path: Path) -> None:
    """The target of a link that leads out of the repository is not written."""
    outside = tmp_path / "outside.onnx"
    model.rename(outside)
    model.symlink_to(outside)

    with pytest.raises(OnnxgateError, match="outside the repository"):
        put(model, fresh, tmp_path)
    assert outside.read_bytes() == OLD


def test_read_only_is_respected(model: Path, fresh: Path, tmp_path: Path) -> None:
    """A read-only file is not replaced, although the permissions of its folder would allow it."""
    model.chmod(0o444)

    with pytest.raises(OnnxgateError, match="is read-only"):
        put(model, fresh, tmp_path)
    assert model.read_bytes() == OLD


def test_changed_meanwhile(model: Path, fresh: Path, tmp_path: Path) -> None:
    """A file that changed since it was read is not overwritten."""
    sha256 = sha256_of(model)
    model.write_bytes(b"somebody else's")

    with pytest.raises(OnnxgateError, match="was changed while"):
        replace_model_file(model, tmp_path / "repository", sha256, fresh, tmp_path / "backups")
    assert model.read_bytes() == b"somebody else's"


@pytest.mark.parametrize("step", ["os.fsync", "pathlib.Path.replace", "shutil.copyfile", "pathlib.Path.mkdir"])
def test_faults(step: str, model: Path, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If any step fails, the old file is unchanged and no other file is left."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(step, fail)

    with pytest.raises(OnnxgateError, match="no space left on device"):
        put(model, fresh, tmp_path)
    assert (model.read_bytes(), list_files(model)) == (OLD, ["m.onnx"])


def test_cut_copy(model: Path, fresh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that differs from the verified model does not replace the old file."""
    monkeypatch.setattr("shutil.copyfile", lambda source, target: Path(target).write_bytes(NEW[:3]))

    with pytest.raises(OnnxgateError, match="differs from the repaired model"):
        put(model, fresh, tmp_path)
    assert (model.read_bytes(), list_files(model)) == (OLD, ["m.onnx"])


KILLED = """
import sys
from pathlib import Path
from onnxgate.commands.fix.model_file import replace_model_file
from onnxgate.core.files import sha256_of
model, one, two, backups = map(Path, sys.argv[1:])
print("begun", flush=True)
while True:
    for fresh in (one, two):
        replace_model_file(model, model.parent, sha256_of(model), fresh, backups)
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGKILL")
def test_killed(model: Path, tmp_path: Path) -> None:
    """If the process is killed at any time, the file is either the old or the new one."""
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"1" * 3_000_000)
    two.write_bytes(b"2" * 3_000_000)
    model.write_bytes(one.read_bytes())
    for moment in range(4):
        arguments = [sys.executable, "-c", KILLED, *map(str, (model, one, two, tmp_path / "backups"))]
        child = subprocess.Popen(arguments, stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"begun\n"
        time.sleep(0.017 * moment)
        child.send_signal(signal.SIGKILL)
        child.communicate()

        assert model.read_bytes() in (one.read_bytes(), two.read_bytes())
