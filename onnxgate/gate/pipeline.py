"""Run the stages of a check in order, and apply the rules to their evidence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from onnxgate import rules
from onnxgate.core.bug_reports import contain_errors
from onnxgate.core.findings import ALL_STAGES, DYNAMIC_STAGES, IncompleteCheck, Level, Place, RuleHit, Stage
from onnxgate.core.text import quote_value
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import ModelLockComparison
from onnxgate.evidence.policy import ModelSize
from onnxgate.gate.request import (
    ChangeResult,
    Checkout,
    ExecutionResult,
    ExecutionSettings,
    FileResult,
    GateOutcome,
    GateRequest,
    LockResult,
    PolicyResult,
    RunnableModel,
    StageResult,
    StageResults,
    SupportStageResult,
    join_executions,
)
from onnxgate.gate.results import resolution
from onnxgate.gate.results.verdict import find_replays
from onnxgate.gate.static import StaticAnalyzer, SupportQuery, SupportRequest, create_caching_analyzer
from onnxgate.gate.static_cache import CustomBuilds, HarvestedBuilds, find_unknown_builds
from onnxgate.model.reading.external_data import classify_layouts, hash_content, list_content_files
from onnxgate.project.config.project import SelectedModel, suggest_export_command
from onnxgate.project.plan import PlannedModel, find_unlocked_builds, plan_models
from onnxgate.project.toml import find_key_lines, find_nearest_line
from onnxgate.runtimes.worker_spec import JobLimits
from onnxgate.stages import lock as lock_stage
from onnxgate.stages.support.runtime_data import collect_prediction_gaps
from onnxgate.support.matching.operations import RefusedOperations

if TYPE_CHECKING:
    from onnxgate.core.report import Replay
    from onnxgate.gate.outcome_cache import OutcomeCache
    from onnxgate.gate.result_cache import ResultCache

Part = TypeVar("Part", bound=StageResult)


def run(request: GateRequest) -> GateOutcome:
    """Run the selected stages and resolve their hits."""
    static = request.static
    if static.folder is None:
        analyzer = StaticAnalyzer(static.jobs)
    else:
        analyzer = create_caching_analyzer(static.jobs, static.folder(), request.project.folder, fresh=static.fresh)
    with analyzer:
        return _run_stages(request, analyzer)


def _run_stages(request: GateRequest, analyzer: StaticAnalyzer) -> GateOutcome:
    checkout, stages = request.checkout, request.stages
    planned = plan_models(checkout.project, checkout.lock, checkout.models)
    models, builds = _with_lock_places(checkout), HarvestedBuilds()
    requests: dict[str, SupportRequest] = {}
    if Stage.SUPPORT in stages:
        builds = _load_custom_builds(request, planned)
        requests = _create_support_requests(request, models, planned, builds)
    files = analyzer.files(checkout.project, models, checkout.lock, requests)
    if request.static.report_reuse is not None:
        request.static.report_reuse(analyzer.reused_files, len(models))
    required = {model.path: tuple(runtime.name for runtime in model.runtimes) for model in planned}
    files = tuple(replace(file, runtimes=required.get(file.path, ())) for file in files)
    files = lock_stage.leave_unknown_pointers_undecided(checkout.project, files, request.baseline.revision)
    comparisons, lock = _compare_with_lock(checkout, stages, files)
    file = _judge_files(checkout, stages, files, planned, lock)
    change, support = ChangeResult(), SupportStageResult()
    outcomes = _recall_outcomes(request, planned, StageResults(file=file, lock=lock), builds)
    if Stage.LOCK in stages:
        change = _compare_with_baseline(request, analyzer, planned, comparisons, StageResults(file=file, lock=lock))
    if Stage.SUPPORT in stages:
        support = _predict_support(request, analyzer, requests, builds, StageResults(file=file, lock=lock))
    results = StageResults(_compare_policies(request), file, lock, change, support)
    blocked = frozenset(resolution.find_broken_models(request, results))
    undone = _undone_static_stages(checkout, stages, results, blocked)
    undone += [
        IncompleteCheck(
            min(stages, key=ALL_STAGES.index), path, "", "the file does not exist", suggest_export_command(path)
        )
        for path in checkout.unexported
    ]
    if missing := request.baseline.missing:
        undone.append(IncompleteCheck(Stage.LOCK, "", "", missing, request.baseline.hint))
    dynamic = stages.intersection(DYNAMIC_STAGES)
    if dynamic:
        analyzer.end_children()
        present = [model for model in planned if model.path not in blocked]
        undone += _list_incomplete_models(present, file.missing, dynamic)
        runnable = [model for model in present if model.path not in file.missing]
        changed = [model for model in runnable if outcomes is None or model.path not in outcomes.known]
        if Stage.RUNTIME in dynamic:
            awaited = [requests[model.path] for model in changed if model.path in requests]
            results = replace(results, support=_add_predictions(analyzer, awaited, results))
        results = replace(results, execution=_reuse_or_execute(request, runnable, changed, dynamic, results, outcomes))
        if Stage.RUNTIME not in dynamic:
            undone += _not_compared(results.execution)
        undone += resolution.report_unknown_names(request, results.facts)
    depends_on_builds = stages & {Stage.LOCK, Stage.RUNTIME}
    skipped = find_unlocked_builds(checkout.project, checkout.lock, checkout.models) if depends_on_builds else ()
    results = replace(results, unchecked=StageResult(undone=tuple(undone), skipped=tuple(skipped)))
    return resolution.build_outcome(request, planned, _skip_decided_checks(results, planned), blocked)


def _skip_decided_checks(results: StageResults, planned: Iterable[PlannedModel]) -> StageResults:
    """Skip failed static checks of the models that all required runtimes run."""
    accepted = results.execution.accepted
    accepting = {
        model.path
        for model in planned
        if model.runtimes and all((model.path, runtime.name) in accepted for runtime in model.runtimes)
    }

    def skip(part: Part) -> Part:
        decided = tuple(it for it in part.undone if it.decided_by_runs and it.model in accepting)
        undone = tuple(it for it in part.undone if it not in decided)
        return replace(part, undone=undone, skipped=(*part.skipped, *decided))

    return replace(results, file=skip(results.file), support=skip(results.support))


def _list_incomplete_models(
    planned: Iterable[PlannedModel], missing: Mapping[str, tuple[str, str]], dynamic: Iterable[Stage]
) -> list[IncompleteCheck]:
    """Return an incomplete check for each dynamic stage of each model with missing content."""
    return [
        IncompleteCheck(stage, model.path, "", *missing[model.path])
        for model in planned
        if model.path in missing
        for stage in sorted(dynamic)
        if stage is not Stage.EXPORT or model.model.settings.is_exported
    ]


def _reuse_or_execute(
    request: GateRequest,
    runnable: Iterable[PlannedModel],
    changed: Sequence[PlannedModel],
    dynamic: frozenset[Stage],
    results: StageResults,
    outcomes: OutcomeCache | None,
) -> ExecutionResult:
    """Reuse the cached outcomes of unchanged models, run the changed models, and apply the rules to both."""
    reused = [] if outcomes is None else [result for model in runnable for result in outcomes.restore(model)]
    executed = [_execute(request, changed, dynamic, results, outcomes)] if changed else []
    execution = join_executions([*reused, *executed])
    undone: list[IncompleteCheck] = []
    hits = _apply_rules(
        request.project.config.rules, execution.step.subjects, min(dynamic, key=ALL_STAGES.index), undone
    )
    step = replace(execution.step, undone=(*execution.step.undone, *undone))
    return replace(execution, hits=hits, step=step)


def reapply_ignores(request: GateRequest, outcome: GateOutcome) -> GateOutcome:
    """Apply the ignores of `request` to the outcome; re-run all stages if this changes which models may be run."""
    blocked = frozenset(resolution.find_broken_models(request, outcome.gathered))
    if blocked != outcome.blocked:
        return run(request)
    return resolution.build_outcome(request, outcome.planned, outcome.gathered, blocked)


def _with_lock_places(checkout: Checkout) -> tuple[SelectedModel, ...]:
    """Return the models. Findings about the file of a locked model will point to the model's entry in the lock."""
    lines = find_key_lines(checkout.lock_text)
    return tuple(
        replace(model, place=Place(checkout.lock_name, find_nearest_line(lines, ("models", model.path))))
        if model.path in checkout.lock.models
        else model
        for model in checkout.models
    )


def _apply_rules(
    levels: Mapping[str, str], subjects: Iterable[object], stage: Stage, undone: list[IncompleteCheck]
) -> tuple[RuleHit, ...]:
    """Apply the rules. If a rule fails for a subject, add an incomplete check of its model to `undone`."""

    def contain(subject: object) -> AbstractContextManager[None]:
        return contain_errors(_model_of(subject), (stage,), undone)

    return tuple(resolution.apply_rules(subjects, rules.ALL, levels, contain))


def _model_of(subject: object) -> str:
    """Return the path of the model that the evidence is about; "" if it is about the project."""
    facts = getattr(subject, "facts", None) or getattr(subject, "after", None)
    return getattr(subject, "model", "") or getattr(subject, "path", "") or getattr(facts, "path", "")


def _compare_with_lock(
    checkout: Checkout, stages: Collection[Stage], files: Sequence[ModelFile]
) -> tuple[Sequence[ModelLockComparison], LockResult]:
    """Compare the files with the lock. This is done even without the lock stage, since all stages need the facts."""
    unread: list[IncompleteCheck] = []
    comparisons, project_comparison = lock_stage.collect_evidence(
        checkout.project, checkout.lock, checkout.lock_text, files, unread
    )
    facts = {comparison.facts.path: comparison.facts for comparison in comparisons}
    places = {comparison.facts.path: comparison.place for comparison in comparisons}
    undone: list[IncompleteCheck] = []
    subjects = [*comparisons, project_comparison] if Stage.LOCK in stages else ()
    hits = _apply_rules(checkout.project.config.rules, subjects, Stage.LOCK, undone)
    remarks = tuple(lock_stage.describe_revision(checkout.lock))
    failures = {it.model: (it.reason, it.hint) for it in unread}
    return comparisons, LockResult(facts, places, failures, hits=hits, undone=tuple(undone), remarks=remarks)


def _judge_files(
    checkout: Checkout,
    stages: Collection[Stage],
    files: Sequence[ModelFile],
    planned: Sequence[PlannedModel],
    lock: LockResult,
) -> FileResult:
    """Apply the file and size rules; without the file stage, only record incomplete files."""
    incomplete = {file.path: _explain_missing_content(file) for file in files if not file.is_complete}
    missing = {**lock.failures, **incomplete}
    remarks = tuple(f"{file.path}: {file.graph.unchecked}" for file in files if file.graph.unchecked)
    if Stage.FILE not in stages:
        return FileResult(missing, remarks=remarks)
    undone = [
        IncompleteCheck(Stage.FILE, file.path, "", *_explain_missing_content(file), decided_by_runs=file.is_complete)
        for file in files
        if file.unreadable or file.undecided
    ]
    sizes = []
    for model in planned:
        budget, facts = model.model.settings.budget, lock.facts.get(model.path)
        if budget is not None and budget.size_mib is not None and facts is not None:
            size = facts.size_bytes + sum(data.size_bytes for data in facts.external)
            place = lock.places[model.path]
            sizes.append(ModelSize(model=model.path, place=place, size_bytes=size, budget_mib=budget.size_mib))
    hits = _apply_rules(checkout.project.config.rules, [*files, *sizes], Stage.FILE, undone)
    return FileResult(missing, hits=hits, undone=tuple(undone), remarks=remarks)


def _compare_policies(request: GateRequest) -> PolicyResult:
    """Find changes in the config and the lock since the baseline. The baseline's config sets the level of findings."""
    if request.baseline.revision is None:
        return PolicyResult()
    from onnxgate.gate.policy.comparison import compare_policies

    compared = compare_policies(request.checkout, request.baseline.revision)
    undone = list(compared.undone)
    return PolicyResult(
        hits=_apply_rules(compared.levels, compared.changes, Stage.LOCK, undone),
        undone=tuple(undone),
        remarks=compared.remarks,
        new_ignores=compared.new_ignores,
    )


def _compare_with_baseline(
    request: GateRequest,
    analyzer: StaticAnalyzer,
    planned: Sequence[PlannedModel],
    comparisons: Sequence[ModelLockComparison],
    results: StageResults,
) -> ChangeResult:
    """Find changes in the models since the baseline, or since the lock was written if there is no baseline."""
    baseline, project = request.baseline, request.project
    revision, remarks = baseline.revision, (baseline.remark,) if baseline.remark else ()
    if revision is None and not any(comparison.changes for comparison in comparisons):
        return ChangeResult(remarks=remarks)
    from onnxgate.stages.changes import stage

    undone: list[IncompleteCheck] = []
    if revision is None:
        hits = _apply_rules(project.config.rules, stage.find_changes_since_lock(comparisons), Stage.LOCK, undone)
        return ChangeResult(hits=hits, undone=tuple(undone), remarks=remarks)
    present = stage.PresentModels(project, planned, results.facts, results.lock.places, results.file.missing)
    detected = stage.find_changes_since_revision(present, revision, analyzer)
    hits = _apply_rules(project.config.rules, detected.subjects, Stage.LOCK, undone)
    return ChangeResult(
        tuple(detected.changes),
        hits=hits,
        undone=(*detected.undone, *undone),
        remarks=(*remarks, *detected.remarks),
    )


def _undone_static_stages(
    checkout: Checkout, stages: Collection[Stage], results: StageResults, blocked: Collection[str]
) -> list[IncompleteCheck]:
    """Return incomplete checks of static stages for models without facts, unless an error reports the broken file."""
    unread = [it.path for it in checkout.models if it.path not in results.facts and it.path not in blocked]
    return [
        IncompleteCheck(stage, path, "", *results.file.missing.get(path, ("the file cannot be read", "")))
        for path in unread
        for stage in sorted({Stage.LOCK, Stage.SUPPORT} & set(stages))
    ]


def _load_custom_builds(request: GateRequest, planned: Sequence[PlannedModel]) -> HarvestedBuilds:
    """Load cached support data of builds for which onnxgate ships none. The runtime stage collects missing data."""
    runtimes = {runtime.name: runtime for model in planned for runtime in model.runtimes}
    unknown = find_unknown_builds(runtimes.values())
    if not unknown or request.caches.support is None:
        return HarvestedBuilds()
    builds = CustomBuilds(request.caches.support(), request.lock, request.project.folder)
    loaded = builds.load(unknown)
    if Stage.RUNTIME not in request.stages or len(loaded.supports) == len(unknown):
        return loaded
    with request.open_host() as host:
        return builds.harvest(unknown, host)


def _create_support_requests(
    request: GateRequest,
    models: Sequence[SelectedModel],
    planned: Sequence[PlannedModel],
    builds: HarvestedBuilds,
) -> dict[str, SupportRequest]:
    project, places = request.project, {model.path: model.place for model in models}
    return {
        model.path: SupportRequest(
            model.model,
            places[model.path],
            project.root,
            project.folder,
            model.runtimes,
            {it.name: builds.supports[it.name] for it in model.runtimes if it.name in builds.supports},
            project.config.rules,
            predictions=Stage.RUNTIME in request.stages,
        )
        for model in planned
    }


def _predict_support(
    request: GateRequest,
    analyzer: StaticAnalyzer,
    requests: Mapping[str, SupportRequest],
    builds: HarvestedBuilds,
    results: StageResults,
) -> SupportStageResult:
    """Predict which runtimes load each model."""
    queries = _create_support_queries(requests.values(), results)
    answers = analyzer.support(queries)
    by_path = [(query.facts.path, answer) for query, answer in zip(queries, answers, strict=True)]
    runtimes = tuple({runtime.name: runtime for it in requests.values() for runtime in it.runtimes}.values())
    gaps = collect_prediction_gaps(
        runtimes, Place(request.checkout.lock_name), builds.supports, runs_models=Stage.RUNTIME in request.stages
    )
    undone = [undone for answer in answers for undone in answer.undone]
    gap_hits = _apply_rules(request.project.config.rules, gaps, Stage.SUPPORT, undone)
    return SupportStageResult(
        hits=(*(hit for _, answer in by_path for hit in answer.findings.judged), *gap_hits),
        undone=tuple(undone),
        skipped=tuple(builds.skipped),
        verdicts={(path, name): it for path, answer in by_path for name, it in answer.findings.verdicts.items()},
        predictions={(path, name): it for path, answer in by_path for name, it in answer.predictions.items()},
        harvested=builds.supports,
    )


def _create_support_queries(requests: Iterable[SupportRequest], results: StageResults) -> list[SupportQuery]:
    return [
        SupportQuery(it, results.facts[it.model.path], is_complete=it.model.path not in results.file.missing)
        for it in requests
        if it.model.path in results.facts
    ]


def _add_predictions(
    analyzer: StaticAnalyzer, requests: Sequence[SupportRequest], results: StageResults
) -> SupportStageResult:
    """Add the predicted refusals of models whose support findings came from the cache."""
    support, predicted = results.support, {path for path, _ in results.support.predictions}
    missing = {it.model.path: it for it in requests if it.model.path not in predicted}
    verdicts = {pair: verdict for pair, verdict in support.verdicts.items() if pair[0] in missing}
    added = {pair: RefusedOperations((), ()) for pair, verdict in verdicts.items() if verdict == "loads"}
    refused = {path for path, name in verdicts if (path, name) not in added}
    queries = _create_support_queries([it for path, it in missing.items() if path in refused], results)
    answers = analyzer.support(queries, reuse=False)
    for query, answer in zip(queries, answers, strict=True):
        added |= {(query.facts.path, name): operations for name, operations in answer.predictions.items()}
    undone = (undone for answer in answers for undone in answer.undone)
    return replace(support, undone=(*support.undone, *undone), predictions={**support.predictions, **added})


def _recall_outcomes(
    request: GateRequest, planned: Sequence[PlannedModel], results: StageResults, builds: HarvestedBuilds
) -> OutcomeCache | None:
    """Look up cached outcomes of the dynamic stages; None if caching is not possible."""
    folder = request.caches.results
    if request.stages.isdisjoint(DYNAMIC_STAGES) or folder is None:
        return None
    if (
        request.watch is not None or request.selection.inputs.cases
    ):  # watching needs the output files of runs, and a case selection needs the names of all cases
        return None
    from onnxgate.gate.outcome_cache import OutcomeCache

    return OutcomeCache(request, folder, results, planned, builds)


def _execute(
    request: GateRequest,
    planned: Sequence[PlannedModel],
    stages: frozenset[Stage],
    results: StageResults,
    outcomes: OutcomeCache | None,
) -> ExecutionResult:
    """Run the dynamic stages (runtime, parity, export) and cache their outcomes."""
    from onnxgate.gate.execution.executor import execute
    from onnxgate.gate.execution.stable_exports import StableExports

    models = tuple(_create_runnable_models(planned, results))
    settings = ExecutionSettings(
        request.project,
        request.lock,
        stages,
        request.selection.inputs,
        request.baseline.revision,
        results.support.harvested,
        request.watch,
    )
    cache = _create_result_cache(request, models)
    stable = StableExports(request.caches.results, request.project.root, fresh=request.caches.fresh)
    replays: list[Replay] = []
    undone: list[IncompleteCheck] = []
    first = min(stages, key=ALL_STAGES.index)
    inputs = request.caches.inputs() if request.caches.inputs is not None else None
    with request.open_host() as host, execute(models, settings, host, cache, stable) as execution:
        subjects: dict[str, list[object]] = {}
        for subject in execution.step.subjects:
            subjects.setdefault(_model_of(subject), []).append(subject)
        for path, model in sorted(execution.collected.items()):
            with contain_errors(path, (first,), undone):
                replays += find_replays(
                    subjects.get(path, ()),
                    {path: model.cases},
                    lambda evidence: [
                        hit
                        for hit in _apply_rules(request.project.config.rules, evidence, first, undone)
                        if not hit.silent
                    ],
                    request.selection.inputs.seed,
                    request.project.path.name,
                    inputs,
                )
    if cache is not None:
        if outcomes is not None:
            _keep_outcomes(outcomes, cache, planned, execution, replays)
        cache.tidy()
    step = replace(execution.step, undone=(*execution.step.undone, *undone))
    return replace(execution, replays=tuple(replays), step=step)


def _keep_outcomes(
    outcomes: OutcomeCache,
    cache: ResultCache,
    planned: Iterable[PlannedModel],
    execution: ExecutionResult,
    replays: Iterable[Replay],
) -> None:
    by_model = {replay.model: replay for replay in replays}
    for model in planned:
        if model.path in execution.collected:
            entries = cache.entries_of(model.model.absolute)
            outcomes.keep(model, execution.collected[model.path], by_model.get(model.path), entries)
    outcomes.tidy()


def _create_runnable_models(planned: Sequence[PlannedModel], results: StageResults) -> Iterator[RunnableModel]:
    predictions = results.support.predictions
    refused: dict[str, dict[str, dict[str, None]]] = {}  # model -> runtime -> rules of the support stage
    for it in results.judged:
        level = it.hit.level or rules.by_id[it.rule].level  # regardless of the level in the config
        if it.stage is Stage.SUPPORT and it.hit.model and level is Level.ERROR:
            for runtime in it.hit.runtimes:
                refused.setdefault(it.hit.model, {}).setdefault(runtime, {})[it.rule] = None
    for model in planned:
        names, refused_by = [runtime.name for runtime in model.runtimes], refused.get(model.path, {})
        yield RunnableModel(
            model,
            results.facts[model.path],
            results.lock.places[model.path],
            {name: tuple(refused_by[name]) for name in names if name in refused_by},
            {name: predictions[model.path, name] for name in names if (model.path, name) in predictions},
        )


def _create_result_cache(request: GateRequest, models: Sequence[RunnableModel]) -> ResultCache | None:
    if request.caches.results is None:
        return None
    from onnxgate.gate.result_cache import ResultCache

    facts = {model.planned.model.absolute: model.facts for model in models}
    contents = {
        str(path): " ".join((hash_content(fact), *classify_layouts(fact, path))) for path, fact in facts.items()
    }
    files = {str(path): list_content_files(fact, path) for path, fact in facts.items()}
    limits = request.project.config.limits
    allowed = JobLimits(limits.time_s, limits.memory_mib)
    return ResultCache(request.caches.results, contents, files, allowed, fresh=request.caches.fresh)


def _explain_missing_content(file: ModelFile) -> tuple[str, str]:
    """Return the reason and the hint for a model with missing content."""
    if file.undecided is not None:
        return file.undecided
    if file.pointer is not None:
        pull = f"run `git lfs pull --include {quote_value(file.git_path)}`"
        return "the file is a Git LFS pointer (content not fetched)", pull
    if file.unreadable:
        return f"the file cannot be opened: {file.unreadable}", ""
    broken = next((use for use in file.external if use.problem), None)
    if broken is None:
        return f"the file is not a model: it is {file.other_type}", ""
    data = PurePosixPath(file.git_path).parent / broken.location
    if broken.problem == "lfs-pointer":
        hint = f"run `git lfs pull --include {quote_value(data.as_posix())}`"
        return f"external data `{broken.location}` is a Git LFS pointer (content not fetched)", hint
    return f"external data `{broken.location}` is missing or incomplete", ""


def _not_compared(execution: ExecutionResult) -> list[IncompleteCheck]:
    """Return an incomplete check for each failed run, since no rule reports failed runs without the runtime stage."""
    hint = "add `--stage runtime` to see the error"
    return [
        IncompleteCheck(
            Stage.PARITY,
            runs.model,
            runs.runtime,
            "the model does not load, or does not run with one of the input cases",
            hint,
        )
        for runs in execution.faulty
    ]
