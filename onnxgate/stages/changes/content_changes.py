"""Compare the contents of two models: their weights, and the releases that load each model."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.core.findings import runtime_sort_key
from onnxgate.core.process_pool import CallFailure, describe_failure
from onnxgate.evidence.lock import MinimumRelease
from onnxgate.model.diff.result import WeightChanges
from onnxgate.model.facts import ModelFacts
from onnxgate.model.reading.external_data import classify_layouts, list_content_files
from onnxgate.project.config.schema import Target
from onnxgate.project.engines import ENGINES
from onnxgate.project.git.revisions import MissingAtRevisionError
from onnxgate.stages.changes.file_comparison import (
    BaseFiles,
    ContentComparison,
    ContentQuery,
    LoadConditions,
    LoadVerdicts,
    compare_files,
)
from onnxgate.stages.changes.revision_models import RevisionModels
from onnxgate.stages.support.runtime_data import find_table_engine
from onnxgate.support import limits, operators
from onnxgate.support.limits import find_support_span
from onnxgate.support.matching.operations import LoadVerdict


@dataclass(frozen=True, slots=True)
class ContentChange:
    """Comparison of a model's content with its baseline, including parts that could not be compared."""

    weights: WeightChanges | None = None
    minimums: tuple[MinimumRelease, ...] = ()
    # Required runtimes that refuse the current model, but may have loaded the baseline.
    may_be_lost: tuple[str, ...] = ()
    # Required runtimes that loaded the baseline, without a prediction for the current model.
    may_be_refused: tuple[str, ...] = ()
    incomplete: MissingAtRevisionError | None = None  # why the comparison is incomplete
    failure: tuple[str, str] | None = None  # reason and hint if only the facts were compared
    by_lock: bool = False  # the baseline is a lock entry, which does not record inputs with a default value


@dataclass(frozen=True, slots=True)
class PresentModel:
    """The current state of a model."""

    facts: ModelFacts
    file: Path
    targets: tuple[Target, ...]
    missing: tuple[str, str] | None = None  # reason and hint if its content is incomplete


def compare_contents(baseline: RevisionModels, path: str, before: ModelFacts, now: PresentModel) -> ContentChange:
    """Compare a model with its baseline. The old file is fetched only if operators or version fields differ."""
    groups = _group_targets(now.targets)
    conditions = tuple(map(_load_conditions, groups))
    old: Sequence[LoadVerdicts] = [predict_from_facts(before, it.engine) for it in conditions]
    new: Sequence[LoadVerdicts] = [predict_from_facts(now.facts, it.engine) for it in conditions]
    weights: WeightChanges | None = None
    failure: tuple[str, str] | None = None
    if now.missing:
        incomplete: MissingAtRevisionError | None = MissingAtRevisionError(now.missing[0], hint=now.missing[1])
    else:
        answer, incomplete = _compare_files(baseline, path, before, now, conditions)
        if isinstance(answer, CallFailure):
            failure = describe_failure(answer, "comparing the model with its baseline")
        elif answer.failed:
            failure = (answer.failed, "run the check again when no other program is writing to the file")
        else:
            old, new, weights = answer.before or old, answer.now, answer.weights
    views = tuple(map(GroupVerdicts, groups, old, new)) if failure is None else ()
    return ContentChange(
        weights,
        find_minimum_releases(views),
        _select_runtimes(views, "unknown", "refused"),
        _select_runtimes(views, "loads", "unknown"),
        incomplete,
        failure,
        baseline.is_from_lock(path),
    )


def _compare_files(
    baseline: RevisionModels, path: str, before: ModelFacts, now: PresentModel, conditions: tuple[LoadConditions, ...]
) -> tuple[ContentComparison | CallFailure, MissingAtRevisionError | None]:
    """Compare the old file with the current file; also return which part of the old model is not available."""
    calls, layouts = baseline.calls, classify_layouts(now.facts, now.file)
    key: tuple[object, ...] = ("contents", now.facts.sha256, now.facts.external, layouts, conditions)
    whole_key = (*key, before.sha256, before.external)
    if known := _recall(baseline, whole_key, now):
        return known, None
    needs_file = bool(conditions) and _load_requirements(before) != _load_requirements(now.facts)
    with tempfile.TemporaryDirectory(dir=baseline.scratch) as folder:
        try:
            base, incomplete = _write_base(baseline, path, before, Path(folder), fetch=needs_file)
            if incomplete is None:
                key = whole_key
            elif not conditions:
                return ContentComparison(), incomplete
            else:
                key = (*key, before.sha256) if base is not None else key
                if known := _recall(baseline, key, now):
                    return known, incomplete
            files = list(list_content_files(now.facts, now.file))
            if base is not None:
                files += [base.model, *(file for file, _ in base.digests if file != base.complete)]
            answer = calls.call(compare_files, ContentQuery(now.file, base, conditions), ContentComparison, files)
        finally:
            baseline.forget(path)
    if isinstance(answer, CallFailure):
        return answer, incomplete
    if answer.unreadable:
        incomplete = MissingAtRevisionError(answer.unreadable)
    if answer.lasting and not now.facts.unread:
        calls.keep(key, answer, list_content_files(now.facts, now.file))
    return answer, incomplete


def _recall(baseline: RevisionModels, key: tuple[object, ...], now: PresentModel) -> ContentComparison | None:
    return None if now.facts.unread else baseline.calls.recall(key, ContentComparison)


def _write_base(
    baseline: RevisionModels, path: str, before: ModelFacts, folder: Path, *, fetch: bool
) -> tuple[BaseFiles | None, MissingAtRevisionError | None]:
    """Write the files of the old model; also return which of its files are not available."""
    try:
        model = baseline.file(path, fetch=fetch)
    except MissingAtRevisionError as error:
        return None, error
    try:
        complete = baseline.complete_file(path, folder)
    except MissingAtRevisionError as error:
        return BaseFiles(model, None, ((model, before.sha256),)), error
    digests = ((complete, before.sha256), *((folder / data.location, data.sha256) for data in before.external))
    return BaseFiles(model, complete, digests), None


def _load_requirements(facts: ModelFacts) -> tuple[object, ...]:
    """Return the facts that determine whether a release loads the model."""
    types = tuple((value.name, value.type) for value in (*facts.inputs, *facts.outputs))
    return facts.ir_version, facts.opsets, facts.function_opsets, facts.operators, types


def _group_targets(targets: Sequence[Target]) -> tuple[tuple[Target, ...], ...]:
    """Group the targets by engine, providers and extensions. Those of engines without a support table are left out."""
    groups: dict[tuple[str, frozenset[str], frozenset[str]], list[Target]] = {}
    for target in targets:
        if engine := _find_engine(target):
            key = (engine, frozenset(target.providers), frozenset(target.extensions))
            groups.setdefault(key, []).append(target)
    return tuple(tuple(group) for _, group in sorted(groups.items(), key=lambda item: ENGINES.index(item[0][0])))


def _find_engine(target: Target) -> str:
    """Return the engine whose support table lists the releases of a target; "" if there is none."""
    return find_table_engine(canonicalize_name(Requirement(target.runtime).name))


def _load_conditions(targets: Sequence[Target]) -> LoadConditions:
    return LoadConditions(
        _find_engine(targets[0]),
        tuple(dict.fromkeys(provider for target in targets for provider in target.providers)),
        tuple(dict.fromkeys(extension for target in targets for extension in target.extensions)),
    )


def predict_from_facts(facts: ModelFacts, engine: str) -> LoadVerdicts:
    """Predict from the facts alone, without the file. The verdict for each release is "refused" or "unknown"."""
    releases = {release: limits.get_limits(release, engine) for release in operators.list_known_releases(engine)}
    return {
        release: "unknown"
        if limit and limits.accepts_versions(limit, facts.ir_version, facts.needed_opsets)
        else "refused"
        for release, limit in releases.items()
    }


@dataclass(frozen=True, slots=True)
class GroupVerdicts:
    """Verdicts of releases for the old and the current model, for targets with the same conditions."""

    targets: Sequence[Target]
    before: LoadVerdicts
    now: LoadVerdicts

    @property
    def engine(self) -> str:
        """The engine of the releases."""
        return _find_engine(self.targets[0])

    def select_required(self, before: LoadVerdict, now: LoadVerdict) -> set[str]:
        """Return the releases with these verdicts in the supported range of a target without a custom build."""
        admitted = [Requirement(target.runtime).specifier for target in self.targets if target.python is None]
        return {
            release
            for release in self.before
            if (self.before[release], self.now[release]) == (before, now)
            and any(specifier.contains(release) for specifier in admitted)
        }


def find_minimum_releases(views: Sequence[GroupVerdicts]) -> tuple[MinimumRelease, ...]:
    """Return the minimum release of each engine for the old and the current model, and releases that no longer load it.

    Both minimum releases are "" if some verdicts are unknown. Engines without a change are left out.
    """
    engines = dict.fromkeys(view.engine for view in views)
    minimums = (_find_minimum_release(engine, [view for view in views if view.engine == engine]) for engine in engines)
    return tuple(minimum for minimum in minimums if minimum.lost or minimum.before != minimum.after)


def _find_minimum_release(engine: str, views: Sequence[GroupVerdicts]) -> MinimumRelease:
    complete = next((view for view in views if "unknown" not in (*view.before.values(), *view.now.values())), None)
    return MinimumRelease(
        engine=engine,
        before=_first_loading_release(complete.before) if complete is not None else "",
        after=_first_loading_release(complete.now) if complete is not None else "",
        lost=tuple(name.partition(" ")[2] for name in _select_runtimes(views, "loads", "refused")),
    )


def _select_runtimes(views: Sequence[GroupVerdicts], before: LoadVerdict, now: LoadVerdict) -> tuple[str, ...]:
    """Return the names of required runtimes with these verdicts, such as `onnxruntime 1.17.0`."""
    selected = {f"{view.engine} {release}" for view in views for release in view.select_required(before, now)}
    return tuple(sorted(selected, key=runtime_sort_key))


def _first_loading_release(verdicts: LoadVerdicts) -> str:
    """Return the earliest release since which all releases load the model.

    If the newest release refuses the model, return the first release that loads it.
    """
    releases = list(verdicts)
    loads = [verdict == "loads" for verdict in verdicts.values()]
    if all(loads):
        return releases[0]
    first = next((release for release in releases if verdicts[release] == "loads"), "")
    return find_support_span(releases, loads)[0] or first
