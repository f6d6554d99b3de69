"""Generated models are valid, reproducible and of the requested size."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import checker, helper

from bench import corpora
from bench.corpora.ensembles import write_ensemble


@pytest.mark.parametrize("number", range(6))
def test_a_small_model_of_each_family_is_valid(tmp_path: Path, number: int) -> None:
    """`onnx.checker` accepts a model of each family."""
    path = tmp_path / "model.onnx"

    corpora.write_small(path, number)

    checker.check_model(str(path), full_check=True)


def test_families_differ() -> None:
    """The six families alternate."""
    assert len(corpora.FAMILY_NAMES) == len(set(corpora.FAMILY_NAMES)) == 6


def test_a_model_is_the_same_each_time(tmp_path: Path) -> None:
    """The bytes of a model depend only on its number."""
    for name in ("one", "other"):
        corpora.write_small(tmp_path / name, 3)

    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_a_streamed_model_is_valid_and_nearly_as_large_as_requested(tmp_path: Path) -> None:
    """A model written in pieces is valid and has about the requested size."""
    path = tmp_path / "model.onnx"

    written = corpora.write_large(path, "transformer", 1, 4_000_000, 100)

    checker.check_model(str(path), full_check=True)
    assert path.stat().st_size == written == pytest.approx(4_000_000, rel=0.05)


def test_a_deep_model_has_exactly_its_nodes(tmp_path: Path) -> None:
    """The graph has exactly the number of nodes in its name."""
    path = tmp_path / "model.onnx"

    corpora.write_deep(path, 300)

    checker.check_model(str(path), full_check=True)
    assert 300 == len(onnx.load(path).graph.node)


def test_an_ensemble_is_valid_and_nearly_as_large_as_requested(tmp_path: Path) -> None:
    """An ensemble written tree by tree is valid and has the same bytes each time."""
    paths = [tmp_path / name for name in ("model.onnx", "other.onnx")]

    sizes = [write_ensemble(path, 400_000, depth=6) for path in paths]

    checker.check_model(str(paths[0]), full_check=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [paths[0].stat().st_size] * 2 == sizes == [pytest.approx(400_000, rel=0.1)] * 2


def test_the_trees_of_an_ensemble_are_complete(tmp_path: Path) -> None:
    """Each inner node has two children in its tree, and each leaf a class."""
    path = tmp_path / "model.onnx"

    write_ensemble(path, 60_000, depth=4)

    (node,) = onnx.load(path).graph.node
    lists = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    count = len(lists["nodes_treeids"])
    trees = count // 31
    assert {name: len(items) for name, items in lists.items() if name.startswith("nodes_")} == dict.fromkeys(
        (name for name in lists if name.startswith("nodes_")), 31 * trees
    )
    assert sorted(lists["class_nodeids"]) == sorted(list(range(15, 31)) * trees)
    assert lists["nodes_truenodeids"][:15] == [2 * number + 1 for number in range(15)]
    assert lists["nodes_falsenodeids"][:15] == [2 * number + 2 for number in range(15)]
