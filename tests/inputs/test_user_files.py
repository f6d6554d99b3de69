"""User inputs: reading, and complete reports of mismatches with the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgate.core.errors import ConfigError
from onnxgate.inputs.case_files import read_user_cases
from onnxgate.model.facts import ModelFacts, ValueInfo

FACTS = ModelFacts(
    path="models/m.onnx",
    sha256="",
    size_bytes=0,
    ir_version=8,
    opsets={},
    producer="",
    inputs=(
        ValueInfo("ids", "tensor(int64)", ("batch", "?")),
        ValueInfo("x", "tensor(float)", ("batch", 3)),
        ValueInfo("words", "tensor(string)", (1,)),
    ),
    outputs=(),
    operators={},
    metadata_keys=(),
)


def _save(folder: Path, name: str, **changed: Any) -> None:
    arrays = {
        "ids": np.zeros((2, 5), np.int64),
        "x": np.ones((2, 3), np.float32),
        "words": np.array(["a long word"]),
        **changed,
    }
    np.savez(folder / name, **{key: value for key, value in arrays.items() if value is not None})


def _problems(folder: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        read_user_cases(FACTS, "*.npz", folder, folder, folder / "cases")
    return caught.value.problems


def test_one_file_is_one_case(tmp_path: Path) -> None:
    """Cases are in the order of the file names, with the sizes of their arrays."""
    _save(tmp_path, "b.npz", ids=np.zeros((4, 7), np.int64), x=np.ones((4, 3), np.float32))
    _save(tmp_path, "a.npz")
    cases = read_user_cases(FACTS, "*.npz", tmp_path, tmp_path, tmp_path / "cases")

    assert [(case.name, case.origin) for case in cases] == [("a.npz", "user"), ("b.npz", "user")]
    assert cases[1].sizes == {"batch": 4, "ids[1]": 7}
    assert np.array_equal(np.ones((4, 3), np.float32), np.load(cases[1].inputs["x"], allow_pickle=False))


@pytest.mark.parametrize(
    ("pattern", "link"),
    [
        ("linked/*.npz", "linked"),
        ("link*.npz", "link.npz"),
        ("../*.npz", ""),
        ("test_data_set_*", "test_data_set_0/input_0.pb"),
    ],
)
def test_files_outside_of_the_repository(tmp_path: Path, pattern: str, link: str) -> None:
    """Files outside of the repository are neither read nor named, even through links; the link is named."""
    inside = tmp_path / "inside"
    (inside / "test_data_set_0").mkdir(parents=True)
    _save(tmp_path, "secret.npz")
    (inside / "linked").symlink_to(tmp_path)
    (inside / "link.npz").symlink_to(tmp_path / "secret.npz")
    (inside / "test_data_set_0" / "input_0.pb").symlink_to(tmp_path / "secret.npz")
    with pytest.raises(ConfigError) as caught:
        read_user_cases(FACTS, pattern, inside, inside, inside / "cases")

    through = f" through the link `{link}`" if link else ""
    assert caught.value.message.endswith(f"`{pattern}` matches files outside of the repository{through}")


def test_loop_of_links(tmp_path: Path) -> None:
    """A loop of links cannot be searched."""
    (tmp_path / "loop.npz").symlink_to("loop.npz")

    with pytest.raises(ConfigError):
        read_user_cases(FACTS, "*.npz", tmp_path, tmp_path, tmp_path / "cases")


def test_all_mistakes_are_reported(tmp_path: Path) -> None:
    """Missing and unknown names, types and shapes are reported for every file."""
    _save(tmp_path, "a.npz", x=None, mask=np.zeros(2), ids=np.zeros((2, 5), np.int32))
    _save(tmp_path, "b.npz", x=np.ones((2, 4), np.float32))

    assert _problems(tmp_path) == (
        "`a.npz`: has no array for input `x`",
        "`a.npz`: contains `mask`, which is not an input of the model",
        "`a.npz`: `ids` has type int32, but the model expects int64",
        "`b.npz`: `x` has shape (2, 4), but the model expects (batch, 3)",
    )


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    """Pickled arrays are rejected, so that a file cannot execute code."""
    _save(tmp_path, "a.npz", words=np.array(["a"], dtype=object))

    (problem,) = _problems(tmp_path)
    assert "`a.npz`: cannot be read" in problem


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04 cut"])
def test_invalid_archive_is_reported(tmp_path: Path, content: bytes) -> None:
    """An invalid archive is reported with its file name."""
    (tmp_path / "a.npz").write_bytes(content)

    (problem,) = _problems(tmp_path)
    assert problem.startswith("`a.npz`: cannot be read")


def test_single_array_is_rejected(tmp_path: Path) -> None:
    """A `.npy` file with the extension `.npz` is rejected."""
    with (tmp_path / "a.npz").open("wb") as file:
        np.save(file, np.zeros(2))

    assert _problems(tmp_path) == (
        "`a.npz`: contains a single array without a name; use `numpy.savez` to write named arrays",
    )


def test_glob_without_files(tmp_path: Path) -> None:
    """A pattern without matches is an error instead of a fallback to generated inputs."""
    with pytest.raises(ConfigError, match="no file matches"):
        read_user_cases(FACTS, "samples/*.npz", tmp_path, tmp_path, tmp_path / "cases")
