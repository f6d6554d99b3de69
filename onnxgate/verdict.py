"""One report of all that was found: a cell per model and runtime, counts, verdict and exit status."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate import __version__
from onnxgate.findings import ALL_STAGES, Stage, Undone
from onnxgate.plan import locked_runtimes, reported
from onnxgate.replays import shown
from onnxgate.report import (
    LEVELS,
    Against,
    Cell,
    CellState,
    Drawing,
    FailOn,
    Finding,
    Report,
    ReportedModel,
    ReportedRuntime,
    Shard,
    decide,
    not_done,
)
from onnxgate.request import Outcome, Request


def sum_up(request: Request, outcome: Outcome, fail_on: FailOn, *, drawn: bool = True) -> Report:
    """The report of one run of the gate; not `drawn`, it has no drawings, which take the models to be read again."""
    gathered = outcome.gathered
    verdict, exit_status = decide(outcome.findings, bool(gathered.undone), fail_on)
    stages = tuple(stage.value for stage in ALL_STAGES if stage in request.stages)
    return Report(
        onnxgate=__version__,
        verdict=verdict,
        exit=exit_status,
        folder=_folder(request),
        scope=_scope(request),
        stages=stages,
        models=tuple(_models(outcome)),
        runtimes=tuple(_runtimes(request, outcome)),
        cells=tuple(_cells(request, outcome)),
        findings=outcome.findings,
        undecided=not_done(gathered.undone),
        skipped=not_done(gathered.skipped),
        measured=tuple(sorted(gathered.execution.measured, key=lambda each: each.model)),
        counts=_counts(outcome),
        replays=shown(gathered.execution.replays, outcome.findings),
        remarks=tuple(sorted(set(gathered.remarks))),
        against=_against(request),
        changes=tuple(gathered.changes),
        drawings=_drawings(request, outcome) if drawn else (),
        shard=_shard(request, outcome),
    )


def _shard(request: Request, outcome: Outcome) -> Shard | None:
    if request.share is None:
        return None
    from onnxgate.sharing import shard_of

    return shard_of(request, outcome, request.share, "; ".join(_left_out(request, len(request.share.whole))))


def _drawings(request: Request, outcome: Outcome) -> tuple[Drawing, ...]:
    """Files are read once more where a finding names a node, and only there."""
    if not any(finding.level in LEVELS[:2] and not finding.ignored for finding in outcome.findings):
        return ()
    from onnxgate.drawings import draw

    return draw(outcome.findings, {model.path: model.absolute for model in request.models})


def _against(request: Request) -> Against | None:
    if request.against is None:
        return None
    return Against(name=request.against.name, commit=request.against.commit)


def _folder(request: Request) -> str:
    folder = request.project.folder.resolve().relative_to(request.project.root.resolve()).as_posix()
    return "" if folder == "." else folder


def _scope(request: Request) -> str:
    """What was not asked for, in words; a verdict never claims more than was judged."""
    if request.share is None:
        return "; ".join(_left_out(request, len(request.models)))
    others = len(request.share.whole) - len(request.models)
    elsewhere = f"the other {others} models are" if others > 1 else "the other model is"
    said = f"{request.share}: {elsewhere} judged elsewhere" if others else f"{request.share}, which has all models"
    return "; ".join([said, *_left_out(request, len(request.share.whole))])


def _left_out(request: Request, models: int) -> list[str]:
    """What is not asked for where so many models are judged."""
    left_out = [stage.value for stage in ALL_STAGES if stage not in request.stages]
    said = [f"{', '.join(left_out)} not asked for"] if left_out else []
    others = len(request.project.models()) - models
    if others > 0:
        said.append(f"{others} other model{'s' if others > 1 else ''} not asked for")
    if request.asked.cases:
        said.append("other input cases not asked for")
    return said


def _models(outcome: Outcome) -> Iterator[ReportedModel]:
    for planned in outcome.planned:
        facts = outcome.gathered.facts.get(planned.path)
        yield ReportedModel(path=planned.path, sha256=facts.sha256 if facts else "")


def _runtimes(request: Request, outcome: Outcome) -> Iterator[ReportedRuntime]:
    used = {runtime.runtime for each in outcome.planned for runtime in each.runtimes}
    for name, target, runtime in locked_runtimes(request.project, request.lock):
        if runtime in used:
            yield reported(name, target, runtime)


def _cells(request: Request, outcome: Outcome) -> Iterator[Cell]:
    findings: dict[str, list[Finding]] = {}
    for finding in outcome.findings:
        if not finding.ignored:
            findings.setdefault(finding.model, []).append(finding)
    for planned in outcome.planned:
        for runtime in planned.runtimes:
            yield _cell(request, outcome, planned.path, runtime.name, findings.get(planned.path, ()))


def _cell(request: Request, outcome: Outcome, model: str, runtime: str, findings: Sequence[Finding]) -> Cell:
    about = [finding for finding in findings if _concerns(finding, runtime)]
    compared = (model, runtime) in outcome.gathered.execution.compared
    return Cell(model=model, runtime=runtime, state=_state(request, outcome, model, runtime, about), compared=compared)


def _state(request: Request, outcome: Outcome, model: str, runtime: str, about: Sequence[Finding]) -> CellState:
    gathered = outcome.gathered
    errors = any(finding.level == "error" for finding in about)
    if errors or model in outcome.blocked or (model, runtime) in outcome.failed:
        return "fail"
    if Stage.RUNTIME in request.stages and any(_is_about(u, model, runtime) for u in gathered.undone):
        return "undecided"
    if any(_is_about(u, model, runtime) for u in gathered.skipped):
        return "skipped"
    if any(finding.level == "warning" for finding in about):
        return "warning"
    if any((each.model, each.runtime) == (model, runtime) for each in gathered.execution.faulty):
        return "undecided"
    if (model, runtime) in gathered.execution.ran:
        return "pass"
    if Stage.SUPPORT not in request.stages:
        return "not asked"
    told = gathered.verdicts.get((model, runtime), "unknown") != "unknown"
    return "predicted" if told else "not predicted"


def _concerns(finding: Finding, runtime: str) -> bool:
    """A finding about no runtime in particular concerns all of them where it is about the file itself."""
    return runtime in finding.runtimes or (not finding.runtimes and finding.stage == Stage.FILE.value)


def _is_about(undone: Undone, model: str, runtime: str) -> bool:
    if undone.stage not in (Stage.RUNTIME, Stage.PARITY):
        return False
    return undone.model in ("", model) and undone.runtime in ("", runtime)


def _counts(outcome: Outcome) -> dict[str, int]:
    gathered = outcome.gathered
    shown = [finding for finding in outcome.findings if not finding.ignored]
    counts = {f"{level}s": sum(finding.level == level for finding in shown) for level in LEVELS}
    counts |= {
        "ignored": len(outcome.findings) - len(shown),
        "models": len(outcome.planned),
        "runtimes": len({runtime.name for each in outcome.planned for runtime in each.runtimes}),
        "without_source": sum(
            each.model.settings.source is None and each.model.settings.command is None for each in outcome.planned
        ),
        "undecided": len(not_done(gathered.undone)),
        "skipped": len(not_done(gathered.skipped)),
        "ran": len(gathered.execution.ran),
        "compared": len(gathered.execution.compared),
        "reused": len(gathered.execution.reused),
    }
    return counts
