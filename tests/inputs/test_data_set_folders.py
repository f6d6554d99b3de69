"""Inputs in folders in the format of ONNX's test data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.numpy_helper
import pytest

from onnxgate.core.errors import ConfigError
from onnxgate.inputs.case_files import find_unread_outputs, read_user_cases
from tests.inputs.test_user_files import FACTS

ARRAYS = {
    "ids": np.arange(6, dtype=np.int64).reshape(2, 3),
    "x": np.ones((2, 3), np.float32),
    "words": np.array(["a", "long word"][1:], dtype=object),
}


def _write(folder: Path, names: tuple[str, ...], order: tuple[str, ...] = tuple(ARRAYS)) -> None:
    folder.mkdir()
    for index, (name, key) in enumerate(zip(names, order, strict=True)):
        tensor = onnx.numpy_helper.from_array(ARRAYS[key], name)
        (folder / f"input_{index}.pb").write_bytes(tensor.SerializeToString())
    (folder / "output_0.pb").write_bytes(b"not read")


def _problem(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_user_cases(FACTS, "test_data_set_*", folder, folder, folder / "cases")
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("ids", "x", "words"), ("ids", "x", "words")),
        (("words", "ids", "x"), ("words", "ids", "x")),
        (("", "", ""), ("ids", "x", "words")),
        (("in_0", "in_1", "in_2"), ("ids", "x", "words")),
    ],
)
def test_by_name_else_by_order(names: tuple[str, ...], order: tuple[str, ...], tmp_path: Path) -> None:
    """Tensors are matched by name if their names are the model's, and otherwise by order."""
    _write(tmp_path / "test_data_set_0", names, order)
    (case,) = read_user_cases(FACTS, "test_data_set_*", tmp_path, tmp_path, tmp_path / "cases")

    assert (case.name, case.sizes) == ("test_data_set_0", {"batch": 2, "ids[1]": 3})
    assert {name: array.tolist() for name, array in ARRAYS.items()} == {
        name: np.load(path, allow_pickle=False).tolist() for name, path in case.inputs.items()
    }


def test_order_is_that_of_numbers(tmp_path: Path) -> None:
    """Files are in numerical order: `input_10.pb` follows `input_9.pb`."""
    _write(tmp_path / "test_data_set_0", ("", "", ""))
    for old, new in ((0, 8), (1, 9), (2, 10)):
        (tmp_path / "test_data_set_0" / f"input_{old}.pb").rename(tmp_path / "test_data_set_0" / f"input_{new}.pb")
    (case,) = read_user_cases(FACTS, "test_data_set_*", tmp_path, tmp_path, tmp_path / "cases")

    assert np.load(case.inputs["words"], allow_pickle=False).tolist() == ["long word"]


def test_invalid_data_set_is_reported(tmp_path: Path) -> None:
    """Missing inputs, invalid tensors and missing files are reported."""
    folder = tmp_path / "test_data_set_0"
    folder.mkdir()
    assert _problem(tmp_path) == "`test_data_set_0`: is a folder without `input_0.pb`"
    (folder / "input_0.pb").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "`input_0.pb` is not a valid tensor" in _problem(tmp_path)
    tensor = onnx.numpy_helper.from_array(ARRAYS["ids"], "other")
    (folder / "input_0.pb").write_bytes(tensor.SerializeToString())
    assert _problem(tmp_path) == "`test_data_set_0`: has 1 input, but the model has 3"


def test_unused_expected_outputs_are_reported(tmp_path: Path) -> None:
    """Stored expected outputs are reported as unused, so that users do not expect a comparison."""
    _write(tmp_path / "test_data_set_0", tuple(ARRAYS))

    assert find_unread_outputs("test_data_set_*", tmp_path) == "test_data_set_0"
    (tmp_path / "test_data_set_0" / "output_0.pb").unlink()
    assert find_unread_outputs("test_data_set_*", tmp_path) == ""
