"""The corpora hold valid models, the same ones each time, as large as they say."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import checker

from bench import corpora


@pytest.mark.parametrize("number", range(6))
def test_a_small_model_of_each_family_is_valid(tmp_path: Path, number: int) -> None:
    """Whatever family a number means, `onnx.checker` has nothing against its model."""
    path = tmp_path / "model.onnx"

    corpora.write_small(path, number)

    checker.check_model(str(path), full_check=True)


def test_families_differ() -> None:
    """Six families take turns."""
    assert len(corpora.FAMILY_NAMES) == len(set(corpora.FAMILY_NAMES)) == 6


def test_a_model_is_the_same_each_time(tmp_path: Path) -> None:
    """A number is a model, byte for byte."""
    for name in ("one", "other"):
        corpora.write_small(tmp_path / name, 3)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_streamed_model_is_valid_and_nearly_as_large_as_asked(tmp_path: Path) -> None:
    """What is written piece by piece is one message of about the size asked for."""
    path = tmp_path / "model.onnx"

    written = corpora.write_large(path, "transformer", 1, 4_000_000, 100)

    checker.check_model(str(path), full_check=True)
    assert path.stat().st_size == written == pytest.approx(4_000_000, rel=0.05)


def test_a_deep_model_has_exactly_its_nodes(tmp_path: Path) -> None:
    """The graph is filled up to the number in its name."""
    path = tmp_path / "model.onnx"

    corpora.write_deep(path, 300)

    checker.check_model(str(path), full_check=True)
    assert 300 == len(onnx.load(path).graph.node)
