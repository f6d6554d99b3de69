"""The first differing node on real releases that compute an operator incorrectly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from onnxgate.inputs.cases import generate_cases
from onnxgate.model.reading.fact_extraction import read_model
from tests.gate.mismatch_search.faulty_networks import convolutions
from tests.gate.mismatch_search.search_bench import Bench, compared, firsts

pytestmark = pytest.mark.index
CEILING = {"ceil_mode": 1, "count_include_pad": 1}
HALVING = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], **CEILING}
STEPPING = {"kernel_shape": [2, 2], "strides": [2, 2], **CEILING}

Make = Callable[..., Bench]


def summarize(bench: Bench, model: Path) -> tuple[set[tuple[str, str, str] | None], list[str]]:
    """Return the pair, node and operator of each mismatch, and the reasons why nodes were not found."""
    reading = read_model(model, "model.onnx")
    cases = generate_cases(reading.facts, reading.view, {}, bench.place())
    comparisons, undone = compared(bench, model, cases)
    pairs = {comparison.first: comparison.pair for comparison in comparisons}
    actual = {first and (pairs[first], first.node, first.operator) for first in firsts(comparisons)}
    return actual, [entry.reason for entry in undone]


def test_a_release_that_computes_a_node_wrongly(bench: Make, tmp_path: Path) -> None:
    """ONNX Runtime 1.18 pools beyond the padding; the convolutions before and after the pooling are correct."""
    model = convolutions(tmp_path / "m.onnx", "AveragePool", 16, HALVING)

    assert summarize(bench("1.18.1", "1.23.2", "1.31.1"), model) == ({("runtime", "pool", "AveragePool")}, [])


def test_an_optimiser_that_computes_a_node_wrongly(bench: Make, tmp_path: Path) -> None:
    """ONNX Runtime 1.28 pools incorrectly only if its optimizer has changed the layout."""
    model = convolutions(tmp_path / "m.onnx", "AveragePool", 7, STEPPING)

    assert summarize(bench("1.28.0"), model) == ({("optimization", "pool", "AveragePool")}, [])


def test_nodes_that_have_no_name(bench: Make, tmp_path: Path) -> None:
    """Unnamed nodes are identified by their outputs."""
    path = convolutions(tmp_path / "m.onnx", "AveragePool", 16, HALVING)
    model = onnx.load(str(path))
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, str(path))
    reading = read_model(path, "model.onnx")
    running = bench("1.18.1", "1.31.1")
    comparisons, _ = compared(running, path, generate_cases(reading.facts, reading.view, {}, running.place()))

    assert {first and (first.node, first.output) for first in firsts(comparisons)} == {("", "pooled")}


def test_models_that_agree_are_not_searched(bench: Make, tmp_path: Path) -> None:
    """No node is reported if all outputs agree."""
    model = convolutions(tmp_path / "m.onnx", "MaxPool", 16, {"kernel_shape": [2, 2]})

    assert summarize(bench("1.18.1", "1.31.1"), model) == (set(), [])


def test_a_model_with_external_data(bench: Make, tmp_path: Path) -> None:
    """Copied models find their external data, also on releases that reject links out of a folder."""
    path = convolutions(tmp_path / "m.onnx", "AveragePool", 16, HALVING)
    onnx.save(onnx.load(str(path)), str(path), save_as_external_data=True, location="m.data", size_threshold=0)
    assert path.with_name("m.data").is_file()

    assert summarize(bench("1.18.1", "1.31.1"), path) == ({("runtime", "pool", "AveragePool")}, [])
