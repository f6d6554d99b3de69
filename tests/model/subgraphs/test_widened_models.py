"""Copies of float16 models that compute in float32."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.checker
import pytest
from onnx import TensorProto, numpy_helper

from onnxgate.model.subgraphs.widened_models import Rounding, hash_half_weights, write_widened_model
from tests.harness.models import parse

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float16[N] x, bool go) => (float16[N] y) <float16[1] w = {11878}> {
    c = Constant<value = float16[1] {16896}>()
    a = Mul(x, w)
    b = Cast<to = 10>(a)
    d = Add(b, c)
    y = If(go) <
        then_branch = then () => (float16[N] t) { t = Cast<to = 10>(d) },
        else_branch = otherwise () => (float16[N] e) { e = Identity(d) }
    >
}
"""


def test_every_float16_becomes_float32(tmp_path: Path) -> None:
    """Types, weights, constants and casts become float32, also in subgraphs; weights keep their value."""
    onnx.save(parse(TEXT, head=""), tmp_path / "m.onnx")
    is_written = write_widened_model(tmp_path / "m.onnx", tmp_path / "wide.onnx")
    model = onnx.load(tmp_path / "wide.onnx")
    onnx.checker.check_model(model, full_check=True)
    (weight,) = model.graph.initializer

    assert is_written
    assert np.float32(np.float16(0.1)) == numpy_helper.to_array(weight)[0]
    assert {TensorProto.FLOAT, TensorProto.BOOL} == {
        value.type.tensor_type.elem_type for value in (*model.graph.input, *model.graph.output)
    }


def test_contradictory_weights_are_kept(tmp_path: Path) -> None:
    """A weight whose data does not fit its shape, which runtimes load if it is unused, is copied and has no hash."""
    model = parse(TEXT, head="")
    wrong = TensorProto(name="wrong", data_type=TensorProto.FLOAT16, dims=[2], int32_data=[11878])
    expected = hash_half_weights(save(model, tmp_path))
    model.graph.initializer.append(wrong)

    assert expected == hash_half_weights(save(model, tmp_path))
    assert write_widened_model(tmp_path / "m.onnx", tmp_path / "wide.onnx")
    assert wrong == onnx.load(tmp_path / "wide.onnx").graph.initializer[1]


def save(model: onnx.ModelProto, folder: Path) -> Path:
    """Save a model and return its path."""
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def widen(folder: Path, graph: str, *exact: Array, **options: Any) -> tuple[list[Array], list[Array]]:
    """Return the weights of a model, and of its copy in float32."""
    model = parse(graph)
    onnx.save(model, folder / "m.onnx")
    hashes = [hashlib.sha256(np.ascontiguousarray(weight).tobytes()).hexdigest() for weight in exact]
    write_widened_model(folder / "m.onnx", folder / "wide.onnx", hashes, **options)
    wide = onnx.load(folder / "wide.onnx")
    before, after = ([numpy_helper.to_array(tensor) for tensor in it.graph.initializer] for it in (model, wide))
    return before, after


def test_weights_that_were_rounded_once_change_by_half_a_step(tmp_path: Path) -> None:
    """A folded normalization that does not change a weight in float16 changes it by less than half a step."""
    text = """g (float16[N, 3] x) => (float16[N, 3] y) <
        float16[3] same = {11878, 11879, 11881}, float16[3] computed = {11891, 11895, 11897}
    > { a = Mul(x, same) y = Mul(a, computed) }"""
    same = hashlib.sha256(as_half(11878, 11879, 11881).tobytes()).hexdigest()
    runs = [widen(tmp_path, text, rounding=Rounding(2.0, seed, (same,))) for seed in range(20)]
    most = [
        max(float((np.abs(after[i].astype("f8") - before[i]) / np.spacing(before[i])).max()) for before, after in runs)
        for i in range(2)
    ]

    assert most[0] == pytest.approx(0.5, abs=0.1)
    assert most[1] == pytest.approx(2.0, abs=0.2)


def as_half(*bits: int) -> Array:
    """Return float16 numbers with these bits."""
    return np.array(bits, np.uint16).view(np.float16)


def test_only_weights_that_are_not_in_the_source_change_by_float16_steps(tmp_path: Path) -> None:
    """Other weights change by at most half a float16 step, except for exact numbers such as 3 and 0.5.

    15784 is the square root of 2, whose last bits are 0.
    """
    text = """g (float16[N, 3] x) => (float16[N, 3] y) <
        float16[3] known = {11878, 11879, 11881}, float16[3] computed = {15784, 16896, 14336}
    > { a = Mul(x, known) y = Mul(a, computed) }"""
    known = as_half(11878, 11879, 11881)
    (_, before), (exact, computed) = widen(tmp_path, text, known, rounding=Rounding(0.5, seed=0))
    change = np.abs(computed.astype("f8") - before) / np.spacing(before)

    assert np.full(3, 1.0).tolist() == (np.abs(exact - known.astype("f4")) / np.spacing(known.astype("f4"))).tolist()
    assert [True, False, False] == (change > 0).tolist()
    assert change.max() <= 0.5


EMBEDDING = (
    "g (float16[2, 2] x) => (float16[2, 2] y) <float16[2, 2] w = {11878, 11879, 11881, 11883}> { y = Add(x, w) }"
)


@pytest.mark.parametrize(
    ("parts", "is_exact"),
    [
        ([as_half(11878, 11879), as_half(11881, 11883)], True),
        ([as_half(11878, 11881), as_half(11879, 11883)], True),
        ([as_half(11878, 11879)], False),
    ],
    ids=["rows", "columns", "one row"],
)
def test_rows_and_columns_of_the_source_are_exact(tmp_path: Path, parts: list[Array], is_exact: bool) -> None:
    """Selected rows of an embedding, and parts of a transposed matrix, are weights of the source."""
    (before,), (after,) = widen(tmp_path, EMBEDDING, *parts, rounding=Rounding(0.5, seed=0))

    assert is_exact == np.allclose(before.astype("f4"), after, rtol=1e-6, atol=0.0)


def test_rounded_constants_are_restored(tmp_path: Path) -> None:
    """The rounded square root of 2 becomes the square root of 2, unless the source contains the rounded number."""
    text = "g (float16[N] x) => (float16[N] y) <float16[1] w = {15784}> { y = Div(x, w) }"
    _, (restored,) = widen(tmp_path, text, restore=True, rounding=Rounding(0.5, seed=0))
    _, (exact,) = widen(tmp_path, text, as_half(15784), restore=True)

    assert [np.float32(2**0.5)] == restored.tolist()
    assert [np.float32(np.float16(2**0.5))] == exact.tolist()


def test_weights_are_listed_with_their_rows_and_columns(tmp_path: Path) -> None:
    """The hashes show which weights of a source a model stores, also in parts or transposed."""
    onnx.save(parse(EMBEDDING), tmp_path / "m.onnx")
    stored = as_half(11878, 11879, 11881, 11883).reshape(2, 2)
    parts = [stored, *stored, *stored.T]

    assert sorted(hashlib.sha256(part.tobytes()).hexdigest() for part in parts) == sorted(
        hash_half_weights(tmp_path / "m.onnx")
    )


def test_only_the_named_weight_is_replaced(tmp_path: Path) -> None:
    """Another weight may have the same numbers, also in another shape, such as the ones of a normalization."""
    text = """g (float16[1, 2] x) => (float16[1, 2] y) <
        float16[2] scale = {15360, 15360}, float16[2] same = {15360, 15360}, float16[1, 2] other = {15360, 15360}
    > { a = Mul(x, scale) b = Mul(a, same) y = Mul(b, other) }"""
    ones = hashlib.sha256(np.ones(2, np.float16).tobytes()).hexdigest()
    wrong = {("scale", ones): np.full(2, 1.5, np.float16), ("other", ones): np.full(2, 1.5, np.float16)}
    _, after = widen(tmp_path, text, replaced=wrong)

    assert [[1.5, 1.5], [1.0, 1.0], [[1.0, 1.0]]] == [it.tolist() for it in after]
