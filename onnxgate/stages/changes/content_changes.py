"""Compare the contents of two models: how far weights moved, and from which release on each loads."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.evidence.lock import MinimumRelease
from onnxgate.model.diff.model_diff import measure_weight_changes
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.graph import ModelGraphs, build_graphs
from onnxgate.model.reading.structure import read_view
from onnxgate.model.reading.tensor_data import UnreadableWeightError
from onnxgate.model.reading.view import ModelView
from onnxgate.project.config.schema import Target
from onnxgate.project.git.revisions import MissingAtRevisionError
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.changes.revision_models import RevisionModels
from onnxgate.stages.support import GPU_ENGINE, look_up_runtime, restrict_to_known
from onnxgate.support import limits, operators
from onnxgate.support.limits import find_support_span
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import LoadVerdict, TypedModel
from onnxgate.support.matching.type_inference import infer_model_types

LoadVerdicts = Mapping[str, LoadVerdict]
"""By release, ascending."""


@dataclass(frozen=True, slots=True)
class ContentChange:
    """The content of a model compared with its baseline, and what could not be compared."""

    weights: WeightChanges | None = None
    minimum: MinimumRelease | None = None
    # Required releases that refuse the model now, and may have loaded it before.
    may_be_lost: tuple[str, ...] = ()
    # Required releases that loaded it, without a prediction for the model now.
    may_be_refused: tuple[str, ...] = ()
    incomplete: MissingAtRevisionError | None = None  # why not all of it could be compared
    by_lock: bool = False  # the baseline is from a lock, which does not record the inputs that have a default


@dataclass(frozen=True, slots=True)
class PresentModel:
    """A model as it is."""

    facts: ModelFacts
    file: Path
    targets: tuple[Target, ...]
    missing: tuple[str, str] | None = None  # why its content is not complete, and what helps


def compare_contents(baseline: RevisionModels, path: str, before: ModelFacts, now: PresentModel) -> ContentChange:
    """Compare a model with its baseline. The old file is fetched only if operators or versions differ."""
    incomplete = MissingAtRevisionError(now.missing[0], hint=now.missing[1]) if now.missing else None
    views: tuple[GroupVerdicts, ...] = ()
    view = read_view(now.file) if not now.missing else None
    if groups := _group_targets(now.targets):
        old: Sequence[LoadVerdicts] = [predict_from_facts(before)] * len(groups)
        if incomplete is None:
            try:
                needs_file = _load_requirements(before) != _load_requirements(now.facts)
                old = predict_from_operators(baseline.view(path, fetch=needs_file), groups)
            except MissingAtRevisionError as error:
                incomplete = error
            except UnreadableModel as reason:
                incomplete = MissingAtRevisionError(str(reason))
            finally:
                baseline.forget(path)
        if view is None:
            new: Sequence[LoadVerdicts] = [predict_from_facts(now.facts)] * len(groups)
        else:
            new = predict_from_operators(view, groups)
        views = tuple(map(GroupVerdicts, groups, old, new))
    weights = None
    if incomplete is None and view is not None:
        try:
            weights = _measure_weight_changes(baseline, path, build_graphs(view, now.file))
        except MissingAtRevisionError as error:
            incomplete = error
    return ContentChange(
        weights,
        find_minimum_release(views),
        _select_releases(views, "unknown", "refused"),
        _select_releases(views, "loads", "unknown"),
        incomplete,
        baseline.is_from_lock(path),
    )


def _load_requirements(facts: ModelFacts) -> tuple[object, ...]:
    """Return the facts that decide whether a release loads the model."""
    types = tuple((value.name, value.type) for value in (*facts.inputs, *facts.outputs))
    return facts.ir_version, facts.opsets, facts.function_opsets, facts.operators, types


def _measure_weight_changes(baseline: RevisionModels, path: str, now: ModelGraphs) -> WeightChanges | None:
    with tempfile.TemporaryDirectory(dir=baseline.scratch) as folder:
        old = baseline.content(path, Path(folder) / "past")
        try:
            return measure_weight_changes(build_graphs(old.view, old.path), now)
        except UnreadableWeightError as reason:
            raise MissingAtRevisionError(str(reason)) from reason


def _group_targets(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
    """Group targets of ONNX Runtime by providers and extensions, which may load a model for their group alone."""
    family = (limits.load_limit_table().engine, GPU_ENGINE)
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Target]] = {}
    for target in targets:
        if canonicalize_name(Requirement(target.runtime).name) in family:
            groups.setdefault((frozenset(target.providers), frozenset(target.extensions)), []).append(target)
    return tuple(map(tuple, groups.values()))


def predict_from_facts(facts: ModelFacts) -> LoadVerdicts:
    """Return the prediction for a model whose file is not available: it is refused, or it may load."""
    releases = {release: limits.get_limits(release) for release in operators.list_known_releases()}
    return {
        release: "unknown"
        if limit and limits.accepts_versions(limit, facts.ir_version, facts.needed_opsets)
        else "refused"
        for release, limit in releases.items()
    }


def predict_from_operators(view: ModelView, groups: Sequence[Sequence[Target]]) -> tuple[LoadVerdicts, ...]:
    """Predict for each group whether each release loads a model; its extensions and providers leave it open."""
    model = infer_model_types(view)
    releases = operators.list_known_releases()
    return tuple({release: _predict_release(model, release, targets) for release in releases} for targets in groups)


def _predict_release(model: TypedModel, release: str, targets: Sequence[Target]) -> LoadVerdict:
    planned = PlannedRuntime(
        runtime=LockedRuntime(engine=limits.load_limit_table().engine, release=release),
        targets=(),
        levels=(),
        providers=tuple(dict.fromkeys(provider for target in targets for provider in target.providers)),
        required=False,
        extensions=tuple(dict.fromkeys(extension for target in targets for extension in target.extensions)),
    )
    runtime = look_up_runtime(planned, {})
    assert runtime is not None
    prediction = predict(model, runtime.implementation, runtime.limits, planned.providers)
    return restrict_to_known(prediction, runtime).verdict


@dataclass(frozen=True, slots=True)
class GroupVerdicts:
    """Verdicts of releases for targets that bring the same with them, before and now."""

    targets: Sequence[Target]
    before: LoadVerdicts
    now: LoadVerdicts

    def select_required(self, before: LoadVerdict, now: LoadVerdict) -> set[str]:
        """Return the releases with these verdicts that a target requires, locked or not; custom builds do not count."""
        admitted = [Requirement(target.runtime).specifier for target in self.targets if target.python is None]
        return {
            release
            for release in self.before
            if (self.before[release], self.now[release]) == (before, now)
            and any(specifier.contains(release) for specifier in admitted)
        }


def find_minimum_release(views: Sequence[GroupVerdicts]) -> MinimumRelease | None:
    """None if it is the same, or if no release is known to be lost and some predictions are missing.

    Without `before` and `after` if some are lost and others are not known.
    """
    complete = next((view for view in views if "unknown" not in (*view.before.values(), *view.now.values())), None)
    minimum = MinimumRelease(
        before=_first_loading_release(complete.before) if complete is not None else "",
        after=_first_loading_release(complete.now) if complete is not None else "",
        lost=_select_releases(views, "loads", "refused"),
    )
    return minimum if minimum.lost or minimum.before != minimum.after else None


def _select_releases(views: Sequence[GroupVerdicts], before: LoadVerdict, now: LoadVerdict) -> tuple[str, ...]:
    releases = set[str]().union(*(view.select_required(before, now) for view in views))
    return tuple(release for release in operators.list_known_releases() if release in releases)


def _first_loading_release(verdicts: LoadVerdicts) -> str:
    """Return the release since which all load the model; the first that loads it if the newest does not."""
    releases = list(verdicts)
    loads = [verdict == "loads" for verdict in verdicts.values()]
    if all(loads):
        return releases[0]
    first = next((release for release in releases if verdicts[release] == "loads"), "")
    return find_support_span(releases, loads)[0] or first
