"""The gate: stages in their order, rules over their evidence, and one report."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from onnxgate import rules
from onnxgate.core.findings import DYNAMIC_STAGES, IncompleteCheck, Level, Place, RuleHit, Stage
from onnxgate.evidence.budget import ModelSize
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.gate.cache.custom_builds import CustomBuilds, find_unknown_builds
from onnxgate.gate.request import ExecutionRequest, ExecutionResult, GateOutcome, GateRequest, GateState
from onnxgate.gate.results import report_builder, resolution
from onnxgate.gate.static import StaticAnalyzer, SupportQuery, create_caching_analyzer
from onnxgate.model.reading.external_data import classify_layouts, hash_content, list_content_files
from onnxgate.project.config.project import SelectedModel
from onnxgate.project.plan import PlannedModel, find_unlocked_builds, plan_models
from onnxgate.project.toml import find_key_lines, find_nearest_line
from onnxgate.stages.lock import stage as lock_stage
from onnxgate.stages.support import stage as support_stage

if TYPE_CHECKING:
    from onnxgate.gate.cache.run_results import ResultCache


def run(request: GateRequest) -> GateOutcome:
    """Run the stages asked for, and weigh what they found."""
    with _create_analyzer(request) as examiner:
        return _run_stages(request, examiner)


def _create_analyzer(request: GateRequest) -> StaticAnalyzer:
    if request.static_folder is None:
        return StaticAnalyzer(request.jobs)
    return create_caching_analyzer(request.jobs, request.static_folder(), request.project.folder)


def _run_stages(request: GateRequest, examiner: StaticAnalyzer) -> GateOutcome:
    gathered = GateState()
    planned = plan_models(request.project, request.lock, request.models)
    files = _with_required_runtimes(examiner.files(request.project, _with_lock_places(request), request.lock), planned)
    _collect_files(request, files, gathered)
    against, whole = lock_stage.collect_evidence(request.project, request.lock, request.lock_text, files)
    if Stage.LOCK in request.stages:
        _apply_rules(request, gathered, [*against, whole])
    gathered.facts = {each.facts.path: each.facts for each in against}
    gathered.places = {each.facts.path: each.place for each in against}
    if Stage.LOCK in request.stages:
        _compare_with_baseline(request, planned, against, gathered)
    if Stage.FILE in request.stages:
        _apply_rules(request, gathered, _model_sizes(planned, gathered))
    if Stage.SUPPORT in request.stages:
        _load_custom_builds(request, planned, gathered)
        _predict_support(request, examiner, planned, gathered)
    blocked = frozenset(resolution.find_broken_models(request, gathered))
    gathered.undone += _undone_static_stages(request, gathered, blocked)
    _run_dynamic_stages(request, planned, blocked, gathered)
    gathered.judged = resolution.drop_answered_hits(gathered.judged, gathered.execution.ran)
    if request.stages & {Stage.LOCK, Stage.RUNTIME}:
        gathered.skipped += find_unlocked_builds(request.project, request.lock, request.models)
    return resolution.build_outcome(request, planned, gathered, blocked)


def reapply_ignores(request: GateRequest, outcome: GateOutcome) -> GateOutcome:
    """The outcome under other ignores: weighed again; all is run again where they let a broken model be run."""
    blocked = frozenset(resolution.find_broken_models(request, outcome.gathered))
    if blocked != outcome.blocked:
        return run(request)
    return resolution.build_outcome(request, outcome.planned, outcome.gathered, blocked)


def _with_lock_places(request: GateRequest) -> tuple[SelectedModel, ...]:
    """The models, each with its entry in the lock as the place of what is wrong with its file."""
    lines = find_key_lines(request.lock_text)
    return tuple(
        replace(model, place=Place(request.lock_name, find_nearest_line(lines, ("models", model.path))))
        if model.path in request.lock.models
        else model
        for model in request.models
    )


def _with_required_runtimes(files: Sequence[ModelFile], planned: Sequence[PlannedModel]) -> tuple[ModelFile, ...]:
    """The files with the runtimes that they are promised on."""
    runtimes = {each.path: tuple(runtime.name for runtime in each.runtimes) for each in planned}
    return tuple(replace(file, runtimes=runtimes.get(file.path, ())) for file in files)


def _apply_rules(request: GateRequest, gathered: GateState, subjects: Iterable[object]) -> None:
    gathered.judged += resolution.apply_rules(subjects, rules.ALL, request.project.config.rules)


def _collect_files(request: GateRequest, files: Sequence[ModelFile], gathered: GateState) -> None:
    """The file stage always reads the files, since all others need its facts; its rules speak where it is asked for."""
    gathered.away = {file.path: _explain_missing_content(file) for file in files if not file.is_whole}
    unread = [file for file in files if file.unreadable or file.lost]
    unreadable = [file.path for file in unread if Stage.FILE in request.stages]
    gathered.undone += [IncompleteCheck(Stage.FILE, path, "", *gathered.away[path]) for path in unreadable]
    gathered.remarks = [f"{file.path}: {file.unchecked}" for file in files if file.unchecked]
    if Stage.FILE in request.stages:
        _apply_rules(request, gathered, files)


def _compare_with_baseline(
    request: GateRequest, planned: Sequence[PlannedModel], models: Sequence[ModelLockComparison], gathered: GateState
) -> None:
    """What became of the models since the baseline; without one, since they were locked."""
    gathered.remarks += [request.unheld] if request.unheld else []
    if request.against is None and not any(model.changes for model in models):
        return
    from onnxgate.stages.changes import stage

    if request.against is None:
        _apply_rules(request, gathered, stage.find_changes_since_lock(models))
        return
    present = stage.PresentModels(request.project, planned, gathered.facts, gathered.places, gathered.away)
    found = stage.find_changes_since_revision(present, request.against)
    gathered.changes = found.changes
    gathered.undone += found.undone
    gathered.remarks += found.remarks
    _apply_rules(request, gathered, found.subjects)


def _model_sizes(planned: Sequence[PlannedModel], gathered: GateState) -> list[ModelSize]:
    """What models with a budget for it take on disk, also where only the lock says it."""
    sizes = []
    for each in planned:
        budget, facts = each.model.settings.budget, gathered.facts.get(each.path)
        if budget is not None and budget.size_mib is not None and facts is not None:
            size = facts.size_bytes + sum(data.size_bytes for data in facts.external)
            place = gathered.places[each.path]
            sizes.append(ModelSize(model=each.path, place=place, size_bytes=size, budget_mib=budget.size_mib))
    return sizes


def _undone_static_stages(request: GateRequest, gathered: GateState, blocked: frozenset[str]) -> list[IncompleteCheck]:
    """Static stages that have nothing to judge a model by, although no error says that its file is broken."""
    stages = sorted(request.stages & {Stage.LOCK, Stage.SUPPORT})
    unread = [model.path for model in request.models if model.path not in gathered.facts and model.path not in blocked]
    return [
        IncompleteCheck(stage, path, "", *gathered.away.get(path, ("it cannot be read", "")))
        for path in unread
        for stage in stages
    ]


def _load_custom_builds(request: GateRequest, planned: Sequence[PlannedModel], gathered: GateState) -> None:
    """Builds that the shipped data do not know: what was harvested of them, or is now, where they are run anyway."""
    every = {runtime.name: runtime for each in planned for runtime in each.runtimes}
    unknown = find_unknown_builds(every.values())
    if not unknown or request.support_folder is None:
        return
    builds = CustomBuilds(request.support_folder(), request.lock, request.project.folder)
    gleaned = builds.kept(unknown)
    if Stage.RUNTIME in request.stages and len(gleaned.kept) < len(unknown):
        with request.open_host() as host:
            gleaned = builds.harvest(unknown, host)
    gathered.kept = gleaned.kept
    gathered.skipped += gleaned.skipped


def _predict_support(
    request: GateRequest, examiner: StaticAnalyzer, planned: Sequence[PlannedModel], gathered: GateState
) -> None:
    every = {runtime.name: runtime for each in planned for runtime in each.runtimes}
    levels, project = request.project.config.rules, request.project
    asked = [
        SupportQuery(
            each.model,
            gathered.facts[each.path],
            gathered.places[each.path],
            project.root,
            project.folder,
            each.runtimes,
            {name: gathered.kept[name] for name in sorted(gathered.kept.keys() & {it.name for it in each.runtimes})},
            levels,
            predictions=not request.stages.isdisjoint(DYNAMIC_STAGES),
            whole=each.path not in gathered.away,
        )
        for each in planned
        if each.path in gathered.facts
    ]
    for each, (found, undone) in zip(asked, examiner.support(asked), strict=True):
        gathered.judged += found.judged
        gathered.undone += [undone] if undone is not None else []
        gathered.verdicts |= {(each.facts.path, name): verdict for name, verdict in found.verdicts.items()}
        gathered.predictions |= {(each.facts.path, name): given for name, given in found.predictions.items()}
    places = Place(request.lock_name)
    _apply_rules(request, gathered, support_stage.collect_prediction_gaps(tuple(every.values()), places, gathered.kept))


def _run_dynamic_stages(
    request: GateRequest, planned: Sequence[PlannedModel], blocked: frozenset[str], gathered: GateState
) -> None:
    """The stages that start processes: runtime, parity, export."""
    asked = request.stages.intersection(DYNAMIC_STAGES)
    if not asked:
        return
    runnable = _select_runnable(planned, asked, blocked, gathered)
    from onnxgate.gate.execution.executor import execute

    work = ExecutionRequest(
        project=request.project,
        lock=request.lock,
        models=tuple(runnable),
        facts=gathered.facts,
        places=gathered.places,
        stages=asked,
        predicted=_predicted_refusals(gathered.judged),
        predictions=gathered.predictions,
        kept=gathered.kept,
        asked=request.asked,
        against=request.against,
        store=_create_result_cache(request, runnable, gathered),
        watch=request.watch,
    )
    with request.open_host() as host:
        execution = execute(work, host, functools.partial(_store_replays, request))
    if work.store is not None:
        work.store.tidy()
    gathered.execution = execution
    if Stage.RUNTIME not in asked:
        gathered.undone += _not_compared(execution)
    gathered.undone += resolution.report_unknown_names(request, gathered.facts)
    gathered.undone += execution.undone
    gathered.skipped += execution.skipped
    _apply_rules(request, gathered, execution.subjects)


def _select_runnable(
    planned: Sequence[PlannedModel], asked: Collection[Stage], blocked: Collection[str], gathered: GateState
) -> list[PlannedModel]:
    """The models that can be run; of those that are not here, why nothing of what is asked can be done."""
    runnable = []
    for each in planned:
        if each.path in gathered.away and each.path not in blocked:
            reason, hint = gathered.away[each.path]
            stages = [stage for stage in asked if stage is not Stage.EXPORT or each.model.settings.is_exported]
            gathered.undone += [IncompleteCheck(stage, each.path, "", reason, hint) for stage in sorted(stages)]
        elif each.path not in blocked:
            runnable.append(each)
    return runnable


def _create_result_cache(
    request: GateRequest, runnable: Sequence[PlannedModel], gathered: GateState
) -> ResultCache | None:
    if request.results_folder is None:
        return None
    from onnxgate.gate.cache.run_results import ResultCache
    from onnxgate.runtimes.worker_spec import JobLimits

    facts = {each.model.absolute: gathered.facts[each.path] for each in runnable}
    contents = {
        str(path): " ".join((hash_content(fact), *classify_layouts(fact, path))) for path, fact in facts.items()
    }
    files = {str(path): list_content_files(fact, path) for path, fact in facts.items()}
    limits = request.project.config.limits
    allowed = JobLimits(limits.time_s, limits.memory_mib)
    return ResultCache(request.results_folder, contents, files, allowed, fresh=request.fresh)


def _store_replays(request: GateRequest, execution: ExecutionResult) -> None:
    """Find what shows again what the rules say of runs and outputs, and store its inputs."""

    def say(subjects: Iterable[object]) -> Iterable[RuleHit]:
        return [
            apply_rule
            for apply_rule in resolution.apply_rules(subjects, rules.ALL, request.project.config.rules)
            if not apply_rule.silent
        ]

    execution.replays = report_builder.find_replays(
        execution.subjects,
        execution.cases,
        say,
        request.asked.seed,
        request.project.path.name,
        request.inputs_folder() if request.inputs_folder is not None else None,
    )


def _explain_missing_content(file: ModelFile) -> tuple[str, str]:
    """Why a model cannot be run although no finding says that it is broken, and what helps."""
    pull = f'git lfs pull --include "{file.git_path}"'
    if file.pointer is not None:
        return "its content is not here: the file is a Git LFS pointer", pull
    if file.lost is not None:
        return file.lost
    if file.unreadable:
        return f"it cannot be opened: {file.unreadable}", ""
    broken = next((use for use in file.external if use.problem), None)
    if broken is None:
        return f"it cannot be read: it is {file.really}", ""
    data = PurePosixPath(file.git_path).parent / broken.location
    hint = f'git lfs pull --include "{data}"' if broken.problem == "lfs-pointer" else ""
    return f"its external data `{broken.location}` is not all here", hint


def _not_compared(execution: ExecutionResult) -> list[IncompleteCheck]:
    """What could not be compared because it did not run, where no rule of the runtime stage was asked to say so."""
    hint = "ask for the runtime stage, too: it says why"
    return [
        IncompleteCheck(Stage.PARITY, runs.model, runs.runtime, "it does not load there, or not every case runs", hint)
        for runs in execution.faulty
    ]


def _predicted_refusals(judged: Sequence[RuleHit]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Rules of the support stage that say a model is refused, by model and runtime."""
    predicted: dict[tuple[str, str], dict[str, None]] = {}
    for each in judged:
        own = each.hit.level or rules.by_id[each.rule].level  # whatever the config makes of it
        if each.stage is Stage.SUPPORT and each.hit.model and own is Level.ERROR:
            predicted.setdefault((each.hit.model, each.hit.runtime), {})[each.rule] = None
    return {key: tuple(found) for key, found in predicted.items()}
