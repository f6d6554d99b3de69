"""Sizes that error texts of runtimes suggest."""

from __future__ import annotations

import pytest

from onnxgate.inputs.size_corrections import MAX_SIZE, list_corrections

TEXTS = {
    "Input initial_h must have shape {1,1,128}. Actual:{1,96,128}": ({"n": 3, "t": 96}, {"n": 3, "t": 1}),
    "Non-zero status code returned while running Concat node. Status Message: PrepareForCompute Non concat"
    " axis dimensions must match: Axis 2 has mismatched dimensions of 3 and 2": ({"n": 1, "h": 3}, {"n": 1, "h": 2}),
    "Non-zero status code returned while running Add node. Name:'' Status Message: axis == 1 || axis == largest was"
    " false. Attempting to broadcast an axis by a dimension other than 1. 10 by 8": ({"t": 10}, {"t": 8}),
    "Got invalid dimensions for input: x for the following indices\n index: 1 Got: 2 Expected: 80": (
        {"n": 1, "f": 2},
        {"n": 1, "f": 80},
    ),
    "Status Message: Input channels C is not equal to kernel channels * group. C: 96 kernel channels: 80 group: 1": (
        {"n": 1, "f": 96},
        {"n": 1, "f": 80},
    ),
    "The input tensor cannot be reshaped to the requested shape. Input shape:{1,64,96}, requested shape:{1,64,80}": (
        {"n": 1, "f": 96},
        {"n": 1, "f": 80},
    ),
    "Size of X.shape()[axis:] == 64. Size of scale and bias (if provided) must match this. Got scale size of 7 and bias"
    " size of 0": ({"t": 96, "f": 64}, {"t": 96, "f": 7}),
    "Scale and (optional) bias must match X.shape[axis:] or be NumPy-broadcastable to it. X.shape={1,96,64}"
    " scale.shape={7} bias.shape={} and axis=2": ({"t": 96, "f": 64}, {"t": 96, "f": 7}),
    "GEMM: Dimension mismatch, W: {320,64} K: 640 N:64": ({"n": 1, "f": 64}, {"n": 1, "f": 32}),
    "GEMM: Dimension mismatch, W: {2704,64} K: 15376 N:64": ({"n": 1, "h": 64, "w": 64}, {"n": 1, "h": 27, "w": 27}),
    "GEMM: Dimension mismatch, W: {3,392} K: 32 N:3": ({"n": 1, "samples": 1600}, {"n": 1, "samples": 19600}),
    "GEMM: Dimension mismatch, W: {3,392} K: 484 N:3": ({"n": 1, "samples": 19600}, {"n": 1, "samples": 15874}),
    "Attempting to broadcast an axis by a dimension other than 1. 24 by 196": (
        {"n": 1, "h": 64, "w": 96},
        {"n": 1, "h": 224, "w": 224},
    ),
    "Attempting to broadcast an axis by a dimension other than 1. 16 by 96": (
        {"n": 1, "h": 64, "w": 96},
        {"n": 1, "h": 32, "w": 32},
    ),
    "Input channels C is not equal to kernel channels * group. C: 96 kernel channels: 5 group: 2": (
        {"n": 1, "f": 96},
        {"n": 1, "f": 10},
    ),
    "running Conv node. Name:'' Status Message: Invalid input shape: {64,96}": (
        {"n": 1, "c": 3, "h": 64, "w": 96},
        {"n": 1, "c": 3, "h": 256, "w": 384},
    ),
    "Einsum operands could not be broadcast together. Please check input shapes/equation provided.Input shape of"
    " operand 1 is incompatible in the dimension 0. The shape is: {23,5}Another operand has a dim value of 64 in the"
    " same dimension": ({"n": 1, "f": 64}, {"n": 1, "f": 23}),
    "updates tensor should have shape equal to indices.shape[:-1] + data.shape[indices.shape[-1]:]. updates shape:"
    " {1,96,64}, indices shape: {2,1}, data shape: {1,96,64}": ({"u": 1, "f": 96}, {"u": 2, "f": 96}),
    "running ScatterND node. Name:'' Status Message: invalid indice found, indice = 5": ({"u": 2}, {"u": 6}),
    "running GatherND node. Name:'node_GatherND_72' Status Message: invalid index found, index = 8": (
        {"b": 1, "total": 8, "new": 9, "past": 64},
        {"b": 1, "total": 73, "new": 9, "past": 64},
    ),
    "indices element out of data bounds, idx=9 must be within the inclusive range [-4,3]": ({"t": 4}, {"t": 10}),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_suggest_sizes(text: str) -> None:
    """The first suggestion replaces the size in the text by the required one, or scales the size that led to it."""
    setting, expected = TEXTS[text]

    assert list_corrections(text, setting, list(setting)).take() == expected


@pytest.mark.parametrize(("requested", "size"), [("-1,16,4", 48), ("3,16,4", 48), ("-1,32,4", 64), ("0,-1,4", None)])
def test_reshaped_data_need_a_multiple(requested: str, size: int | None) -> None:
    """An axis is enlarged until its elements fill the other axes of the requested shape."""
    text = f"cannot be reshaped to the requested shape. Input shape:{{36,4}}, requested shape:{{{requested}}}"
    scaled = list_corrections(text, {"n": 1, "t": 36}, ["n", "t"], ["n"]).scaled

    assert scaled == ([] if size is None else [{"n": 1, "t": size}])


def test_only_the_named_axes_change() -> None:
    """Axes whose sizes are configured stay as they are."""
    text = "Input initial_h must have shape {1,1,128}. Actual:{1,96,128}"

    assert list_corrections(text, {"n": 96, "t": 96}, ["t"]).replaced == [{"n": 96, "t": 1}]


def test_no_size_is_computed_from_a_batch() -> None:
    """A batch has no influence on the size of a flattened sequence."""
    text = "GEMM: Dimension mismatch, W: {392,5} K: 32 N:5"

    assert list_corrections(text, {"n": 3, "t": 64}, ["n", "t"], ["n"]).take() == {"n": 3, "t": 784}


@pytest.mark.parametrize("text", ["no sizes at all", f"mismatched dimensions of 4 and {MAX_SIZE + 1}", "{0} {0}"])
def test_texts_without_usable_sizes(text: str) -> None:
    """A text without sizes, or with sizes that are too large, suggests nothing."""
    assert list_corrections(text, {"n": 4}, ["n"]).take() is None
