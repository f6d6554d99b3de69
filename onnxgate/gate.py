"""The gate: stages in their order, rules over their evidence, and one report."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from onnxgate import judge, replays, rules, weighing
from onnxgate.config.lines import key_lines, nearest_line
from onnxgate.config.project import SelectedModel
from onnxgate.evidence.budget import ModelSize
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import ModelAgainstLock
from onnxgate.examining import Examiner, Match, keeping_examiner
from onnxgate.findings import DYNAMIC_STAGES, Judged, Level, Place, Stage, Undone
from onnxgate.harvests import Builds, lacking
from onnxgate.model.content import content_files, content_sha256, layouts
from onnxgate.plan import PlannedModel, plan_models, unlocked_builds
from onnxgate.request import Gathered, Outcome, Request
from onnxgate.stages import lock as lock_stage
from onnxgate.stages import support as support_stage
from onnxgate.work import Execution, Work

if TYPE_CHECKING:
    from onnxgate.store import Store


def run(request: Request) -> Outcome:
    """Run the stages asked for, and weigh what they found."""
    with _examiner(request) as examiner:
        return _run(request, examiner)


def _examiner(request: Request) -> Examiner:
    if request.static_folder is None:
        return Examiner(request.jobs)
    return keeping_examiner(request.jobs, request.static_folder(), request.project.folder)


def _run(request: Request, examiner: Examiner) -> Outcome:
    gathered = Gathered()
    planned = plan_models(request.project, request.lock, request.models)
    files = _promised(examiner.files(request.project, _placed(request), request.lock), planned)
    _judge_files(request, files, gathered)
    against, whole = lock_stage.gather(request.project, request.lock, request.lock_text, files)
    if Stage.LOCK in request.stages:
        _judge(request, gathered, [*against, whole])
    gathered.facts = {each.facts.path: each.facts for each in against}
    gathered.places = {each.facts.path: each.place for each in against}
    if Stage.LOCK in request.stages:
        _hold(request, planned, against, gathered)
    if Stage.FILE in request.stages:
        _judge(request, gathered, _sizes(planned, gathered))
    if Stage.SUPPORT in request.stages:
        _learn(request, planned, gathered)
        _support(request, examiner, planned, gathered)
    blocked = frozenset(weighing.blocked(request, gathered))
    gathered.undone += _unread(request, gathered, blocked)
    _execute(request, planned, blocked, gathered)
    gathered.judged = [each for each in gathered.judged if not _is_answered(each, gathered.execution)]
    if request.stages & {Stage.LOCK, Stage.RUNTIME}:
        gathered.skipped += unlocked_builds(request.project, request.lock, request.models)
    return weighing.weighed(request, planned, gathered, blocked)


def again(request: Request, outcome: Outcome) -> Outcome:
    """The outcome under other ignores: weighed again; all is run again where they let a broken model be run."""
    blocked = frozenset(weighing.blocked(request, outcome.gathered))
    if blocked != outcome.blocked:
        return run(request)
    return weighing.weighed(request, outcome.planned, outcome.gathered, blocked)


def _is_answered(judged: Judged, execution: Execution) -> bool:
    """Whether what could not be predicted was seen: the model was run there."""
    return judged.hit.awaits_run and (judged.hit.model, judged.hit.runtime) in execution.ran


def _placed(request: Request) -> tuple[SelectedModel, ...]:
    """The models, each with its entry in the lock as the place of what is wrong with its file."""
    lines = key_lines(request.lock_text)
    return tuple(
        replace(model, place=Place(request.lock_name, nearest_line(lines, ("models", model.path))))
        if model.path in request.lock.models
        else model
        for model in request.models
    )


def _promised(files: Sequence[ModelFile], planned: Sequence[PlannedModel]) -> tuple[ModelFile, ...]:
    """The files with the runtimes that they are promised on."""
    runtimes = {each.path: tuple(runtime.name for runtime in each.runtimes) for each in planned}
    return tuple(replace(file, runtimes=runtimes.get(file.path, ())) for file in files)


def _judge(request: Request, gathered: Gathered, subjects: Iterable[object]) -> None:
    gathered.judged += judge.judge(subjects, rules.ALL, request.project.config.rules)


def _judge_files(request: Request, files: Sequence[ModelFile], gathered: Gathered) -> None:
    """The file stage always reads the files, since all others need its facts; its rules speak where it is asked for."""
    gathered.away = {file.path: _away(file) for file in files if not file.is_whole}
    unread = [file for file in files if file.unreadable or file.lost]
    unreadable = [file.path for file in unread if Stage.FILE in request.stages]
    gathered.undone += [Undone(Stage.FILE, path, "", *gathered.away[path]) for path in unreadable]
    gathered.remarks = [f"{file.path}: {file.unchecked}" for file in files if file.unchecked]
    if Stage.FILE in request.stages:
        _judge(request, gathered, files)


def _hold(
    request: Request, planned: Sequence[PlannedModel], models: Sequence[ModelAgainstLock], gathered: Gathered
) -> None:
    """What became of the models since the baseline; without one, since they were locked."""
    gathered.remarks += [request.unheld] if request.unheld else []
    if request.against is None and not any(each.changes for each in models):
        return
    from onnxgate.stages import changes

    if request.against is None:
        _judge(request, gathered, changes.since_lock(models))
        return
    present = changes.Present(request.project, planned, gathered.facts, gathered.places, gathered.away)
    found = changes.since_revision(present, request.against)
    gathered.changes = found.changes
    gathered.undone += found.undone
    gathered.remarks += found.remarks
    _judge(request, gathered, found.subjects)


def _sizes(planned: Sequence[PlannedModel], gathered: Gathered) -> list[ModelSize]:
    """What models with a budget for it take on disk, also where only the lock says it."""
    sizes = []
    for each in planned:
        budget, facts = each.model.settings.budget, gathered.facts.get(each.path)
        if budget is not None and budget.size_mib is not None and facts is not None:
            size = facts.size_bytes + sum(data.size_bytes for data in facts.external)
            place = gathered.places[each.path]
            sizes.append(ModelSize(model=each.path, place=place, size_bytes=size, budget_mib=budget.size_mib))
    return sizes


def _unread(request: Request, gathered: Gathered, blocked: frozenset[str]) -> list[Undone]:
    """Static stages that have nothing to judge a model by, although no error says that its file is broken."""
    stages = sorted(request.stages & {Stage.LOCK, Stage.SUPPORT})
    unread = [model.path for model in request.models if model.path not in gathered.facts and model.path not in blocked]
    return [
        Undone(stage, path, "", *gathered.away.get(path, ("it cannot be read", "")))
        for path in unread
        for stage in stages
    ]


def _learn(request: Request, planned: Sequence[PlannedModel], gathered: Gathered) -> None:
    """Builds that the shipped data do not know: what was harvested of them, or is now, where they are run anyway."""
    every = {runtime.name: runtime for each in planned for runtime in each.runtimes}
    unknown = lacking(every.values())
    if not unknown or request.support_folder is None:
        return
    builds = Builds(request.support_folder(), request.lock, request.project.folder)
    gleaned = builds.kept(unknown)
    if Stage.RUNTIME in request.stages and len(gleaned.kept) < len(unknown):
        with request.open_host() as host:
            gleaned = builds.harvest(unknown, host)
    gathered.kept = gleaned.kept
    gathered.skipped += gleaned.skipped


def _support(request: Request, examiner: Examiner, planned: Sequence[PlannedModel], gathered: Gathered) -> None:
    every = {runtime.name: runtime for each in planned for runtime in each.runtimes}
    levels, project = request.project.config.rules, request.project
    asked = [
        Match(
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
    _judge(request, gathered, support_stage.gather_unpredicted(tuple(every.values()), places, gathered.kept))


def _execute(request: Request, planned: Sequence[PlannedModel], blocked: frozenset[str], gathered: Gathered) -> None:
    """The stages that start processes: runtime, parity, export."""
    asked = request.stages.intersection(DYNAMIC_STAGES)
    if not asked:
        return
    runnable = _runnable(planned, asked, blocked, gathered)
    from onnxgate.execution import execute

    work = Work(
        project=request.project,
        lock=request.lock,
        models=tuple(runnable),
        facts=gathered.facts,
        places=gathered.places,
        stages=asked,
        predicted=_predicted(gathered.judged),
        predictions=gathered.predictions,
        kept=gathered.kept,
        asked=request.asked,
        against=request.against,
        store=_store(request, runnable, gathered),
        watch=request.watch,
    )
    with request.open_host() as host:
        execution = execute(work, host, functools.partial(_keep_replays, request))
    if work.store is not None:
        work.store.tidy()
    gathered.execution = execution
    if Stage.RUNTIME not in asked:
        gathered.undone += _not_compared(execution)
    gathered.undone += weighing.misnamed(request, gathered.facts)
    gathered.undone += execution.undone
    gathered.skipped += execution.skipped
    _judge(request, gathered, execution.subjects)


def _runnable(
    planned: Sequence[PlannedModel], asked: Collection[Stage], blocked: Collection[str], gathered: Gathered
) -> list[PlannedModel]:
    """The models that can be run; of those that are not here, why nothing of what is asked can be done."""
    runnable = []
    for each in planned:
        if each.path in gathered.away and each.path not in blocked:
            reason, hint = gathered.away[each.path]
            stages = [stage for stage in asked if stage is not Stage.EXPORT or each.model.settings.is_exported]
            gathered.undone += [Undone(stage, each.path, "", reason, hint) for stage in sorted(stages)]
        elif each.path not in blocked:
            runnable.append(each)
    return runnable


def _store(request: Request, runnable: Sequence[PlannedModel], gathered: Gathered) -> Store | None:
    if request.results_folder is None:
        return None
    from onnxgate.runtimes.seats import JobLimits
    from onnxgate.store import Store

    facts = {each.model.absolute: gathered.facts[each.path] for each in runnable}
    contents = {str(path): " ".join((content_sha256(each), *layouts(each, path))) for path, each in facts.items()}
    files = {str(path): content_files(each, path) for path, each in facts.items()}
    limits = request.project.config.limits
    allowed = JobLimits(limits.time_s, limits.memory_mib)
    return Store(request.results_folder, contents, files, allowed, fresh=request.fresh)


def _keep_replays(request: Request, execution: Execution) -> None:
    """Find what shows again what the rules say of runs and outputs, and store its inputs."""

    def say(subjects: Iterable[object]) -> Iterable[Judged]:
        return [each for each in judge.judge(subjects, rules.ALL, request.project.config.rules) if not each.silent]

    execution.replays = replays.replays(
        execution.subjects,
        execution.cases,
        say,
        request.asked.seed,
        request.project.path.name,
        request.inputs_folder() if request.inputs_folder is not None else None,
    )


def _away(file: ModelFile) -> tuple[str, str]:
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


def _not_compared(execution: Execution) -> list[Undone]:
    """What could not be compared because it did not run, where no rule of the runtime stage was asked to say so."""
    hint = "ask for the runtime stage, too: it says why"
    return [
        Undone(Stage.PARITY, runs.model, runs.runtime, "it does not load there, or not every case runs", hint)
        for runs in execution.faulty
    ]


def _predicted(judged: Sequence[Judged]) -> dict[tuple[str, str], tuple[str, ...]]:
    """Rules of the support stage that say a model is refused, by model and runtime."""
    predicted: dict[tuple[str, str], dict[str, None]] = {}
    for each in judged:
        own = each.hit.level or rules.by_id[each.rule].level  # whatever the config makes of it
        if each.stage is Stage.SUPPORT and each.hit.model and own is Level.ERROR:
            predicted.setdefault((each.hit.model, each.hit.runtime), {})[each.rule] = None
    return {key: tuple(found) for key, found in predicted.items()}
