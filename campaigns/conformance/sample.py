"""The part of the suite that every test run has: a sample of both corpora, always the same one."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from pathlib import Path

from campaigns.conformance import backend_models as conformance_backend_models
from campaigns.conformance.load_outcome import BACKEND
from campaigns.conformance.suite import RELEASES

QUICK_RELEASES = RELEASES[BACKEND]
WHEELS = ("1.12.0",)  # one that is old enough for every release to load its models
SIZE = 500  # of each sample
SEED = 3


def sampled(models: Iterable[tuple[str, bytes]]) -> dict[str, bytes]:
    """Some models, in their order."""
    found: Mapping[str, bytes] = dict(models)
    chosen = set(random.Random(SEED).sample(sorted(found), min(SIZE, len(found))))
    return {name: data for name, data in found.items() if name in chosen}


def backend_models(cache: Path) -> dict[str, bytes]:
    """Some of the models that the installed onnx generates and that one older wheel has."""
    return sampled(conformance_backend_models.distinct(conformance_backend_models.models(WHEELS, cache)).items())
