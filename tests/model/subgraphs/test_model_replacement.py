"""Replacement of a model file by another one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from onnxgate.model.equality.model_comparison import compare_models
from onnxgate.model.subgraphs.instrumented_models import find_unused_data, read_data_locations, replace_model
from tests.harness.models import parse, write

TEXT = "g (float[2] x) => (float[2] y) { y = Add(x, w) }"


def external(path: Path, location: str, value: float = 1.0, tensors: int = 1) -> Path:
    """Write a model with external weights; several tensors have one file each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    model = parse(TEXT)
    for index in range(tensors):
        name = "w" if index == 0 else f"w{index}"
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.full(2, value, np.float32), name))
    more = {"all_tensors_to_one_file": tensors == 1, "location": location if tensors == 1 else None}
    onnx.save(model, path, save_as_external_data=True, size_threshold=0, **more)
    return path


def files(folder: Path) -> list[str]:
    """Return the names of all files, including hidden ones."""
    return sorted(path.name for path in folder.iterdir())


def test_one_file(tmp_path: Path) -> None:
    """The file is replaced, keeps its permissions, and no temporary files remain."""
    fresh = write(tmp_path / "scratch" / "model.onnx", "g (float[N] x) => (float[N] y) { y = Tanh(x) }")
    committed = write(tmp_path / "models" / "m.onnx")
    committed.chmod(0o600)
    replace_model(fresh, committed)

    assert committed.read_bytes() == fresh.read_bytes()
    assert committed.stat().st_mode & 0o777 == 0o600
    assert files(committed.parent) == ["m.onnx"]


def test_new_model(tmp_path: Path) -> None:
    """For a new model, the folder is created and the external data is named after the model."""
    fresh = external(tmp_path / "scratch" / "model.onnx", "model.onnx.data")
    replace_model(fresh, tmp_path / "new" / "m.onnx")

    assert files(tmp_path / "new") == ["m.onnx", "m.onnx.data"]
    assert read_data_locations(tmp_path / "new" / "m.onnx") == ("m.onnx.data",)
    assert compare_models(tmp_path / "new" / "m.onnx", fresh).differences == ()


def test_data_keep_their_name(tmp_path: Path) -> None:
    """The external data keeps its file name and gets the new content."""
    committed = external(tmp_path / "models" / "m.onnx", "weights.bin", 1.0)
    fresh = external(tmp_path / "scratch" / "model.onnx", "model.onnx.data", 2.0)
    replace_model(fresh, committed)

    assert files(committed.parent) == ["m.onnx", "weights.bin"]
    assert compare_models(committed, fresh).differences == ()
    assert np.frombuffer((committed.parent / "weights.bin").read_bytes(), np.float32)[0] == 2.0


def test_many_data_files(tmp_path: Path) -> None:
    """Several data files keep the names from the new model."""
    fresh = external(tmp_path / "scratch" / "model.onnx", "", tensors=2)
    replace_model(fresh, tmp_path / "m.onnx")

    assert read_data_locations(tmp_path / "m.onnx") == ("w", "w1")
    assert compare_models(tmp_path / "m.onnx", fresh).differences == ()


def test_data_that_are_not_used_any_more(tmp_path: Path) -> None:
    """An unused data file of the old model is kept and reported."""
    committed = external(tmp_path / "models" / "m.onnx", "weights.bin")
    before = read_data_locations(committed)
    replace_model(write(tmp_path / "scratch" / "model.onnx"), committed)

    assert find_unused_data(before, committed) == ("weights.bin",)
    assert files(committed.parent) == ["m.onnx", "weights.bin"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
def test_link(tmp_path: Path) -> None:
    """If the model is a link, its target is replaced and the link stays."""
    real = write(tmp_path / "store" / "abc")
    link = tmp_path / "m.onnx"
    link.symlink_to(real)
    fresh = write(tmp_path / "scratch" / "model.onnx", "g (float[N] x) => (float[N] y) { y = Tanh(x) }")
    replace_model(fresh, link)

    assert link.is_symlink()
    assert real.read_bytes() == fresh.read_bytes()


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a file cannot be written completely, all files stay unchanged."""
    committed = external(tmp_path / "models" / "m.onnx", "weights.bin")
    before = {path.name: path.read_bytes() for path in committed.parent.iterdir()}
    fresh = external(tmp_path / "scratch" / "model.onnx", "model.onnx.data", 2.0)

    def write_half(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes()[:4])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", write_half)
    with pytest.raises(OSError, match="No space left"):
        replace_model(fresh, committed)

    assert {path.name: path.read_bytes() for path in committed.parent.iterdir()} == before


def test_invalid_model_has_no_external_data(tmp_path: Path) -> None:
    """A missing or invalid model has no external data."""
    (tmp_path / "page.onnx").write_text("<html>")

    assert read_data_locations(tmp_path / "page.onnx") == ()
    assert read_data_locations(tmp_path / "gone.onnx") == ()
