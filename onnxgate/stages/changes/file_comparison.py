"""Read and compare the files of two revisions of a model. These functions run in child processes."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from onnxgate.core.files import sha256_of
from onnxgate.core.process_pool import CallFailure
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import iter_data_locations
from onnxgate.model.reading.fact_extraction import extract_facts, read_facts
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type
from onnxgate.model.reading.graph import build_graphs
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError
from onnxgate.model.reading.view import ModelView
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.support.operator_predictions import restrict_to_known
from onnxgate.stages.support.runtime_data import look_up_runtime
from onnxgate.support import operators
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import LoadVerdict, TypedModel
from onnxgate.support.matching.type_inference import infer_model_types

Argument = TypeVar("Argument")
Answer = TypeVar("Answer")
LoadVerdicts = Mapping[str, LoadVerdict]
"""Verdicts by release, in ascending order."""


class FileCalls(Protocol):
    """Calls functions that read files in child processes, and caches results that depend only on file contents."""

    def call(
        self, function: Callable[[Argument], Answer], argument: Argument, answer: type[Answer], files: Sequence[Path]
    ) -> Answer | CallFailure:
        """Return the result of `function`, which reads `files`."""

    def recall(self, key: Sequence[object], answer: type[Answer]) -> Answer | None:
        """Return the cached result with this key, or None."""

    def keep(self, key: Sequence[object], answer: object, files: Mapping[Path, str]) -> None:
        """Cache a result that depends only on its key, if each of `files` still has the SHA-256 in the key."""


class FactsReading(msgspec.Struct, frozen=True):
    """Facts of one file, or the reason why it is not a model."""

    facts: ModelFacts | None = None
    locations: tuple[str, ...] = ()  # locations of its external data
    invalid: str = ""


def read_base(file: Path) -> FactsReading:
    """Read a model that was written without its data. Its facts contain neither a path nor data files."""
    if other_type := detect_other_type(file):
        return FactsReading(invalid=other_type)
    try:
        view = _view_base(file)
    except UnreadableModel as reason:
        return FactsReading(invalid=str(reason))
    locations = tuple(sorted({*iter_data_locations(view)}))
    facts = msgspec.structs.replace(
        extract_facts(view, file, ""), external=(), unread=tuple(location for location in locations if location)
    )
    return FactsReading(facts, locations)


@functools.lru_cache(maxsize=1)
def _view_base(file: Path) -> ModelView:
    """Return the view of a file. It is cached because a model is compared right after its facts are read."""
    return read_view(file)


class NamedFile(msgspec.Struct, frozen=True):
    """A model file and its path in the project."""

    file: Path
    path: str


def read_present(named: NamedFile) -> FactsReading:
    """Read a model together with its data."""
    if other_type := detect_other_type(named.file):
        return FactsReading(invalid=other_type)
    try:
        return FactsReading(read_facts(named.file, named.path))
    except (OSError, UnreadableModel) as reason:
        return FactsReading(invalid=str(reason))


class LoadConditions(msgspec.Struct, frozen=True):
    """Engine of a target, and its providers and extensions, which may allow a release to load more models."""

    engine: str  # that has a support table
    providers: tuple[str, ...]
    extensions: tuple[str, ...]


class BaseFiles(msgspec.Struct, frozen=True):
    """Files of a model that were written from a revision."""

    model: Path
    complete: Path | None  # the model in the same folder as its data; None if data are missing
    digests: tuple[tuple[Path, str], ...] = ()  # expected SHA-256 of its files


class ContentQuery(msgspec.Struct, frozen=True):
    """Two files to compare; without a base, predictions are made only for the current file."""

    present: Path
    base: BaseFiles | None
    conditions: tuple[LoadConditions, ...]  # predictions are made for each of them


class ContentComparison(msgspec.Struct, frozen=True):
    """Verdicts for both files, in the order of `ContentQuery.conditions`, and changes to weights."""

    before: tuple[dict[str, LoadVerdict], ...] = ()
    now: tuple[dict[str, LoadVerdict], ...] = ()
    weights: WeightChanges | None = None
    unreadable: str = ""  # reason if weights were not compared
    failed: str = ""  # reason if nothing was compared
    lasting: bool = False  # can be cached: all available data was read, and the base files match their digests


def compare_files(query: ContentQuery) -> ContentComparison:
    """Predict which releases load each file, and compare the weights."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # each NumPy thread reserves 40 MB of the memory limit
    from onnxgate.model.diff.model_diff import measure_weight_changes

    base = query.base
    try:
        present = read_view(query.present)
    except (OSError, UnreadableModel) as reason:
        return ContentComparison(failed=f"the file changed during the check and cannot be read: {reason}")
    now = predict_from_operators(present, query.conditions)
    if base is None:
        return ContentComparison(now=now, lasting=True)
    old = _view_base(base.model)
    _view_base.cache_clear()
    before = predict_from_operators(old, query.conditions)
    if base.complete is None:
        return ContentComparison(before, now, lasting=_has_digests(base))
    try:
        weights = measure_weight_changes(build_graphs(old, base.complete), build_graphs(present, query.present))
    except (OSError, UnreadableModel, UnreadableWeightError) as reason:
        return ContentComparison(before, now, unreadable=str(reason))
    return ContentComparison(before, now, weights, lasting=_has_digests(base))


def _has_digests(base: BaseFiles) -> bool:
    return all(sha256_of(file) == sha256 for file, sha256 in base.digests)


def predict_from_operators(view: ModelView, conditions: Sequence[LoadConditions]) -> tuple[dict[str, LoadVerdict], ...]:
    """Predict for each condition which releases load a model; "unknown" if that depends on extensions or providers."""
    if not conditions:
        return ()
    model = infer_model_types(view)
    return tuple(
        {release: _predict_release(model, release, it) for release in operators.list_known_releases(it.engine)}
        for it in conditions
    )


def _predict_release(model: TypedModel, release: str, conditions: LoadConditions) -> LoadVerdict:
    planned = PlannedRuntime(
        runtime=LockedRuntime(engine=conditions.engine, release=release),
        targets=(),
        levels=(),
        providers=conditions.providers,
        required=False,
        extensions=conditions.extensions,
    )
    runtime = look_up_runtime(planned, {})
    assert runtime is not None
    prediction = predict(model, runtime.implementation, runtime.limits, planned.providers)
    return restrict_to_known(prediction, runtime).verdict
