"""Selection of the wheels to lock. File names are those of real releases."""

from __future__ import annotations

import random

import pytest

from onnxgate.project.lock.index import select_wheels

NUMPY = [
    "numpy-2.4.6-cp311-cp311-macosx_10_9_x86_64.whl",
    "numpy-2.4.6-cp311-cp311-macosx_11_0_arm64.whl",
    "numpy-2.4.6-cp311-cp311-macosx_14_0_arm64.whl",
    "numpy-2.4.6-cp311-cp311-macosx_14_0_x86_64.whl",
    "numpy-2.4.6-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    "numpy-2.4.6-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "numpy-2.4.6-cp311-cp311-musllinux_1_2_aarch64.whl",
    "numpy-2.4.6-cp311-cp311-musllinux_1_2_x86_64.whl",
    "numpy-2.4.6-cp311-cp311-win32.whl",
    "numpy-2.4.6-cp311-cp311-win_amd64.whl",
    "numpy-2.4.6-cp311-cp311-win_arm64.whl",
    "numpy-2.4.6-cp312-cp312-win_amd64.whl",
    "numpy-2.4.6-pp311-pypy311_pp73-win_amd64.whl",
]
NUMPY_LOCKED = [NUMPY[0], NUMPY[1], NUMPY[4], NUMPY[5], NUMPY[9]]
UNIVERSAL = [
    "onnxruntime-1.19.2-cp311-cp311-macosx_11_0_universal2.whl",
    "onnxruntime-1.19.2-cp311-cp311-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl",
    "onnxruntime-1.19.2-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_28_x86_64.whl",
    "onnxruntime-1.19.2-cp311-cp311-win32.whl",
    "onnxruntime-1.19.2-cp311-cp311-win_amd64.whl",
]
TWO_GLIBCS = [
    "onnxruntime-1.14.1-cp310-cp310-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
    "onnxruntime-1.14.1-cp310-cp310-manylinux_2_27_x86_64.whl",
]


def locked(files: list[str], python: str) -> list[str]:
    """Return the selected file names; each file has a unique digest."""
    wheels = select_wheels({file: f"sha256 of {file}" for file in files}, python)
    assert all(wheel.sha256 == f"sha256 of {wheel.file}" for wheel in wheels)
    return [wheel.file for wheel in wheels]


@pytest.mark.parametrize(
    ("files", "python", "expected"),
    [
        (NUMPY, "3.11", NUMPY_LOCKED),
        (NUMPY, "3.12", [NUMPY[11]]),
        (NUMPY, "3.10", []),
        (UNIVERSAL, "3.11", [UNIVERSAL[0], UNIVERSAL[1], UNIVERSAL[2], UNIVERSAL[4]]),
        (TWO_GLIBCS, "3.10", TWO_GLIBCS[:1]),
        (["a-1-py3-none-any.whl"], "3.11", ["a-1-py3-none-any.whl"]),
        (["a-1-cp38-abi3-win_amd64.whl", "a-1-cp312-abi3-win_amd64.whl"], "3.11", ["a-1-cp38-abi3-win_amd64.whl"]),
        (["a-1-cp311-cp311-win_amd64.whl", "a-1-cp38-abi3-win_amd64.whl"], "3.11", ["a-1-cp311-cp311-win_amd64.whl"]),
        (["a-1-cp313-cp313t-win_amd64.whl"], "3.13", []),
        (["a-1-cp38-cp38-manylinux1_x86_64.whl"], "3.8", ["a-1-cp38-cp38-manylinux1_x86_64.whl"]),
        (["a-1-cp311-cp311-musllinux_1_2_x86_64.whl"], "3.11", []),
        (["a-1-1-py3-none-any.whl", "a-1-2-py3-none-any.whl"], "3.11", ["a-1-2-py3-none-any.whl"]),
        (
            ["a-1-py3-none-any.whl", "a-1-py3-none-win_amd64.whl"],
            "3.11",
            ["a-1-py3-none-any.whl", "a-1-py3-none-win_amd64.whl"],
        ),
        (["nonsense.whl", "a-1.tar.gz"], "3.11", []),
    ],
)
def test_locked(files: list[str], python: str, expected: list[str]) -> None:
    """One wheel per platform is selected: for this Python version and the oldest supported systems."""

    assert expected == locked(files, python)


def test_order_does_not_matter() -> None:
    """The order of files in the index does not matter."""
    for seed in range(20):
        shuffled = random.Random(seed).sample(NUMPY, len(NUMPY))

        assert locked(shuffled, "3.11") == NUMPY_LOCKED
