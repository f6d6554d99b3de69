"""Declared output shapes, compared with the shapes of real runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from onnxgate.core.jobs import InputCase
from onnxgate.evidence.runtime import WrongShape
from onnxgate.model.facts import Dim, ModelFacts, ValueInfo
from onnxgate.stages.output_shapes import read_declared_outputs

Shape = tuple[int, ...]


def _contradicts(
    folder: Path,
    inputs: dict[str, tuple[tuple[Dim, ...] | None, Shape]],
    output: ValueInfo,
    shape: Shape,
    *,
    counts_data: bool = False,
) -> WrongShape | None:
    """Return how the output's shape contradicts the declared shapes."""
    paths = {}
    for name, (_, fed) in inputs.items():
        np.save(folder / f"{name}.npy", np.zeros(fed, np.float32))
        paths[name] = str(folder / f"{name}.npy")
    values = tuple(ValueInfo(name, "tensor(float)", dims) for name, (dims, _) in inputs.items())
    facts = ModelFacts("m.onnx", "", 0, 8, {}, "", values, (output,), {}, ())
    case = InputCase(name="c", origin="generated", inputs=paths)
    declared = read_declared_outputs(facts, case, counts_data=counts_data)
    return declared.find_contradiction("y", np.zeros(shape, np.float32))


def _y(*dims: Dim, type: str = "tensor(float)") -> ValueInfo:
    return ValueInfo("y", type, dims)


X = {"x": (("batch", "time"), (3, 8))}


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((2, 1), (3, 1)),
        (("batch", 1), (2, 1)),
        (("batch", "2*time"), (3, 8)),
        (("batch", "time//2 + 1"), (3, 4)),
        (("batch - 1",), (3,)),
        (("batch", 1), (3, 1, 1)),
        ((), (3,)),
    ],
)
def test_contradictions(tmp_path: Path, dims: tuple[Dim, ...], shape: Shape) -> None:
    """A fixed size, a name, a formula or the rank contradicts the run."""
    assert _contradicts(tmp_path, X, _y(*dims), shape)


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ((3, 1), (3, 1)),
        (("batch", "time"), (3, 8)),
        (("batch", "2*time"), (3, 16)),
        (("found", "found"), (5, 7)),  # names that only outputs have
        (("?", "None"), (5, 7)),
        ((0, 1), (3, 1)),
        (("batch + found",), (7,)),
        (("time/3",), (1,)),
        (("batch // (time - 8)",), (1,)),
        (("batch - 3",), (1,)),
        (("total_sequence_length",), (9,)),
        (("batch-size",), (7,)),
        (("class",), (7,)),
    ],
)
def test_compatible_shapes(tmp_path: Path, dims: tuple[Dim, ...], shape: Shape) -> None:
    """Matching shapes, and shapes that the declaration does not determine, are accepted."""
    assert not _contradicts(tmp_path, X, _y(*dims), shape)


def test_conventional_sum_is_not_required(tmp_path: Path) -> None:
    """By convention, a cache may be longer than `total_sequence_length`."""
    inputs = {"x": (("past_sequence_length", "sequence_length"), (3, 8))}

    assert not _contradicts(tmp_path, inputs, _y("total_sequence_length"), (64,))


def test_name_that_inputs_use_for_several_sizes(tmp_path: Path) -> None:
    """If inputs have different sizes for one name, that name is not checked."""
    inputs = {"a": (("n",), (3,)), "b": (("n",), (4,))}

    assert not _contradicts(tmp_path, inputs, _y("n"), (7,))


def test_axis_names_with_spaces(tmp_path: Path) -> None:
    """Axis names with spaces are compared like others."""
    assert _contradicts(tmp_path, {"x": (("batch size",), (3,))}, _y("batch size"), (2,))


@pytest.mark.parametrize("placeholder", ["None", "?", "unk", "-1"])
def test_placeholders_are_not_compared(tmp_path: Path, placeholder: str) -> None:
    """Converters use such placeholders for all unknown axes, so they are not compared."""
    assert not _contradicts(tmp_path, {"x": ((placeholder,), (3,))}, _y(placeholder), (7,))


def test_inputs_without_elements_or_rank(tmp_path: Path) -> None:
    """The shapes of inputs without elements are read; inputs without a rank are ignored."""
    assert _contradicts(tmp_path, {"x": (("n", "m"), (3, 0))}, _y("n"), (2,))
    assert not _contradicts(tmp_path, {"x": (None, (3, 0))}, _y("n"), (2,))


def test_only_tensors_are_judged(tmp_path: Path) -> None:
    """A sequence is returned as two arrays, neither of which has the declared shape."""
    assert not _contradicts(tmp_path, X, _y("batch", type="seq(tensor(float))"), (7,))
    assert not _contradicts(tmp_path, X, ValueInfo("y", "tensor(float)", None), (7,))


def test_words() -> None:
    """The evidence contains both shapes in the notation of the file and of numpy."""
    facts = ModelFacts("m.onnx", "", 0, 8, {}, "", (), (_y("batch", 1),), {}, ())
    file = read_declared_outputs(facts, InputCase(name="c", origin="generated", inputs={}))

    expected = WrongShape(output="y", declared="(batch, 1)", shape="(4)", misnamed=True)
    assert file.find_contradiction("y", np.zeros(4)) == expected
    assert file.find_contradiction("other", np.zeros(4)) is None


@pytest.mark.parametrize(
    ("dims", "axes", "misnamed"),
    [
        (("batch", 2), ("batch",), False),
        (("2*time", 1), ("time",), False),
        (("found", "2*time"), ("time",), False),
        (("time", "batch"), ("batch", "time"), True),
        ((7, "time"), (), True),
        (("batch",), (), True),
    ],
)
def test_axes_of_wrong_sizes(tmp_path: Path, dims: tuple[Dim, ...], axes: tuple[str, ...], misnamed: bool) -> None:
    """Wrong sizes that refer to input axes are kept apart from wrong fixed sizes and a wrong rank."""
    wrong = _contradicts(tmp_path, X, _y(*dims), (5, 8))

    assert wrong is not None
    assert (wrong.axes, wrong.misnamed) == (axes, misnamed)


def test_axis_that_the_model_seems_to_keep(tmp_path: Path) -> None:
    """An axis at the same place as in an input with as many axes may have the size of the example input."""
    same, other = (
        _contradicts(tmp_path, X, _y(*dims), size)
        for dims, size in ((("batch", "time"), (3, 5)), (("batch", "time", 1), (3, 5, 1)))
    )

    assert same is not None
    assert not same.misnamed
    assert other is not None
    assert other.misnamed


@pytest.mark.parametrize(
    ("counts_data", "dims", "misnamed"),
    [(True, ("batch", "time", 2), True), (False, ("batch", "time", 2), False), (True, ("batch", "found", 2), False)],
)
def test_first_axis_that_counts_elements(
    tmp_path: Path, counts_data: bool, dims: tuple[Dim, ...], misnamed: bool
) -> None:
    """The number of items has the name of an input axis by mistake if the next axis does as well."""
    wrong = _contradicts(tmp_path, X, _y(*dims), (1, 5, 2), counts_data=counts_data)

    assert wrong is not None
    assert wrong.misnamed == misnamed
