"""External data of models, compared with what each runtime reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from onnxgate.core.findings import Place, is_release_within
from onnxgate.evidence.support import DataProblem, ExternalDataOnRuntime
from onnxgate.model.parsed_weights import DEPTH_OPERATOR, list_parsed_weights
from onnxgate.model.reading.external_data import (
    DataLayout,
    classify_layout,
    find_data_files,
    find_spellings,
    inspect_data_file,
    is_spelling,
    read_external_entries,
)
from onnxgate.model.reading.view import ModelView
from onnxgate.model.subgraphs.reduced_models import list_unread_weights, list_unused_weights
from onnxgate.stages.support.runtime_data import ONNXRUNTIME, RuntimeSupportData
from onnxgate.support import limits
from onnxgate.support.limits import find_layout_span, supports_layout
from onnxgate.support.matching.kernels import WEB_ENGINE

UNCERTAIN_SHAPE = "a declared shape differs from the inferred shape, so that ONNX Runtime Web may refuse the model"
"""Doubt about models on ONNX Runtime Web, which never falls back to the inferred shape.

Source: 88 models of the backend tests with a wrong shape, loaded on 1.20.1, 1.22.0, 1.24.3 and 1.30.0: it refuses all;
ONNX Runtime 1.30.0 loads 65 of them.
"""
UNCLEAR_ENTRIES = "its external data has entries that the runtime may refuse, or read differently from other runtimes"
UNCLEAR_USE = "shape inference needs its external data, which the runtime may not read for this"

_LAST_WITHOUT_DEPTH, _FIRST_WITH_DEPTH = "1.20.1", "1.21.0"
"""Releases between which shape inference started to read the depth of OneHot. Source: see `parsed_weights`."""

ExternalTensors = Mapping[tuple[str, DataProblem], Sequence[str]]
"""Location and possible problem of external data -> names of the tensors, in the order of the model."""


def group_external_data(path: Path, view: ModelView) -> ExternalTensors:
    """Return the tensors of the model at `path` with external data, by file and possible problem."""
    if not view.external:
        return {}
    parsed = list_parsed_weights(view, path)
    files = find_data_files(view, path)
    layouts: dict[str, DataLayout] = {it: classify_layout(path, it) for it in files}
    unfound, idle = _find_unfound_weights(path, view), _find_idle_weights(view)
    groups: dict[tuple[str, DataProblem], list[str]] = {}
    for name, tensor in view.external:
        location = read_external_entries(tensor).get("location", "")
        size = files[location].size_bytes if location else None
        found: set[DataProblem] = {layouts.get(location, "inside"), *find_spellings(tensor, size)}
        if name in parsed:
            found.add("parsed-depth" if parsed[name] == DEPTH_OPERATOR else "parsed")
        if id(tensor) in unfound:
            found.add("unfound")
        if id(tensor) in unfound or id(tensor) in idle:
            found.discard("second-location")
        for problem in found:
            groups.setdefault((location, problem), []).append(name)
    return dict(sorted(groups.items()))


def find_refused_external_data(
    model: str, place: Place, view: ModelView, groups: ExternalTensors, supports: Sequence[RuntimeSupportData]
) -> Iterator[ExternalDataOnRuntime]:
    """Yield each external data file together with each runtime that refuses its path, use or spelling.

    Only tract reads the data of unused weights. Source: such models, loaded on all releases of OpenVINO (since 2026.0)
    and tract in `support/data`, and on ONNX Runtime as in `list_unread_weights`.
    """
    if not groups:
        return
    unread = list_unread_weights(view)
    for (location, problem), names in groups.items():
        for data in supports:
            read = tuple(name for name in names if data.engine == "tract" or name not in unread)
            span = _find_refused_span(problem, data)
            if read and span is not None:
                yield ExternalDataOnRuntime(model, place, data.name, location, problem, read, *span)


def _find_refused_span(problem: DataProblem, data: RuntimeSupportData) -> tuple[str, str] | None:
    """Return the first and last release that reads data with this problem; None if the runtime itself reads it."""
    if problem == "parsed-depth":
        release = data.planned.runtime.release
        refuses = data.engine == ONNXRUNTIME and is_release_within(release, _FIRST_WITH_DEPTH, "")
        return ("", _LAST_WITHOUT_DEPTH) if refuses else None
    if problem in ("parsed", "unfound"):
        return ("", "") if data.engine == ONNXRUNTIME and not _is_unclear(problem, data) else None
    if is_spelling(problem):
        refuses = limits.refuses_spelling(data.planned.runtime.release, problem, data.engine)
        return limits.find_spelling_span(problem, data.engine) if refuses else None
    layout = cast("DataLayout", problem)
    return find_layout_span(layout, data.engine) if supports_layout(data.limits, layout) is False else None


def find_doubts(
    groups: ExternalTensors, supports: Sequence[RuntimeSupportData], *, has_wrong_shape: bool
) -> dict[str, str]:
    """Return why a runtime may refuse the model as a whole, by its name."""
    doubts = {data.name: UNCERTAIN_SHAPE for data in supports if has_wrong_shape and data.engine == WEB_ENGINE}
    for _, problem in groups:
        for data in supports:
            if _is_unclear(problem, data):
                doubts[data.name] = UNCLEAR_USE if problem == "parsed" else UNCLEAR_ENTRIES
    return doubts


def _is_unclear(problem: DataProblem, data: RuntimeSupportData) -> bool:
    """Return whether a runtime may refuse external data with a problem, so that nothing is predicted.

    Source: Reshape and Unsqueeze with external data as a shape or axis, and 4 models whose branches have a weight with
    two locations, the first of which is missing, loaded on 1.15.1; `list_parsed_weights` and `_find_unfound_weights`
    name newer releases.
    """
    release = data.planned.runtime.release
    if problem in ("parsed", "unfound"):
        return data.engine == ONNXRUNTIME and is_release_within(release, *limits.UNMEASURED)
    return is_spelling(problem) and limits.is_spelling_unclear(release, problem, data.engine)


def _find_unfound_weights(path: Path, view: ModelView) -> frozenset[int]:
    """Return the `id()` of each tensor in a subgraph that names another file first, which does not exist.

    Releases of ONNX Runtime that accept a second location require the first file, but only in subgraphs.
    Source: 15 models, loaded on 1.16.3, 1.20.1, 1.24.4, 1.31.1 and 1.32.0, and 6 with a weight of the same or another
    name in the main graph on 1.16.3, 1.24.4 and 1.32.0.
    """
    own = {id(tensor) for tensor in view.proto.graph.initializer}
    found = set()
    for _, tensor in view.external:
        locations = [entry.value for entry in tensor.external_data if entry.key == "location"]
        is_inner = len(locations) > 1 and id(tensor) not in own
        if is_inner and inspect_data_file(path, locations[0]).problem:
            found.add(id(tensor))
    return frozenset(found)


def _find_idle_weights(view: ModelView) -> frozenset[int]:
    """Return the `id()` of each unused weight of a subgraph; it may have two locations.

    Source: 4 models with weights of the same name in both branches, used and unused, loaded on ONNX Runtime 1.16.3,
    1.30.0 and 1.32.0.
    """
    scopes = ((graph.proto, list_unused_weights(graph.proto)) for graph in view.graphs[1:])
    return frozenset(id(tensor) for graph, unused in scopes for tensor in graph.initializer if tensor.name in unused)
