"""Plurals and suggested spellings."""

from __future__ import annotations

import pytest

from onnxgate.core.text import find_similar, pluralize, suggest_spelling


def test_nouns_follow_their_number() -> None:
    """Only 1 takes the singular; a noun may have an irregular plural."""
    assert [pluralize(number, "model") for number in (0, 1, 2)] == ["0 models", "1 model", "2 models"]
    assert [pluralize(number, "axis", "axes") for number in (1, 2)] == ["1 axis", "2 axes"]


@pytest.mark.parametrize(
    ("word", "candidates", "expected"),
    [
        ("encodr.onnx", ("decoder.onnx", "encoder.onnx"), "encoder.onnx"),
        ("encoder.onx", ("encoder.onnx",), "encoder.onnx"),
        ("Encoder.onnx", ("encoder.onnx",), "encoder.onnx"),
        ("modl/*.onnx", ("models/*.onnx",), "models/*.onnx"),
        ("timr", ("time", "batch"), "time"),
        ("cn", ("cnn", "rnn"), "cnn"),
        ("time_s", ("time-s",), "time-s"),
        ("warn", ("note", "warning", "error"), "warning"),
    ],
)
def test_a_misspelled_name_is_found(word: str, candidates: tuple[str, ...], expected: str) -> None:
    """A missing, added, transposed or replaced character does not matter; neither do case and underscores."""
    assert find_similar(word, candidates) == expected


@pytest.mark.parametrize(
    ("word", "candidates"),
    [
        ("a.onx", ("t.onnx", "b.onnx")),
        ("m2.onnx", ("m1.onnx",)),
        ("resnet50.onnx", ("resnet18.onnx", "resnet101.onnx")),
        ("resnt50.onnx", ("resnet18.onnx",)),
        ("cnn.onnx", ("rnn.onnx",)),
        ("models/a.onnx", ("models/t.onnx",)),
        ("absent.onnx", ("model.onnx", "encoder.onnx")),
        ("enc", ("dec",)),
        ("x", ("y", "xy")),
        ("sizes", ()),
    ],
)
def test_another_name_is_not_suggested(word: str, candidates: tuple[str, ...]) -> None:
    """Files that share only folder and extension, and short names that differ, are not misspellings of each other."""
    assert find_similar(word, candidates) == ""
    assert suggest_spelling(word, candidates) == ""
