"""Files that another program changes while the static stages read them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core import files
from onnxgate.core.findings import CHANGED_FILES
from onnxgate.core.process_pool import FailedCallError, describe_failure
from onnxgate.gate import static
from onnxgate.gate.static import FileQuery, FileReading, read_model_file
from onnxgate.stages import file as file_stage
from tests.harness.locks import project_of

CONFIG = 'models = ["*.onnx"]\n[targets.t]\nruntime = "onnxruntime"\n'
ADD = """<ir_version: 8, opset_import: ["" : 17]> g (float[300] x) => (float[300] y) { y = Add(x, w) }"""
MOMENTS = [
    (file_stage, "read_model"),
    (file_stage, "check_external_data"),
    (file_stage, "check_model"),
    (file_stage, "_check_graph"),
]
"""Functions before and after which the files change."""


def truncate(path: Path) -> None:
    """Remove the second half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def grow(path: Path) -> None:
    """Append bytes to a file."""
    path.write_bytes(path.read_bytes() + bytes(8))


def replace(path: Path) -> None:
    """Replace a file by one with other content of the same size."""
    other = path.with_name("other")
    other.write_bytes(bytes(path.stat().st_size))
    other.replace(path)


def remove(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def save_model(folder: Path) -> FileQuery:
    """Save a model with external data, and return the query that reads it."""
    model = onnx.parser.parse_model(ADD)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(300, np.float32), "w"))
    onnx.save(model, folder / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    (selected,) = project_of(folder, CONFIG).models()
    return FileQuery(selected)


def read(query: FileQuery) -> FileReading | tuple[str, str]:
    """Read a model, or return the reason why it cannot be read."""
    try:
        return read_model_file(query)
    except FailedCallError as error:
        return describe_failure(error.failure, "reading the file")


@pytest.mark.parametrize("name", ["m.bin", "m.onnx"])
@pytest.mark.parametrize("change", [truncate, grow, replace, remove])
@pytest.mark.parametrize("is_before", [True, False])
@pytest.mark.parametrize(("module", "function"), MOMENTS)
def test_file_changes_while_it_is_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    change: Callable[[Path], None],
    is_before: bool,
    module: Any,
    function: str,
) -> None:
    """The model is undecided, unless all was read before or after the change."""
    query = save_model(tmp_path)
    original: Callable[..., Any] = getattr(module, function)
    changed: list[str] = []

    def run(*arguments: Any, **named: Any) -> Any:
        try:
            if is_before and not changed:
                changed.append(name)
                change(tmp_path / name)
            return original(*arguments, **named)
        finally:
            if not changed:
                changed.append(name)
                change(tmp_path / name)

    monkeypatch.setattr(module, function, run)
    answer = read(query)
    monkeypatch.undo()

    assert changed
    is_read_afterwards = is_before and function == "read_model" and name == "m.bin"
    assert answer == (read(query) if is_read_afterwards else CHANGED_FILES)


def test_file_that_is_only_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new modification time without new content does not matter."""
    query = save_model(tmp_path)
    original = static._stat_or_none

    def touch(path: Path) -> Any:
        path.touch()
        return original(path)

    monkeypatch.setattr(static, "_stat_or_none", touch)

    assert isinstance(read(query), FileReading)


def test_new_data_are_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large data that were written just before the check are not hashed again to see whether they changed."""
    query = save_model(tmp_path)
    data = tmp_path / "m.bin"
    data.write_bytes(bytes(2**21))
    if data.stat().st_ctime_ns % 10**6 == 0:
        pytest.skip("a file system that stores times in steps of milliseconds")
    monkeypatch.setattr(files, "_digests", {})
    hashed: list[int] = []

    def hash_content(*arguments: Any) -> Any:
        hashed.append(1)
        return hashlib.sha256(*arguments)

    monkeypatch.setattr(files, "hashlib", SimpleNamespace(sha256=hash_content))
    time.sleep(0.2)

    assert isinstance(read(query), FileReading)
    assert len(hashed) == 1
