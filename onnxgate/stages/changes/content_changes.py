"""Compare the contents of two models: how far weights moved, and from which release on each loads."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.evidence.lock import MinimumRelease, WeightChanges
from onnxgate.model.diff.model_diff import measure_weight_movement
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.file_format import UnreadableModel
from onnxgate.model.reading.structure import read_structure
from onnxgate.model.reading.tensor_data import UnreadableWeightError
from onnxgate.project.config.schema import Target
from onnxgate.project.git.revisions import MissingAtRevisionError
from onnxgate.project.lock.types import LockedRuntime
from onnxgate.project.plan import PlannedRuntime
from onnxgate.stages.changes.revision_models import RevisionModels
from onnxgate.stages.support.predictions import GPU_ENGINE, look_up_runtime, restrict_to_known
from onnxgate.support import limits, operators
from onnxgate.support.limits import find_support_span
from onnxgate.support.matching.kernels import predict
from onnxgate.support.matching.operations import TypedModel
from onnxgate.support.matching.type_inference import infer_model_types

if TYPE_CHECKING:
    from onnx import ModelProto


TargetGroups = Sequence[Sequence[Target]]
"""Targets that bring the same with them."""


@dataclass(frozen=True, slots=True)
class ContentChange:
    """`lacking`: why not all of it could be compared. `may_be_lost`: promised releases that may have loaded the model.

    They refuse it now; where nothing lacks, it cannot be predicted whether they did before. `may_be_refused` are those
    that loaded it, where it cannot be predicted whether they do now. `by_lock`: a lock told what it was, and locks do
    not know which inputs have a default.
    """

    weights: WeightChanges | None = None
    minimum: MinimumRelease | None = None
    may_be_lost: tuple[str, ...] = ()
    may_be_refused: tuple[str, ...] = ()
    lacking: MissingAtRevisionError | None = None
    by_lock: bool = False


@dataclass(frozen=True, slots=True)
class PresentModel:
    """A model as it is. `away`: why its content is not all here, and what helps."""

    facts: ModelFacts
    file: Path
    targets: tuple[Target, ...]
    away: tuple[str, str] | None = None


def compare_contents(past: RevisionModels, path: str, before: ModelFacts, now: PresentModel) -> ContentChange:
    """Compare a model with its baseline. The old file is fetched only if operators or versions differ."""
    lacking = MissingAtRevisionError(now.away[0], hint=now.away[1]) if now.away else None
    views: tuple[GroupVerdicts, ...] = ()
    if groups := group_targets(select_onnxruntime_targets(now.targets)):
        then, lacking = _baseline_verdicts(past, path, before, now, groups, lacking)
        views = tuple(map(GroupVerdicts, groups, then, _current_verdicts(now, groups)))
    weights, lacking = (None, lacking) if lacking else _weight_changes_since(past, path, now.file)
    return ContentChange(
        weights,
        find_minimum_release(views),
        find_possibly_lost(views),
        find_possibly_refused(views),
        lacking,
        past.is_told_by_lock(path),
    )


def _current_verdicts(now: PresentModel, groups: TargetGroups) -> Sequence[LoadVerdicts]:
    return (
        [predict_from_facts(now.facts)] * len(groups)
        if now.away
        else predict_from_operators(read_structure(now.file), groups)
    )


def _baseline_verdicts(
    past: RevisionModels,
    path: str,
    before: ModelFacts,
    now: PresentModel,
    groups: TargetGroups,
    lacking: MissingAtRevisionError | None,
) -> tuple[Sequence[LoadVerdicts], MissingAtRevisionError | None]:
    stamps = [predict_from_facts(before)] * len(groups)
    if lacking is not None:
        return stamps, lacking
    try:
        structure = past.structure(path, fetch=_load_requirements(before) != _load_requirements(now.facts))
        return predict_from_operators(structure, groups), None
    except MissingAtRevisionError as error:
        return stamps, error
    except UnreadableModel as reason:
        return stamps, MissingAtRevisionError(str(reason))
    finally:
        past.forget(path)


def _weight_changes_since(
    past: RevisionModels, path: str, file: Path
) -> tuple[WeightChanges | None, MissingAtRevisionError | None]:
    try:
        with tempfile.TemporaryDirectory(dir=past.scratch) as folder:
            return _compare_weights(past.content(path, Path(folder) / "past"), file), None
    except MissingAtRevisionError as error:
        return None, error


def _load_requirements(facts: ModelFacts) -> tuple[object, ...]:
    """What a release looks at, as far as facts know it."""
    types = tuple((value.name, value.type) for value in (*facts.inputs, *facts.outputs))
    return facts.ir_version, facts.opsets, facts.function_opsets, facts.operators, types


def _compare_weights(old: Path, new: Path) -> WeightChanges | None:
    try:
        moved = measure_weight_movement(old, new)
    except (UnreadableModel, UnreadableWeightError) as reason:
        raise MissingAtRevisionError(str(reason)) from reason
    if moved is None:
        return None
    return WeightChanges(
        changed=moved.changed,
        of=moved.of,
        added=moved.added,
        removed=moved.removed,
        largest=moved.largest,
        name=moved.name,
    )


LoadVerdict = Literal["loads", "refused", "unknown"]
LoadVerdicts = Mapping[str, LoadVerdict]
"""By release, ascending."""


def select_onnxruntime_targets(targets: Sequence[Target]) -> tuple[Target, ...]:
    """Return the targets that require releases of ONNX Runtime."""
    family = (limits.load_limit_table().engine, GPU_ENGINE)
    return tuple(target for target in targets if canonicalize_name(Requirement(target.runtime).name) in family)


def predict_from_facts(facts: ModelFacts) -> LoadVerdicts:
    """Return the prediction for a model whose file is not available: it is refused, or it may load."""
    taken = {known_release: limits.get_limits(known_release) for known_release in operators.list_known_releases()}
    return {
        release: "unknown"
        if limit and limits.accepts_versions(limit, facts.ir_version, facts.needed_opsets)
        else "refused"
        for release, limit in taken.items()
    }


def group_targets(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
    """Targets that bring the same with them: what a provider or an extension of one may do, it does for no other."""
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Target]] = {}
    for target in targets:
        groups.setdefault((frozenset(target.providers), frozenset(target.extensions)), []).append(target)
    return tuple(tuple(group) for group in groups.values())


def predict_from_operators(proto: ModelProto, groups: Sequence[Sequence[Target]]) -> tuple[LoadVerdicts, ...]:
    """For each group what each release does with a model. What its extensions and providers may bring is not known."""
    prepared = infer_model_types(proto)
    return tuple(_predict_group(prepared, group) for group in groups)


def _predict_group(prepared: TypedModel, targets: Sequence[Target]) -> LoadVerdicts:
    verdicts: dict[str, LoadVerdict] = {}
    for release in operators.list_known_releases():
        known = look_up_runtime(_create_runtime(release, targets), {})
        assert known is not None
        prediction = predict(prepared, known.implementation, known.limits, known.planned.providers)
        verdicts[release] = restrict_to_known(prediction, known).verdict
    return verdicts


@dataclass(frozen=True, slots=True)
class GroupVerdicts:
    """What releases do with a model for targets that bring the same with them, then and now."""

    targets: Sequence[Target]
    then: LoadVerdicts
    now: LoadVerdicts

    @property
    def is_known(self) -> bool:
        """Return whether every release has a prediction."""
        return "unknown" not in (*self.then.values(), *self.now.values())

    def admitted(self, then: LoadVerdict, now: LoadVerdict) -> set[str]:
        """Return the required releases with these predictions before and now."""
        return set(
            _filter_admitted(
                (release for release in self.then if (self.then[release], self.now[release]) == (then, now)),
                self.targets,
            )
        )


def find_minimum_release(views: Sequence[GroupVerdicts]) -> MinimumRelease | None:
    """None if it is the same, or if no release is known to be lost and some predictions are missing.

    Without `before` and `after` where some are lost and others are not known.
    """
    known = next((view for view in views if view.is_known), None)
    before, after = (
        (_first_loading_release(known.then), _first_loading_release(known.now)) if known is not None else ("", "")
    )
    minimum = MinimumRelease(before=before, after=after, lost=_select_releases(views, "loads", "refused"))
    return minimum if minimum.lost or minimum.before != minimum.after else None


def find_possibly_lost(views: Sequence[GroupVerdicts]) -> tuple[str, ...]:
    """Return required releases that refuse the model now, without a prediction for the model before."""
    return _select_releases(views, "unknown", "refused")


def find_possibly_refused(views: Sequence[GroupVerdicts]) -> tuple[str, ...]:
    """Return required releases that loaded the model, without a prediction for the model now."""
    return _select_releases(views, "loads", "unknown")


def _select_releases(views: Sequence[GroupVerdicts], then: LoadVerdict, now: LoadVerdict) -> tuple[str, ...]:
    releases = set[str]().union(*(view.admitted(then, now) for view in views))
    return tuple(release for release in operators.list_known_releases() if release in releases)


def _create_runtime(release: str, targets: Sequence[Target]) -> PlannedRuntime:
    return PlannedRuntime(
        runtime=LockedRuntime(engine=limits.load_limit_table().engine, release=release),
        targets=(),
        levels=(),
        providers=tuple(dict.fromkeys(provider for target in targets for provider in target.providers)),
        required=False,
        extensions=tuple(dict.fromkeys(extension for target in targets for extension in target.extensions)),
    )


def _first_loading_release(verdicts: LoadVerdicts) -> str:
    """The first release from which on every one loads it; where the newest does not, the first that does."""
    every = list(verdicts)
    loads = [verdict == "loads" for verdict in verdicts.values()]
    if all(loads):
        return every[0]
    return find_support_span(every, loads)[0] or next(
        (release for release, works in zip(every, loads, strict=True) if works), ""
    )


def _filter_admitted(releases: Iterable[str], targets: Sequence[Target]) -> tuple[str, ...]:
    """The releases that a requirement admits, be they locked or not; a build of one's own is none of them."""
    admitted = [Requirement(target.runtime).specifier for target in targets if target.python is None]
    return tuple(release for release in releases if any(specifier.contains(release) for specifier in admitted))
