"""Corpora: projects with generated models. With the same release of onnx, every machine generates the same bytes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FAMILY_NAMES = ("cnn", "transformer", "mlp", "quantized", "branching", "functional")
_LARGE_FAMILIES = ("cnn", "transformer", "mlp")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A named set of generated models. `write` writes them to a folder."""

    name: str
    title: str
    count: int
    write: Callable[[Path], None]


def _small(count: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for number in range(count):
            write_small(folder / f"{number:04}.onnx", number)

    return write


def write_small(path: Path, number: int) -> None:
    """Write a small model of 5 to 200 nodes. `number` selects one of six families; odd numbers have inferred shapes."""
    from onnx import shape_inference

    from bench.corpora.draft import Draft
    from bench.corpora.families import FAMILIES
    from bench.corpora.streams import whole_model

    draft = Draft(f"small {number}", ir_version=8 + number % 3, opset=17 + number % 5, traced=number % 4 == 0)
    FAMILIES[FAMILY_NAMES[number % len(FAMILY_NAMES)]](draft, 5 + number * 37 % 196, 8 + number % 3 * 4)
    model = whole_model(draft, number)
    if number % 2:
        model = shape_inference.infer_shapes(model)
    path.write_bytes(model.SerializeToString(deterministic=True))


def _large(count: int, size_bytes: int, nodes: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for number in range(count):
            family = _LARGE_FAMILIES[(number + 1) % len(_LARGE_FAMILIES)]
            write_large(folder / f"{number:04}.onnx", family, number, size_bytes, nodes + number % 40)

    return write


def write_large(path: Path, family: str, number: int, size_bytes: int, nodes: int) -> int:
    """Write a model with about `size_bytes` bytes of weights; return its exact size in bytes."""
    from bench.corpora.draft import Draft
    from bench.corpora.families import FAMILIES
    from bench.corpora.streams import write_model

    width = 64
    for _ in range(4):  # weights grow nearly with the square of the width
        draft = Draft(f"{family} {number}", ir_version=10, opset=18, traced=True)
        FAMILIES[family](draft, nodes, width)
        width = max(8, round(width * (size_bytes / draft.weights_bytes) ** 0.5))
    return write_model(draft, path, number)


def _deep(nodes: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        write_deep(folder / f"{nodes}-nodes.onnx", nodes)

    return write


def write_deep(path: Path, nodes: int) -> None:
    """Write a transformer with this exact number of nodes, narrow layers and inferred shapes."""
    from onnx import shape_inference

    from bench.corpora.draft import FLOAT, Draft
    from bench.corpora.families import transformer
    from bench.corpora.streams import whole_model

    draft = Draft(f"{nodes} nodes", ir_version=10, opset=18, traced=True)
    transformer(draft, nodes - 40, 8)
    x = draft.outputs.pop().name
    while len(draft.nodes) < nodes:
        x = draft.node("Relu", x)
    draft.output(x, FLOAT, ["batch", "time", 10])
    path.write_bytes(shape_inference.infer_shapes(whole_model(draft, 0)).SerializeToString(deterministic=True))


def _ensemble(size_bytes: int) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from bench.corpora.ensembles import write_ensemble

        write_ensemble(folder / "forest.onnx", size_bytes)

    return write


ALL: tuple[Corpus, ...] = (
    Corpus("one", "1 small model", 1, _small(1)),
    Corpus("small-100", "100 small models", 100, _small(100)),
    Corpus("small-1000", "1,000 small models", 1000, _small(1000)),
    Corpus("nodes-2000", "graph of 2,000 nodes", 1, _deep(2000)),
    Corpus("nodes-20000", "graph of 20,000 nodes", 1, _deep(20_000)),
    Corpus("large-10", "10 models of 50 MB", 10, _large(10, 50_000_000, 60)),
    Corpus("large-100", "100 models of 50 MB", 100, _large(100, 50_000_000, 60)),
    Corpus("huge", "model of 1.9 GB", 1, _large(1, 1_900_000_000, 900)),
    Corpus("ensemble", "tree ensemble of 200 MB", 1, _ensemble(200_000_000)),
)


def by_name(name: str) -> Corpus:
    """Return the corpus with this name."""
    return next(corpus for corpus in ALL if corpus.name == name)
