"""Special files in the place of models or their data are reported; they are not read and do not block."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from campaigns.fuzz.large_models import external_model
from onnxgate.core.files import open_regular
from onnxgate.core.findings import CHANGED_FILES
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from tests.conftest import ROOT
from tests.harness.models import write

PATIENCE_S = 60
FAR = 100 * 2**30


def pipe(path: Path) -> None:
    """Create a pipe without a writer."""
    os.mkfifo(path)


def device(path: Path) -> None:
    """Create a link to a device with endless content."""
    path.symlink_to("/dev/zero")


def listening(path: Path) -> None:
    """Create a socket."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # socket paths have a length limit


def ring(path: Path) -> None:
    """Create a link to itself."""
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    """Create a link to a file that does not exist."""
    path.symlink_to("gone")


def sparse(path: Path) -> None:
    """Create a sparse file of 100 GiB."""
    with path.open("wb") as file:
        file.truncate(FAR)


def unreadable(path: Path) -> None:
    """Create a model without read permission."""
    write(path)
    path.chmod(0)


def folder(path: Path) -> None:
    """Create a folder."""
    path.mkdir()


def run(place: Path, *arguments: str) -> tuple[int, str]:
    """Return the exit status and the output of a command."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ONNXGATE_CACHE_DIR": str(place / ".cache")}
    words = [sys.executable, "-m", "onnxgate", *arguments]
    result = subprocess.run(
        words, cwd=place, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    return result.returncode, result.stdout + result.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


AS_MODELS = {
    pipe: "is not a regular file, not an ONNX model",
    device: "is not a regular file, not an ONNX model",
    listening: "is not a regular file, not an ONNX model",
    sparse: "is a file that contains only null bytes, not an ONNX model",
    dangling: "does not exist",
    folder: "is a folder, not an ONNX model",
    ring: "the file cannot be opened: too many levels of symbolic links",
}
AS_DATA = {
    pipe: "is not a regular file",
    device: "which is a link to a file outside the model's folder",
    listening: "is not a regular file",
    folder: "is a folder",
    dangling: "which is missing",
    ring: "which is missing",
}


def check_messages(place: Path) -> dict[str, str]:
    """Return the messages of a failing check of all models in the folder, by model."""
    status, output = run(place, "check", "--static", "--output", "json", ".")
    report = json.loads(output)
    actual: dict[str, str] = {}
    for finding in report["findings"]:
        actual[finding["model"]] = f"{actual.get(finding['model'], '')}{finding['message']}\n"
    for entry in report["undecided"]:
        actual[entry["model"]] = f"{actual.get(entry['model'], '')}{entry['reason']}\n"
    assert status == 1
    return actual


def test_as_models(place: Path) -> None:
    """The message of each special file describes its type."""
    write(place / "good.onnx")
    for make in AS_MODELS:
        make(place / f"{make.__name__}.onnx")
    actual = check_messages(place)

    assert [make.__name__ for make, words in AS_MODELS.items() if words not in actual[f"{make.__name__}.onnx"]] == []


@pytest.mark.parametrize("make", [dangling, ring])
def test_named_and_not_there(make: Callable[[Path], None], place: Path) -> None:
    """A link without a target is a usage error if it is named on the command line."""
    make(place / "m.onnx")

    status, output = run(place, "check", "--static", "m.onnx")

    assert (status, output.splitlines()[0]) == (
        2,
        "error: `m.onnx` is a symbolic link to a file that does not exist",
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (pipe, "`m.onnx` cannot be read as a model: it is not a regular file"),
        (ring, "`m.onnx` cannot be read: too many levels of symbolic links"),
        (sparse, "`m.onnx` cannot be read as a model: it is a file that contains only null bytes"),
    ],
)
def test_in_a_difference(make: Callable[[Path], None], words: str, place: Path) -> None:
    """`diff` reports special files too, and its textconv driver does not raise."""
    make(place / "m.onnx")
    write(place / "good.onnx")

    status, output = run(place, "diff", "good.onnx", "m.onnx")

    assert (status, words in output) == (2, True)
    assert "Traceback" not in run(place, "diff", "--textconv", "m.onnx")[1]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_a_finding(place: Path) -> None:
    """A file without read permission is a finding."""
    unreadable(place / "m.onnx")

    ended, output = run(place, "check", "--static", "m.onnx")

    assert (ended, "permission denied" in output) == (1, True)


def test_as_data(place: Path) -> None:
    """External data that are not a regular file fail the check and are not opened."""
    for make in AS_DATA:
        make(place / f"{make.__name__}.bin")
        (place / f"{make.__name__}.onnx").write_bytes(external_model(location=f"{make.__name__}.bin"))
    actual = check_messages(place)

    assert [make.__name__ for make, words in AS_DATA.items() if words not in actual[f"{make.__name__}.onnx"]] == []


def test_a_pipe_in_the_place_of_a_file(place: Path) -> None:
    """If a pipe replaces a file after it was checked, reading it does not block."""
    pipe(place / "m.onnx")

    with pytest.raises(OSError, match="not a regular file"):
        open_regular(place / "m.onnx")
    with pytest.raises(OSError, match="not a regular file"):
        read_structure(place / "m.onnx")


@pytest.fixture
def restless(place: Path) -> Iterator[Path]:
    """Yield a model that another thread keeps truncating, extending and replacing."""
    path = write(place / "m.onnx")
    whole, ended = path.read_bytes(), threading.Event()

    def change() -> None:
        for count in range(10**9):
            if ended.is_set():
                return
            if count % 3 == 0:
                path.write_bytes(whole[: count % len(whole)])
            elif count % 3 == 1:
                path.write_bytes(whole + b"\x0a" * 100)
            else:
                write(place / "other").replace(path)

    thread = threading.Thread(target=change)
    thread.start()
    yield path
    ended.set()
    thread.join()


@pytest.mark.parametrize("large_bytes", [0, 10**9])
def test_a_file_that_changes(restless: Path, large_bytes: int) -> None:
    """Each read returns a model or raises `UnreadableModel`."""
    until = time.monotonic() + 0.5
    read = 0
    while time.monotonic() < until or not read:
        with contextlib.suppress(UnreadableModel):
            read_structure(restless, large_bytes=large_bytes, small_bytes=8)
        read += 1

    assert read


def test_a_file_that_changes_under_the_gate(restless: Path) -> None:
    """The check has a verdict for one version of the file, or is undecided because the file changed."""
    ended, output = run(restless.parent, "check", "--static", "m.onnx")

    assert ended in (0, 1) or (ended == 3 and CHANGED_FILES[0] in output)
    assert "bug in onnxgate" not in output
    assert "Traceback" not in output
