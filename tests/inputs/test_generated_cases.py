"""Generated cases: one per size setting, arrays that workers can read, and reasons for missing cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from onnxgate.core.jobs import InputCase
from onnxgate.inputs.cases import InputGenerationError, generate_cases
from onnxgate.model.reading.fact_extraction import read_model

ENCODER = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[batch, time] ids, bool[batch, time] mask) => (float[batch, time, 4] y) <float[50, 4] t>
{ y = Gather(t, ids) }"""


def _cases(tmp_path: Path, text: str, sizes: Mapping[str, Sequence[int]]) -> tuple[InputCase, ...]:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    reading = read_model(path, "model.onnx")
    return generate_cases(reading.facts, reading.view, sizes, tmp_path / "cases")


def _arrays(case: InputCase) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    return {name: np.load(path, allow_pickle=False) for name, path in case.inputs.items()}


def test_one_case_per_setting(tmp_path: Path) -> None:
    """Cases are named by their sizes; inputs are in graph order, and equal axes have equal sizes."""
    first, second = _cases(tmp_path, ENCODER, {"batch": [1, 3], "time": [16, 50]})
    arrays = _arrays(second)

    assert (first.name, first.origin, list(first.inputs)) == ("sizes batch=1 time=16", "generated", ["ids", "mask"])
    assert (second.sizes, arrays["ids"].shape, arrays["mask"].shape) == ({"batch": 3, "time": 50}, (3, 50), (3, 50))
    assert (arrays["ids"].dtype, arrays["mask"].dtype) == ("int64", "bool")


def test_guessed_axes_are_recorded(tmp_path: Path) -> None:
    """Axes without a configured size are recorded as guessed, and leading ones separately."""
    folders = {name: tmp_path / name for name in ("none", "batch", "all")}
    sizes: list[dict[str, list[int]]] = [{}, {"batch": [1]}, {"batch": [1], "time": [8]}]
    for folder in folders.values():
        folder.mkdir()
    actual = [_cases(folder, ENCODER, given)[0] for folder, given in zip(folders.values(), sizes, strict=True)]

    assert [(case.guessed, case.leading) for case in actual] == [
        (("batch", "time"), ("batch",)),
        (("time",), ()),
        ((), ()),
    ]


def test_cases_are_the_same_in_any_folder(tmp_path: Path) -> None:
    """Values depend only on names and sizes."""
    one, two = (tmp_path / name for name in ("one", "two"))
    one.mkdir()
    two.mkdir()
    contents = [
        [Path(path).read_bytes() for case in _cases(folder, ENCODER, {}) for path in case.inputs.values()]
        for folder in (one, two)
    ]

    assert contents[0] == contents[1]


def test_another_seed_draws_other_values(tmp_path: Path) -> None:
    """Seed 0 is the default, and another seed changes only values, not names and sizes."""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(ENCODER), path)
    reading = read_model(path, "model.onnx")
    usual, same, other = (
        generate_cases(reading.facts, reading.view, {}, tmp_path / str(index), (), seed)
        for index, seed in enumerate((0, 0, 7))
    )
    contents = [
        [Path(value).read_bytes() for case in cases for value in case.inputs.values()] for cases in (usual, same)
    ]

    assert contents[0] == contents[1]
    assert [case.name for case in usual] == [case.name for case in other]
    assert not any((_arrays(one)["ids"] == _arrays(two)["ids"]).all() for one, two in zip(usual, other, strict=True))


def test_fixed_sizes_make_one_case(tmp_path: Path) -> None:
    """A model without dynamic axes has one case without sizes."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[1, 3] x) => (float[1, 3] y) { y = Relu(x) }'
    (case,) = _cases(tmp_path, text, {"batch": [1, 3]})

    assert (case.name, case.sizes) == ("generated inputs", {})


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ("bfloat16[2] x", "of type `tensor(bfloat16)`"),
        ("seq(float[2]) x", "of type `seq(tensor(float))`"),
        ("complex64[2] x", "of type `tensor(complex64)`"),
    ],
)
def test_oversized_input_has_no_hint(tmp_path: Path, head: str, reason: str) -> None:
    """There is no hint, because the user cannot provide such inputs."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({head}) => (float y) {{ y = Identity(x) }}'
    with pytest.raises(InputGenerationError) as caught:
        _cases(tmp_path, text, {})

    assert (reason in caught.value.message, caught.value.hint) == (True, None)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (
            "float x, int64[9] s",
            "input `s` cannot be generated: valid values are unknown, because it determines a shape, an axis or a size "
            "of `Reshape`",
        )
    ],
)
def test_input_without_plausible_values(tmp_path: Path, head: str, reason: str) -> None:
    """The reason names the input, and the hint says how to provide real inputs."""
    text = f'<ir_version: 8, opset_import: ["" : 17]> g ({head}) => (float y) {{ y = Reshape(x, s) }}'
    with pytest.raises(InputGenerationError) as caught:
        _cases(tmp_path, text, {})

    assert reason in caught.value.message
    assert "inputs =" in (caught.value.hint or "")


def test_unknown_rank_cannot_be_fed(tmp_path: Path) -> None:
    """An unknown shape is not guessed."""
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, None)
    output = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [output])
    model = onnx.helper.make_model(graph)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    reading = read_model(path, "model.onnx")

    with pytest.raises(InputGenerationError, match="does not declare the rank of this input"):
        generate_cases(reading.facts, reading.view, {}, tmp_path / "cases")


def test_recursive_function_does_not_stop_generation(tmp_path: Path) -> None:
    """A recursive function does not stop the generation, because other stages report it."""
    text = """
        <ir_version: 8, opset_import: ["" : 17, "own" : 1]>
        g (float[2] x) => (float[2] y) { y = own.F (x) }
        <domain: "own", opset_import: ["" : 17, "own" : 1]>
        F (a) => (b) { b = own.F (a) }
    """
    (case,) = _cases(tmp_path, text, {})

    assert {"x"} == set(case.inputs)
