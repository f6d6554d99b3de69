"""A fixed sample of both corpora for every test run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from campaigns.conformance import backend_models as conformance_backend_models
from campaigns.conformance.load_outcome import BACKEND
from campaigns.conformance.suite import RELEASES

QUICK_RELEASES = RELEASES[BACKEND]
WHEELS = ("1.12.0",)  # old enough that every release loads its models
SIZE = 500  # size of each sample
SEED = 3


def sampled(models: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Return a sample of models, in order."""
    by_name: Mapping[str, bytes] = dict(models)
    chosen = set(random.Random(SEED).sample(sorted(by_name), min(SIZE, len(by_name))))
    return {name: data for name, data in by_name.items() if name in chosen}


def backend_models(cache: Path) -> dict[str, bytes]:
    """Return a sample of the models of the installed onnx and of one older wheel."""
    return sampled(conformance_backend_models.distinct(conformance_backend_models.models(WHEELS, cache)).items())
