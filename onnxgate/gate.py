"""The gate: stages in their order, rules over their evidence, and one report."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from onnxgate import accepting, judge, replays, rules
from onnxgate.config.lines import key_lines, nearest_line
from onnxgate.config.names import SPELL, Names, unknown_names
from onnxgate.config.project import Project, SelectedModel
from onnxgate.evidence.budget import ModelSize
from onnxgate.evidence.file import ModelFile
from onnxgate.evidence.lock import ModelAgainstLock
from onnxgate.findings import ALL_STAGES, STATIC_STAGES, Claim, Hit, Judged, Level, Place, Stage, Undone
from onnxgate.fingerprints import stamped
from onnxgate.harvests import Builds, lacking
from onnxgate.ignores import Ignores
from onnxgate.inputs.asked import ALL, Asked
from onnxgate.lock.types import Lock
from onnxgate.model.content import content_sha256
from onnxgate.model.facts import ModelFacts
from onnxgate.plan import PlannedModel, locked_runtimes, plan_models, unlocked_builds
from onnxgate.report import Change, Finding
from onnxgate.stages import file as file_stage
from onnxgate.stages import lock as lock_stage
from onnxgate.stages import support as support_stage
from onnxgate.support.operations import Prediction
from onnxgate.work import Execution, Work

if TYPE_CHECKING:
    from onnxgate.baseline.revisions import Revision
    from onnxgate.runtimes.host import Host
    from onnxgate.shards import Share
    from onnxgate.store import Store
    from onnxgate.support.harvested import Kept
    from onnxgate.work import Watch


@dataclass(frozen=True, slots=True)
class Request:
    """What one run of the gate is asked to judge."""

    project: Project
    lock: Lock
    lock_text: str
    lock_name: str  # the lock's path for places: "onnxgate.lock"
    models: tuple[SelectedModel, ...]
    stages: frozenset[Stage]
    today: datetime.date
    open_host: Callable[[], AbstractContextManager[Host]]
    honour_ignores: bool = True
    support_folder: Callable[[], Path] | None = None  # where harvests of builds are kept; None: there are none
    asked: Asked = ALL  # the input cases
    inputs_folder: Callable[[], Path] | None = None  # where inputs are stored that show a finding; None: nowhere
    against: Revision | None = None  # the baseline
    unheld: str = ""  # why there is none, where one is expected
    share: Share | None = None  # `models` are one part of a check
    results_folder: Path | None = None  # where results of the same content may be taken from; None: all is run
    watch: Watch | None = None  # is shown what each model gave, while the files are there


@dataclass(slots=True)
class Gathered:
    """What has been found so far; grows stage by stage."""

    judged: list[Judged] = field(default_factory=list)
    undone: list[Undone] = field(default_factory=list)
    skipped: list[Undone] = field(default_factory=list)
    facts: dict[str, ModelFacts] = field(default_factory=dict)  # of models that could be read or are proven by the lock
    places: dict[str, Place] = field(default_factory=dict)  # where findings about each of them stand
    away: dict[str, tuple[str, str]] = field(default_factory=dict)  # models that are not all here: why, what helps
    predictions: dict[tuple[str, str], Prediction] = field(default_factory=dict)  # by model and runtime
    kept: Mapping[str, Kept] = field(default_factory=dict)  # what was harvested of runtimes, by name
    remarks: list[str] = field(default_factory=list)  # what is to be said and is no finding
    changes: list[Change] = field(default_factory=list)  # since the baseline, by model
    execution: Execution = field(default_factory=Execution)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that the report is made from."""

    planned: tuple[PlannedModel, ...]
    findings: tuple[Finding, ...]
    gathered: Gathered
    blocked: frozenset[str]  # models that are broken as files, and therefore were not run
    failed: frozenset[
        tuple[str, str]
    ]  # (model, runtime) of every observed error, also of those that a finding explains


def run(request: Request) -> Outcome:
    """Run the stages asked for, and weigh what they found."""
    gathered = Gathered()
    planned = plan_models(request.project, request.lock, request.models)
    files = _promised(file_stage.gather(_placed(request), request.lock), planned)
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
        _judge(request, gathered, _support_subjects(request, planned, gathered))
    blocked = frozenset(_blocked(request, gathered))
    gathered.undone += _unread(request, gathered, blocked)
    _execute(request, planned, blocked, gathered)
    gathered.judged = [each for each in gathered.judged if not _is_answered(each, gathered.execution)]
    if request.stages & {Stage.LOCK, Stage.RUNTIME}:
        gathered.skipped += unlocked_builds(request.project, request.lock, request.models)
    return weighed(request, planned, gathered, blocked)


def again(request: Request, outcome: Outcome) -> Outcome:
    """The outcome under other ignores: weighed again; all is run again where they let a broken model be run."""
    blocked = frozenset(_blocked(request, outcome.gathered))
    if blocked != outcome.blocked:
        return run(request)
    return weighed(request, outcome.planned, outcome.gathered, blocked)


def weighed(
    request: Request, planned: tuple[PlannedModel, ...], gathered: Gathered, blocked: frozenset[str]
) -> Outcome:
    findings = _findings(request, gathered, blocked)
    return Outcome(planned, findings, gathered, blocked, _failed(gathered, findings))


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
    unreadable = [file.path for file in files if file.unreadable and Stage.FILE in request.stages]
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


def _support_subjects(request: Request, planned: Sequence[PlannedModel], gathered: Gathered) -> list[object]:
    subjects: list[object] = []
    folders = request.project.root, request.project.folder
    for each in planned:
        if each.path in gathered.facts:
            facts, place = gathered.facts[each.path], gathered.places[each.path]
            predicted = support_stage.gather_model(each.model, facts, place, *folders, each.runtimes, gathered.kept)
            subjects += predicted.subjects
            gathered.predictions |= {(each.path, name): found for name, found in predicted.predictions.items()}
    every = {runtime.name: runtime for each in planned for runtime in each.runtimes}
    subjects += support_stage.gather_unpredicted(tuple(every.values()), Place(request.lock_name), gathered.kept)
    return subjects


def _blocked(request: Request, gathered: Gathered) -> set[str]:
    """Broken files: an error of the file stage that no ignore accepts, and whatever could not be read at all."""
    static = [each for each in gathered.judged if each.stage not in accepting.DYNAMIC]
    return judge.blocked(static, ignores_of(request, gathered))


def _execute(request: Request, planned: Sequence[PlannedModel], blocked: frozenset[str], gathered: Gathered) -> None:
    """The stages that start processes: runtime, parity, export."""
    asked = request.stages & {Stage.RUNTIME, Stage.PARITY, Stage.EXPORT}
    if not asked:
        return
    runnable = []
    for each in planned:
        if each.path in blocked:
            continue
        if each.path in gathered.away:
            reason, hint = gathered.away[each.path]
            stages = asked if each.model.settings.is_exported else asked - {Stage.EXPORT}
            gathered.undone += [Undone(stage, each.path, "", reason, hint) for stage in sorted(stages)]
        else:
            runnable.append(each)
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
    gathered.execution = execution
    if Stage.RUNTIME not in asked:
        gathered.undone += _not_compared(execution)
    gathered.undone += misnamed(request, gathered.facts)
    gathered.undone += execution.undone
    gathered.skipped += execution.skipped
    _judge(request, gathered, execution.subjects)


def _store(request: Request, runnable: Sequence[PlannedModel], gathered: Gathered) -> Store | None:
    if request.results_folder is None:
        return None
    from onnxgate.store import Store

    contents = {str(each.model.absolute): content_sha256(gathered.facts[each.path]) for each in runnable}
    return Store(request.results_folder, contents)


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
    if file.unreadable:
        return f"it cannot be opened: {file.unreadable}", ""
    broken = next((use for use in file.external if use.problem), None)
    if broken is None:
        return f"it cannot be read: it is {file.really}", ""
    data = PurePosixPath(file.git_path).parent / broken.location
    hint = f'git lfs pull --include "{data}"' if broken.problem == "lfs-pointer" else ""
    return f"its external data `{broken.location}` is not all here", hint


def misnamed(request: Request, facts: Mapping[str, ModelFacts]) -> list[Undone]:
    """Sizes and tolerances that the config asks for by a name that no model has."""
    asked = {Stage.RUNTIME, Stage.PARITY} & request.stages
    problems = unknown_names(request.project, names_of(facts)) if asked else ()
    return [Undone(min(asked, key=ALL_STAGES.index), "", "", problem, SPELL) for problem in problems]


def names_of(facts: Mapping[str, ModelFacts]) -> dict[str, Names]:
    """What each model calls its axes and outputs."""
    return {path: Names(_axes(each), [value.name for value in each.outputs]) for path, each in facts.items()}


def _axes(facts: ModelFacts) -> set[str]:
    from onnxgate.inputs.sizes import axis_names

    return {dim for value in facts.inputs for dim in axis_names(value) if isinstance(dim, str)}


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


def ignores_of(request: Request, gathered: Gathered) -> Ignores:
    """The config's, with the content that each model has now."""
    entries = request.project.config.ignore if request.honour_ignores else ()
    contents = {}
    if any(entry.sha256 is not None for entry in entries):
        contents = {path: content_sha256(facts) for path, facts in gathered.facts.items()}
    return Ignores(entries, request.today, contents)


def _findings(request: Request, gathered: Gathered, blocked: frozenset[str]) -> tuple[Finding, ...]:
    known = [runtime.name for _, _, runtime in locked_runtimes(request.project, request.lock)]
    ignores = ignores_of(request, gathered)
    judged = stamped(gathered.judged)
    weighed, met = ignores.apply(judge.merge(judge.weigh(judged, ignores.accepts), known))
    present = {each.fingerprint for each in judged}
    uses = accepting.uses(ignores, judged_scope(request, gathered, blocked, ignores), met, present)
    if request.share is not None:  # what concerns models of other shards, their merge says
        uses = accepting.decided(uses, request.share.others(each.path for each in request.models))
    own = list(judge.judge(uses, rules.ALL, request.project.config.rules))
    return tuple(weighed + judge.merge(judge.weigh(own), known))


def _failed(gathered: Gathered, findings: Sequence[Finding]) -> frozenset[tuple[str, str]]:
    """Where an error was observed that no ignore accepts: by itself, or through the finding that explains it."""
    counted = {
        (finding.rule, finding.model) for finding in findings if finding.level == "error" and not finding.ignored
    }
    return frozenset(
        (each.hit.model, each.hit.runtime)
        for each in gathered.judged
        if each.level is Level.ERROR
        and each.stage not in STATIC_STAGES
        and any((rule, each.hit.model) in counted for rule in _causes(each.hit))
    )


def _causes(hit: Hit) -> set[str]:
    return {said.rule if isinstance(said, Claim) else said for said in (*hit.explained_by, *hit.follows_from)}


def judged_scope(request: Request, gathered: Gathered, blocked: frozenset[str], ignores: Ignores) -> accepting.Scope:
    """What the rules could know: of a model that is not here, broken or not run, they know less."""
    selected = frozenset(model.path for model in request.models)
    stages, held = _judged_stages(request), request.against is not None
    scope = accepting.Scope(request.project, selected, stages, ignores.contents, held)
    scope.leave_undone([*gathered.undone, *gathered.skipped])
    scope.leave_open(stages - {Stage.LOCK}, gathered.away)
    scope.leave_open(stages, selected - gathered.facts.keys())
    scope.leave_open(accepting.DYNAMIC, blocked)
    scope.leave_open(accepting.AFTER_RUNS, {runs.model for runs in gathered.execution.faulty})
    if request.asked.cases:
        scope.leave_open(accepting.DYNAMIC, [accepting.EVERY])
    return scope


def _judged_stages(request: Request) -> frozenset[Stage]:
    """The stages whose rules were asked; those about budgets were where sizes were read and models were run."""
    of_budgets = {Stage.FILE, Stage.RUNTIME} <= request.stages
    return request.stages | {Stage.BUDGET} if of_budgets else request.stages
