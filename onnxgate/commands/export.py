"""`onnxgate export`: re-exports models from their sources."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from onnxgate.core.advice import render_advice
from onnxgate.core.bug_reports import ErrorBoundary, contain_errors
from onnxgate.core.findings import Hit, IncompleteCheck, Level, Stage
from onnxgate.model.subgraphs.instrumented_models import find_unused_data, read_data_locations, replace_model
from onnxgate.project.config.project import Project, SelectedModel
from onnxgate.project.lock.releases import apply_selection
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedTarget
from onnxgate.project.plan import PlannedModel, plan_models
from onnxgate.rules import ALL
from onnxgate.rules.export.export_failed import export_failed
from onnxgate.rules.export.export_stale import export_stale
from onnxgate.rules.export.source_not_exportable import source_not_exportable
from onnxgate.rules.export.toolchain_drift import toolchain_drift
from onnxgate.runtimes.environments.toolchain import probe_interpreter
from onnxgate.runtimes.pool import WorkerPool
from onnxgate.stages import export as stage
from onnxgate.stages.export import ExportOutcome
from onnxgate.stages.export_jobs import ProjectToolchain, plan_export, submit_export
from onnxgate.stages.support.runtime_data import find_table_engine
from onnxgate.support.limits import load_limit_table


def find_toolchain_warnings(toolchain: ProjectToolchain, lock: Lock) -> Iterator[str]:
    """Yield a warning if the installed toolchain does not match the locked one."""
    if lock.toolchain is None:
        return
    interpreter = probe_interpreter(toolchain.python, lock.toolchain.packages)
    if state := stage.compare_toolchain(toolchain.project, lock.toolchain, interpreter):
        yield from (f"warning: {hit.message}" for hit in toolchain_drift.judge(state))


def assume_runtimes(project: Project) -> Lock:
    """Return a lock for an export before the first `lock`: the releases with support data that each target admits."""
    targets = {}
    for name, target in project.config.targets.items():
        requirement = Requirement(target.runtime)
        engine = canonicalize_name(requirement.name)
        known = load_limit_table(find_table_engine(engine)).releases
        releases = [release for release in known if requirement.specifier.contains(release)]
        runtimes = [LockedRuntime(engine=engine, release=release) for release in releases]
        targets[name] = LockedTarget(policy="", runtimes=apply_selection(runtimes, target.select) if runtimes else ())
    return Lock(targets=targets)


def export_models(
    toolchain: ProjectToolchain, lock: Lock, models: Sequence[SelectedModel], scratch: Path, pool: WorkerPool
) -> list[tuple[SelectedModel, ExportOutcome]]:
    """Export the models into `scratch`; the committed files are not changed."""

    def submit(planned: PlannedModel, folder: Path) -> Callable[[], ExportOutcome]:
        external_data = bool(read_data_locations(planned.model.absolute))
        plan = plan_export(toolchain, planned, folder, external_data=external_data)
        future = submit_export(plan, toolchain.spec, pool)
        return lambda: stage.collect_evidence(toolchain.project, plan, future.result())

    undone: list[IncompleteCheck] = []
    submitted: dict[str, Callable[[], ExportOutcome]] = {}
    collected: dict[str, ExportOutcome] = {}
    for index, planned in enumerate(plan_models(toolchain.project, lock, models)):
        with contain_errors(planned.path, (Stage.EXPORT,), undone):
            submitted[planned.path] = submit(planned, scratch / str(index))
    for path, collect in submitted.items():
        with contain_errors(path, (Stage.EXPORT,), undone):
            collected[path] = collect()
    collected |= {it.model: ExportOutcome(undone=it) for it in undone}
    return [(model, collected[model.path]) for model in models]


def apply_export(model: SelectedModel, outcome: ExportOutcome, check: bool) -> tuple[str, list[str]]:
    """Replace a model if its export succeeded and differs; with `check`, write nothing.

    Return the state of the model and the lines to print.
    """
    with ErrorBoundary() as caught:
        return _judge_and_apply(model, outcome, check)
    state = "not compared" if check else "not written"
    return state, [f"{model.path}: {state}: {caught.reason}", *_hint_lines(caught.hint)]


def _judge_and_apply(model: SelectedModel, outcome: ExportOutcome, check: bool) -> tuple[str, list[str]]:
    subject = outcome.subject
    rules = [it for it in ALL if subject is not None and it.subject is type(subject) and it is not export_stale]
    rules.sort(key=lambda rule: rule not in (export_failed, source_not_exportable))  # they explain why there is no file
    hits = [(hit.level or rule.level, hit) for rule in rules for hit in rule.judge(subject)]
    state, lines = _apply(model, outcome, [hit for level, hit in hits if level is Level.ERROR], check)
    for level, hit in hits:
        if level is not Level.ERROR:
            lines += [f"  {level.value}: {hit.message}", *_hint_lines(render_advice(hit.fix))]
    return state, lines


def _apply(model: SelectedModel, outcome: ExportOutcome, errors: Sequence[Hit], check: bool) -> tuple[str, list[str]]:
    if errors:
        lines = []
        for hit in errors:
            line = f":{hit.place.line}" if hit.place.line else ""
            lines += [f"{model.path}: {hit.message}", f"  at {hit.place.path}{line}"]
            lines += _hint_lines(render_advice(hit.fix))
        return "failed", lines
    if outcome.undone:
        problem = "cannot be exported" if outcome.subject is None else "cannot be compared"
        reason = f"{model.path}: {problem}: {outcome.undone.reason}"
        return "not compared", [reason, *_hint_lines(outcome.undone.hint)]
    differences = _find_differences(outcome, check)
    if not differences:
        return "unchanged", [f"{model.path}: matches its export"]
    changes = [f"  {difference}" for difference in differences]
    if check:
        return "changed", [f"{model.path}: differs from its export", *changes]
    if not model.absolute.exists():
        return "written", [f"{model.path}: created", *_write_model(model, outcome)]
    return "written", [f"{model.path}: written", *changes, *_write_model(model, outcome)]


def _find_differences(outcome: ExportOutcome, check: bool) -> tuple[str, ...]:
    """Return the differences between a committed model and its export. With `check`, IR versions are not compared."""
    if outcome.subject is None:
        return ()
    committed = outcome.subject.committed
    ir_changes = (committed.ir_change,) if committed.ir_change and not check else ()
    return (*ir_changes, *committed.differences)


def _hint_lines(text: str) -> list[str]:
    return [f"  hint: {text}"] if text else []


def _write_model(model: SelectedModel, outcome: ExportOutcome) -> list[str]:
    """Replace the model with its export. Return output lines about data files that it no longer uses."""
    assert outcome.fresh is not None  # a model with differences was exported
    before = read_data_locations(model.absolute)
    replace_model(outcome.fresh, model.absolute)
    return [f"  this model no longer uses `{name}`" for name in find_unused_data(before, model.absolute)]
