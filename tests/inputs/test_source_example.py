"""The source's example inputs as a case for the committed model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxgate.inputs.case_selection import make_example_case
from onnxgate.model.facts import ModelFacts, ValueInfo

FACTS = ModelFacts(
    path="m.onnx",
    sha256="",
    size_bytes=0,
    ir_version=8,
    opsets={},
    producer="",
    inputs=(ValueInfo("ids", "tensor(int64)", ("batch", 5)), ValueInfo("x", "tensor(float)", ("batch", "?"))),
    outputs=(),
    operators={},
    metadata_keys=(),
)
IDS, X = np.zeros((2, 5), np.int64), np.zeros((2, 7), np.float32)


def _paths(folder: Path, arrays: Sequence[Any]) -> list[str]:
    paths = [folder / f"{index}.npy" for index in range(len(arrays))]
    for path, array in zip(paths, arrays, strict=True):
        np.save(path, array)
    return [str(path) for path in paths]


def test_shared_names_match_inputs(tmp_path: Path) -> None:
    """Inputs are matched by name, even if the fresh export has another order."""
    paths = _paths(tmp_path, [X, IDS])
    case = make_example_case(FACTS, ["x", "ids"], paths)

    assert case is not None
    assert list(case.inputs.items()) == [("ids", paths[1]), ("x", paths[0])]
    assert (case.origin, case.sizes) == ("source", {"batch": 2, "x[1]": 7})


def test_order_matches_inputs_with_other_names(tmp_path: Path) -> None:
    """If the names differ, inputs are matched by order."""
    paths = _paths(tmp_path, [IDS, X])
    case = make_example_case(FACTS, ["arg0", "arg1"], paths)

    assert case is not None
    assert case.inputs == {"ids": paths[0], "x": paths[1]}


@pytest.mark.parametrize(
    "arrays",
    [
        [IDS],
        [IDS, X, X],
        [X, IDS],
        [IDS.astype(np.int32), X],
        [IDS[:, :4], X],
        [IDS, X[:1]],
        [IDS, X[0]],
    ],
)
def test_example_that_the_model_does_not_take(tmp_path: Path, arrays: list[Any]) -> None:
    """There is no case if the number, a type, a rank or a size does not match."""
    assert make_example_case(FACTS, ["a", "b"], _paths(tmp_path, arrays)) is None
