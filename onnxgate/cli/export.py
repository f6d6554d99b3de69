"""`onnxgate export`: models made again from their sources, into place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.cli.shared.outputs import print_lines
from onnxgate.cli.shared.project_request import load_project
from onnxgate.cli.shared.worker_pool import open_pool, open_progress
from onnxgate.core.files import temporary_folder
from onnxgate.model.subgraphs.instrumented_models import find_unused_data, read_data_locations, replace_model
from onnxgate.project.lock.loader import load_lock
from onnxgate.project.lock.types import Lock
from onnxgate.project.plan import plan_models
from onnxgate.rules import ALL
from onnxgate.rules.export.export_stale import export_stale
from onnxgate.rules.export.toolchain_drift import toolchain_drift
from onnxgate.runtimes.environments.toolchain import find_toolchain, probe_interpreter, required_frameworks
from onnxgate.stages.export import jobs, stage
from onnxgate.stages.export.stage import compare_toolchain

if TYPE_CHECKING:
    from onnxgate.core.findings import Hit
    from onnxgate.project.config.project import Project, SelectedModel
    from onnxgate.runtimes.pool.scheduler import WorkerPool
    from onnxgate.stages.export.second_export import ExportOutcome

EXIT_FAIL = 1
EXIT_UNDECIDED = 3


@click.command("export")
@click.argument("paths", nargs=-1, metavar="[MODEL]...")
@click.option("--check", is_flag=True, help="Write nothing: is each file what its source exports?")
@common_options
def command(paths: tuple[str, ...], check: bool, options: CommonOptions) -> int:
    """Export models again from their sources, into place.

    A file is left alone where the fresh export is the same model: only what changes the model counts, not names,
    metadata or the order of nodes. It is also left alone where the export fails. With --check, nothing is written and
    the exit status is 1 where a file is not what its source exports.
    """
    project = load_project(options)
    models = project.models(paths, base=options.start, absent=True)
    exported = [model for model in models if model.settings.is_exported]
    counts: Counter[str] = Counter()
    for model, outcome in _export(project, exported, options):
        became, lines = _apply_export(model, outcome, check)
        counts[became] += 1
        print_lines([] if options.quiet else [*lines, *_render_remarks(outcome)])
    counts["without a source"] = len(models) - len(exported)
    print_lines([_render_summary(counts)])
    return _exit_status(counts)


def _export(
    project: Project, models: Sequence[SelectedModel], options: CommonOptions
) -> Iterator[tuple[SelectedModel, ExportOutcome]]:
    """Yield each model with the outcome of its export. Nothing is written before all of them ended."""
    if not models:
        return

    lock = _load_lock_if_present(project)
    python = find_toolchain(
        project.folder, project.config.toolchain, required_frameworks(project.config, project.folder)
    )
    if not options.quiet:
        print_lines(_toolchain_warnings(project, lock, python))
    with temporary_folder() as scratch:
        with open_progress(quiet=options.quiet) as progress, open_pool(project, options, progress) as pool:
            outcomes = list(_submit_exports(project, lock, models, python, Path(scratch), pool))
        yield from outcomes


def _submit_exports(
    project: Project, lock: Lock | None, models: Sequence[SelectedModel], python: Path, scratch: Path, pool: WorkerPool
) -> Iterator[tuple[SelectedModel, ExportOutcome]]:
    spec = jobs.create_toolchain_spec(python)
    waiting = []
    for index, planned in enumerate(plan_models(project, lock or Lock(), models)):
        external_data = bool(read_data_locations(planned.model.absolute))
        plan = jobs.plan_export(project, planned, python, scratch / str(index), external_data=external_data)
        waiting.append((planned.model, plan, pool.submit(spec, plan.job)))
    for model, plan, future in waiting:
        yield model, stage.collect_evidence(project, plan, future.result())


def _load_lock_if_present(project: Project) -> Lock | None:
    return load_lock(project.lock_path) if project.lock_path.exists() else None


def _toolchain_warnings(project: Project, lock: Lock | None, python: Path) -> Iterator[str]:
    """Yield the messages of the rule about the toolchain."""
    if lock is None or lock.toolchain is None:
        return
    interpreter = probe_interpreter(python, lock.toolchain.packages)
    if state := compare_toolchain(project, lock.toolchain, interpreter):
        yield from (f"warning: {hit.message}" for hit in toolchain_drift.judge(state))


def _apply_export(model: SelectedModel, outcome: ExportOutcome, check: bool) -> tuple[str, list[str]]:
    """Write one model if it changed. Return its state and the lines to print about it."""
    if wrong := list(_find_errors(outcome)):
        return "failed", [line for hit in wrong for line in _render_hit(model, hit)]
    if outcome.undone:
        return "not compared", [
            f"{model.path}: cannot be compared: {outcome.undone.reason}",
            *_hint_lines(outcome.undone.hint),
        ]
    differences = _find_differences(outcome, check)
    if not differences:
        return "unchanged", [f"{model.path}: is what its source exports"]
    changes = [f"  {difference}" for difference in differences]
    if check:
        return "changed", [f"{model.path}: is not what its source exports", *changes]
    if not model.absolute.exists():
        return "written", [f"{model.path}: created", *_write_model(model, outcome)]
    return "written", [f"{model.path}: written", *changes, *_write_model(model, outcome)]


def _find_differences(outcome: ExportOutcome, check: bool) -> tuple[str, ...]:
    """Return what differs in the fresh file. A new IR version alone is a reason to write it, but not stale."""
    if outcome.subject is None:
        return ()
    restamped = outcome.subject.committed.ir_change
    return (*((restamped,) if restamped and not check else ()), *outcome.subject.committed.differences)


def _find_errors(outcome: ExportOutcome) -> Iterator[Hit]:
    """Yield the errors of an export, which prevent that it is written."""
    yield from (hit for level, hit in _apply_export_rules(outcome) if level == "error")


def _apply_export_rules(outcome: ExportOutcome) -> Iterator[tuple[str, Hit]]:
    """Yield the hits of all rules about the export itself, with their levels."""
    for rule in ALL:
        if outcome.subject is not None and rule.subject is type(outcome.subject) and rule is not export_stale:
            yield from ((str((hit.level or rule.level).value), hit) for hit in rule.judge(outcome.subject))


def _render_remarks(outcome: ExportOutcome) -> Iterator[str]:
    for level, hit in _apply_export_rules(outcome):
        if level != "error":
            yield from (f"  {level}: {hit.message}", *_hint_lines(hit.fix))


def _render_hit(model: SelectedModel, hit: Hit) -> Iterator[str]:
    line = f":{hit.place.line}" if hit.place.line else ""
    yield f"{model.path}: {hit.message}"
    yield f"  at {hit.place.path}{line}"
    yield from _hint_lines(hit.fix)


def _hint_lines(text: str) -> list[str]:
    return [f"  hint: {text}"] if text else []


def _write_model(model: SelectedModel, outcome: ExportOutcome) -> list[str]:
    assert outcome.fresh is not None  # what differs was written
    before = read_data_locations(model.absolute)
    replace_model(outcome.fresh, model.absolute)
    return [f"  `{name}` is not used by it any more" for name in find_unused_data(before, model.absolute)]


def _render_summary(counts: Counter[str]) -> str:
    summary = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no model"
    return f"{summary}; run `onnxgate lock` next" if counts["written"] else summary


def _exit_status(counts: Counter[str]) -> int:
    if counts["failed"] or counts["changed"]:
        return EXIT_FAIL
    return EXIT_UNDECIDED if counts["not compared"] else 0
