"""Generate a corpus, predict and load its models on several releases, and compare the results."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnx

from campaigns.conformance import backend_models, corpora, engine_loads, environments, schema_fuzz, schemas
from campaigns.conformance.comparison import Comparison, compare
from campaigns.conformance.load_outcome import BACKEND, PAIRS
from campaigns.conformance.real_loads import listed, observed
from onnxgate.model.reading.view import ModelView
from onnxgate.support.limits import get_limits
from onnxgate.support.matching.operations import TypedModel
from onnxgate.support.matching.type_inference import infer_model_types

RELEASES = {
    "backend": ("1.16.3", "1.17.3", "1.19.2", "1.21.1", "1.23.2", "1.24.4", "1.28.0", "1.32.0"),
    "fuzz": ("1.16.3", "1.18.1", "1.21.1", "1.23.2", "1.24.4", "1.26.0", "1.28.0", "1.32.0"),
    "pairs": ("1.16.3", "1.23.2", "1.28.0", "1.32.0"),
}
ENGINE_RELEASES = {
    "onnxruntime-web": ("1.20.1", "1.22.0", "1.23.2", "1.24.3", "1.27.0", "1.30.0"),
    "openvino": ("2024.5.0", "2025.3.0", "2026.1.0", "2026.4.1"),
    "tract": ("0.21.8", "0.22.4", "0.23.0", "0.23.3", "0.23.7", "0.23.9"),
}
"""Default releases of the other engines, which only load the backend corpus."""


def compared_on(engine: str, releases: Sequence[str], cache: Path, optimization: str = "all") -> Iterator[Comparison]:
    """Yield the comparison of the backend corpus for each release of any engine with a support table."""
    path = made(BACKEND, ("",), cache)[""]
    known = list(prepared(corpora.models(path)))
    for release in releases:
        stored = cache / "observed" / f"{engine}-{release}-{BACKEND}-{optimization}.json"
        texts = engine_loads.observed(engine, release, path, stored, optimization)
        yield compare(Comparison(BACKEND, optimization, release, engine), known, texts)


def compared(corpus: str, releases: Sequence[str], cache: Path, optimization: str = "all") -> Iterator[Comparison]:
    """Yield the comparison of each release; loads of several releases run in parallel."""
    paths = made(corpus, releases, cache)

    def load(release: str) -> dict[str, str]:
        stored = cache / "observed" / f"{release}-{corpus}-{optimization}.json"
        return observed(environments.python_of(release, cache), paths[release], stored, optimization)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        loads = {release: pool.submit(load, release) for release in releases}
        known: dict[Path, list[tuple[str, TypedModel]]] = {}
        for release, texts in loads.items():
            if paths[release] not in known:
                known = {paths[release]: list(prepared(corpora.models(paths[release])))}
            yield compare(Comparison(corpus, optimization, release), known[paths[release]], texts.result())


def made(corpus: str, releases: Sequence[str], cache: Path) -> dict[str, Path]:
    """Return the corpus for each release: the backend corpus is the same for all, others are generated per release."""
    if corpus == BACKEND:
        return dict.fromkeys(releases, corpora.write(backend_models.every(cache), cache / "backend.zip"))
    return {
        release: corpora.write(dict(fuzzed(release, cache, corpus == PAIRS)), cache / f"{corpus}-{release}.zip")
        for release in releases
    }


def fuzzed(release: str, cache: Path, paired: bool = False) -> Iterator[tuple[str, bytes]]:
    """Generate the fuzz corpus for the schemas of a release."""
    limits = get_limits(release)
    assert limits is not None
    release_schemas = schemas.read(listed(environments.python_of(release, cache), cache / f"schemas-{release}.json"))
    return schema_fuzz.every(release_schemas, limits.opsets, paired)


def prepared(models: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, TypedModel]]:
    """Yield every model with inferred types, as predictions require."""
    for name, data in models:
        yield name, infer_model_types(ModelView(onnx.ModelProto.FromString(data)))
