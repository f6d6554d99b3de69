"""Stored inputs of failing cases: named by content, usable as user inputs, and limited in number."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.jobs import InputCase
from onnxgate.inputs import stored_inputs
from onnxgate.inputs.stored_inputs import store_case_inputs, touch_stored_inputs


def _case(folder: Path, **arrays: object) -> InputCase:
    paths = {}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
        paths[name] = str(folder / f"{name}.npy")
    return InputCase(name="sizes batch=1", origin="generated", inputs=paths)


def test_stored_file_works_as_inputs(tmp_path: Path) -> None:
    """An input may have a name that is also a parameter of `numpy.savez`."""
    name = store_case_inputs(
        _case(tmp_path, file=np.arange(3), words=np.array(["a", "bc"])), "models/m.onnx", tmp_path / "kept"
    )
    arrays = np.load(tmp_path / "kept" / name, allow_pickle=False)

    assert {"file": [0, 1, 2], "words": ["a", "bc"]} == {name: arrays[name].tolist() for name in arrays.files}


def test_name_follows_from_the_content(tmp_path: Path) -> None:
    """Equal inputs share one file; special characters in the model's name are replaced."""
    kept = tmp_path / "kept"
    one, same, other = (store_case_inputs(_case(tmp_path, x=np.arange(n)), "m/a b%0A.onnx", kept) for n in (3, 3, 4))

    assert (one, {one, other}) == (same, {file.name for file in kept.iterdir()})
    assert one.startswith("a_b_0A-")
    assert len(one) == len("a_b_0A-0123456789ab.npz")


def test_oldest_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The most recently used files are kept."""
    monkeypatch.setattr(stored_inputs, "MAX_STORED_FILES", 2)
    names = []
    for age, number in enumerate((3, 4, 5)):
        names.append(store_case_inputs(_case(tmp_path, x=np.arange(number)), "m.onnx", tmp_path / "kept"))
        os.utime(tmp_path / "kept" / names[-1], (1000 + age, 1000 + age))
    newest = store_case_inputs(_case(tmp_path, x=np.arange(9)), "m.onnx", tmp_path / "kept")

    assert {names[2], newest} == {file.name for file in (tmp_path / "kept").iterdir()}


def test_unwritable_cache_is_not_an_error(tmp_path: Path) -> None:
    """Nothing is stored in an unwritable cache, without an error."""
    (tmp_path / "kept").write_text("a file")

    assert store_case_inputs(_case(tmp_path, x=np.arange(3)), "m.onnx", tmp_path / "kept") == ""


def test_damaged_inputs_are_stored_again(tmp_path: Path) -> None:
    """A finding is reproduced with the inputs of its run, not with what a damaged file contains."""
    kept = tmp_path / "kept"
    other = (kept / store_case_inputs(_case(tmp_path, x=np.arange(4)), "m.onnx", kept)).read_bytes()
    case = _case(tmp_path, x=np.arange(3))
    file = kept / store_case_inputs(case, "m.onnx", kept)
    content = file.read_bytes()
    flipped = (content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in range(30, 150, 7))

    for changed in (b"", content[:-1], other, *flipped):
        file.write_bytes(changed)
        assert not touch_stored_inputs(file)
        assert store_case_inputs(case, "m.onnx", kept) == file.name
        assert touch_stored_inputs(file)
        assert file.read_bytes() == content
