"""`onnxgate lock`: pins exact releases in `onnxgate.lock`."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import shlex
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path

import click
import msgspec

from onnxgate import __version__
from onnxgate.cli.shared.hint_commands import append_command_folder
from onnxgate.cli.shared.options import (
    ANSWER_FORMATS,
    EXIT_FAIL,
    EXIT_UNDECIDED,
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
)
from onnxgate.cli.shared.outputs import Sink, parse_outputs, print_lines, write_answer
from onnxgate.cli.shared.project_request import (
    group_by_project,
    load_project,
    make_project_request,
    print_untracked_models,
    run_for_each_project,
)
from onnxgate.cli.shared.worker_pool import open_pool_with_progress
from onnxgate.commands.measurement import measure_quantized_models, measure_source_tolerances
from onnxgate.commands.upgrade_preview import preview_upgrade
from onnxgate.core.errors import LockError, UnavailableError, UsageError
from onnxgate.core.files import temporary_folder
from onnxgate.core.findings import ALL_STAGES, IncompleteCheck, Stage
from onnxgate.core.report import Preview, UpgradeProposal
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.evidence.file import ModelFile
from onnxgate.formats import upgrade_preview
from onnxgate.gate.sharding.plan import digest_text_file
from onnxgate.gate.static import create_caching_analyzer
from onnxgate.project.config.project import Project, suggest_export_command
from onnxgate.project.lock.comparison import describe_lock_changes, toolchain_differences
from onnxgate.project.lock.lock_file import load_lock_to_update, parse_lock, read_lock, render_lock, write_lock
from onnxgate.project.lock.releases import parse_upgrade
from onnxgate.project.lock.types import Lock, LockedRuntime, LockedToolchain
from onnxgate.project.lock.update import (
    LockUpdate,
    Machine,
    MeasuredTolerances,
    lock_models,
    update_lock,
    update_lock_models,
)
from onnxgate.rules.lock.lock_stale import lock_stale
from onnxgate.rules.lock.model_changed import model_changed
from onnxgate.rules.lock.unlocked_model import unlocked_model
from onnxgate.runtimes.environments.storage import static_dir
from onnxgate.runtimes.environments.toolchain import (
    find_toolchain,
    lock_toolchain,
    packages_to_record,
    required_frameworks,
)
from onnxgate.runtimes.environments.user_environment import find_user_build
from onnxgate.stages import lock as lock_stage
from onnxgate.support.probes import ProbeError


@click.command("lock")
@click.argument("paths", nargs=-1)
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with status 1 if the lock does not match the config or the models.",
)
@click.option(
    "--upgrade",
    "upgrades",
    is_flag=False,
    flag_value="",
    multiple=True,
    metavar="[REQUIREMENT]",
    help="Upgrade all pins, or only the pins of one package (`numpy`, `onnxruntime==1.31.1`). Repeatable.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Measure and record tolerances for models with a `source`, and the accuracy of quantized models.",
)
@click.option(
    "--preview",
    is_flag=True,
    help="With `--upgrade`: write nothing; run the models on the new releases and print the differences. Exit with "
    "status 1 if a model would stop working or an output would change by more than its tolerance.",
)
@output_option(f"the preview as {name_formats(ANSWER_FORMATS)}")
@common_options_without(conditions={"fail_on": "With `--preview`", "no_ignores": "With `--preview`"})
def command(
    paths: tuple[str, ...],
    check: bool,
    upgrades: tuple[str, ...],
    measure: bool,
    preview: bool,
    outputs: tuple[str, ...],
    options: CommonOptions,
) -> int:
    """Pin exact releases for all targets in onnxgate.lock.

    Pins that still match the config are kept, unless `--upgrade` is given. With PATHS, only the entries of the models
    that PATHS select are updated.
    """
    _check_options(paths, check, upgrades, measure, preview)
    for option, is_given in (
        ("--fail-on", options.fail_on != "error"),
        ("--no-ignores", options.no_ignores),
        ("--output", bool(outputs)),
    ):
        if is_given and not preview:
            raise UsageError(f"`{option}` requires `--preview`")
    sinks = parse_outputs(outputs, ANSWER_FORMATS) if preview else ()
    if check:
        groups = group_by_project(paths, options, all_below=True)
        return run_for_each_project(groups, functools.partial(_check_lock, options))
    project = load_project(options, paths)
    old: Lock | None = None
    damages: tuple[str, ...] = ()
    if project.lock_path.exists():
        old, damages = load_lock_to_update(project.lock_path, repair=not (preview or paths))
    if preview:
        return _preview_upgrade(project, old, upgrades, sinks, options)
    measured: MeasuredTolerances = {}
    undone: list[IncompleteCheck] = []  # models that were not measured because of an error
    if measure:
        with open_pool_with_progress(project, options) as pool:
            measurement = measure_source_tolerances(project, project.models(paths, base=options.start), pool)
        if not options.quiet:
            print_lines(f"note: {note}" for note in measurement.notes)
        measured = measurement.figures
        undone += measurement.undone
    if paths:
        relocked = _relock_models(project, old, paths, measured, options)
    else:
        relocked = _relock_project(project, old, upgrades, measured, options)
    repairs = [f"`{project.lock_path.name}` was damaged and is repaired: {damage}" for damage in damages]
    relocked = dataclasses.replace(relocked, notes=(*repairs, *relocked.notes))
    if measure:
        relocked = _add_quantization_figures(project, relocked, paths, undone, options)
    print_lines(line for it in undone for line in _describe_unmeasured(it))
    _write_lock(project, old, relocked, options)
    return EXIT_UNDECIDED if undone else 0


def _describe_unmeasured(check: IncompleteCheck) -> Iterator[str]:
    yield f"`{check.model}` could not be measured: {check.reason}"
    if check.hint:
        yield f"  hint: {check.hint}"


def _check_options(paths: Sequence[str], check: bool, upgrades: Sequence[str], measure: bool, preview: bool) -> None:
    if upgrades and paths:
        raise UsageError("`--upgrade` and PATHS cannot be combined")
    if check and (upgrades or measure or preview):
        raise UsageError("`--check` cannot be combined with `--upgrade`, `--preview` or `--measure`")
    if preview and (not upgrades or measure):
        raise UsageError(
            "`--preview` requires `--upgrade` and cannot be combined with `--measure`",
            hint="run `onnxgate lock --upgrade --preview`",
        )


def _add_quantization_figures(
    project: Project,
    relocked: LockUpdate,
    paths: Sequence[str],
    undone: list[IncompleteCheck],
    options: CommonOptions,
) -> LockUpdate:
    """Measure the accuracy of quantized models on the runtimes in the new lock. Return the lock with the results.

    `undone` receives the models that were not measured because of an error.
    """
    models = project.models(paths, base=options.start)
    if all(model.settings.quantized_from is None for model in models):
        return relocked
    lock = relocked.lock
    with open_pool_with_progress(project, options) as pool:
        record = measure_quantized_models(project, lock, models, pool)
    undone += record.undone
    entries = {
        path: msgspec.structs.replace(entry, quantization=record.figures.get(path, entry.quantization))
        for path, entry in lock.models.items()
    }
    lock = msgspec.structs.replace(lock, models=entries)
    return dataclasses.replace(relocked, lock=lock, notes=(*relocked.notes, *record.notes))


def _relock_project(
    project: Project, old: Lock | None, upgrades: Sequence[str], measured: MeasuredTolerances, options: CommonOptions
) -> LockUpdate:
    upgrade = parse_upgrade(upgrades)
    entries = lock_models(project.models(), old.models if old else {}, measured)
    probe, find_build = functools.partial(_lock_toolchain, project), functools.partial(find_user_build, project.folder)
    return update_lock(project, old, entries, Machine(probe, find_build, options.offline), upgrade)


def _preview_upgrade(
    project: Project, old: Lock | None, upgrades: Sequence[str], sinks: Sequence[Sink], options: CommonOptions
) -> int:
    """Write the preview of an upgrade and return the exit status.

    The status is 1 if a model would break or an output would change by more than its tolerance, 3 if that is unknown,
    and otherwise 0.
    """
    if old is None:
        raise LockError(f"`{project.lock_path.name}` does not exist", hint="run `onnxgate lock`")
    relocked = _relock_project(project, old, upgrades, {}, options)
    if not options.quiet and Sink("text") in sinks:
        print_lines(f"note: {note}" for note in relocked.notes)
    flags = [f"--upgrade {shlex.quote(upgrade)}" if upgrade else "--upgrade" for upgrade in upgrades]
    proposal = UpgradeProposal(
        onnxgate=__version__,
        command=" ".join(["onnxgate lock", *flags]),
        lock_path=project.lock_path.resolve().relative_to(project.root.resolve()).as_posix(),
        lock_sha256=digest_text_file(project.lock_path),
        new_lock="",
        preview=None,
    )
    if render_lock(relocked.lock) != render_lock(old):
        request = make_project_request(project, old, project.models(), frozenset(ALL_STAGES), options)
        with temporary_folder() as scratch:
            folders = (Path(scratch, str(number)) for number in itertools.count())
            preview = preview_upgrade(request, relocked.lock, options.fail_on, lambda: next(folders))
        pins = msgspec.structs.replace(relocked.lock, models=old.models)  # the preview does not accept changed models
        proposal = msgspec.structs.replace(proposal, new_lock=render_lock(pins), preview=preview)
    write_answer(
        sinks,
        proposal,
        functools.partial(_render_preview, proposal, quiet=options.quiet),
        functools.partial(upgrade_preview.format_markdown, proposal.preview, proposal.command),
    )
    return _rate_preview(proposal.preview)


def _render_preview(proposal: UpgradeProposal, *, quiet: bool, color: bool, width: int) -> str:
    if proposal.preview is None:
        return f"preview: {upgrade_preview.NO_CHANGES}\n"
    text = upgrade_preview.format(proposal.preview, proposal.command, color=color, width=width, quiet=quiet)
    return "\n".join(map(append_command_folder, text.split("\n")))


def _rate_preview(preview: Preview | None) -> int:
    if preview is None:
        return 0
    if preview.breaks or preview.beyond:  # a known problem takes precedence
        return EXIT_FAIL
    return EXIT_UNDECIDED if preview.undecided or preview.after.undecided else 0


def _relock_models(
    project: Project, old: Lock | None, paths: Sequence[str], measured: MeasuredTolerances, options: CommonOptions
) -> LockUpdate:
    locked = old.models if old else {}
    files = {path: Path(os.path.normpath(options.start.absolute() / path)) for path in paths}
    inside = {
        path: file.relative_to(project.folder).as_posix()
        for path, file in files.items()
        if file.is_relative_to(project.folder)
    }
    removed = {
        path: relative
        for path, relative in inside.items()
        if relative in locked and not (os.path.lexists(files[path]) and _has_model(project, relative))
    }
    present = [path for path in paths if path not in removed]
    models = project.models(present, base=options.start) if present else ()
    return update_lock_models(old, lock_models(models, locked, measured), removed.values())


def _has_model(project: Project, path: str) -> bool:
    """Return whether the project contains a model with this path. Excluded and untracked files do not count."""
    return any(model.path == path for model in project.models())


def _lock_toolchain(project: Project) -> LockedToolchain:
    settings = project.config.toolchain
    python = find_toolchain(project.folder, settings, required_frameworks(project.config, project.folder))
    try:
        return lock_toolchain(python, settings, packages_to_record(project.config, project.folder))
    except ProbeError as error:
        raise UnavailableError(f"the toolchain {error}") from error


def _write_lock(project: Project, old: Lock | None, relocked: LockUpdate, options: CommonOptions) -> None:
    """Write the lock and print the changes.

    Raises:
        UnavailableError: the lock is written without the toolchain, which this machine does not have, or without models
            that were not exported.
    """
    before, name = old or Lock(), project.lock_path.name
    if not options.quiet:
        print_lines(describe_lock_changes(before, relocked.lock))
        print_lines(f"note: {note}" for note in relocked.notes)
    written = write_lock(relocked.lock, project.lock_path)
    runtimes = _locked_runtimes(relocked.lock)
    kept_count = len(runtimes & _locked_runtimes(before))
    kept = f" ({kept_count} unchanged)" if kept_count and written else ""
    unexported = [model.path for model in project.unexported()]
    missing = (
        *toolchain_differences(project.config, relocked.lock),
        *(f"`{path}` has not been exported" for path in unexported),
    )
    state = f"wrote `{name}`" if written else f"`{name}` is unchanged" if missing else f"`{name}` is up to date"
    print_lines([f"{state}: {_describe_size(len(relocked.lock.models), runtimes)}{kept}"])
    if missing:
        hint = "activate the environment that exports the models, or set `toolchain.python` to its path"
        if unexported:
            hint = suggest_export_command(unexported[0])
        raise UnavailableError(f"`{name}` is not complete: {join_phrases(missing)}", hint=hint)


def _describe_size(model_count: int, runtimes: Sized) -> str:
    return f"{pluralize(model_count, 'model')}, {pluralize(len(runtimes), 'runtime')}"


def _locked_runtimes(lock: Lock) -> set[LockedRuntime]:
    return {runtime for target in lock.targets.values() for runtime in target.runtimes}


def _check_lock(options: CommonOptions, config: Path | None, paths: Sequence[str | Path]) -> int:
    if config is not None:
        options = dataclasses.replace(options, config=config)
    project = load_project(options, paths)
    text = read_lock(project.lock_path)
    lock = parse_lock(text, project.lock_path.name, project.folder)
    with create_caching_analyzer(options.jobs, static_dir(), project.folder) as examiner:
        files = examiner.files(project, project.models(list(map(str, paths)), base=options.start), lock)
    if not paths:
        print_untracked_models(project, options)
    failed: list[IncompleteCheck] = []
    stale = list(_find_differences(project, lock, text, files, failed))
    name = project.lock_path.name
    if not options.quiet:
        print_lines(stale)
    print_lines(f"`{it.model}` could not be compared: {it.reason}" for it in failed)
    print_lines(f"hint: {hint}" for hint in dict.fromkeys(it.hint for it in failed if it.hint))
    if stale:
        print_lines([f"`{name}` is not up to date: {pluralize(len(stale), 'difference')}; run `onnxgate lock`"])
        return EXIT_FAIL
    if failed:
        print_lines([f"`{name}` could not be compared with {pluralize(len(failed), 'model')}"])
        return EXIT_UNDECIDED
    print_lines([f"`{name}` is up to date: {_describe_size(len(files), _locked_runtimes(lock))}"])
    return 0


def _find_differences(
    project: Project, lock: Lock, text: str, files: Sequence[ModelFile], failed: list[IncompleteCheck]
) -> Iterator[str]:
    """Yield a message for each difference between the lock and the project, as in the findings of `onnxgate check`.

    Add models that cannot be compared because of an unexpected error or a fault of the machine to `failed`.
    """
    model_states, lock_state = lock_stage.collect_evidence(project, lock, text, files, failed)
    failed += (IncompleteCheck(Stage.LOCK, it.path, "", *it.undecided) for it in files if it.undecided and not it.facts)
    compared = {it.model for it in failed} | {state.facts.path for state in model_states}
    yield from (hit.message for hit in lock_stale.judge(lock_state))
    for subject in model_states:
        yield from (
            f"`{hit.model}` {hit.message}" for rule in (unlocked_model, model_changed) for hit in rule.judge(subject)
        )
    for file in files:
        if file.path not in compared:
            what = f"unreadable ({file.unreadable})" if file.unreadable else file.other_type
            what = what or "a Git LFS pointer whose hash differs from the hash in the lock"
            yield f"`{file.path}` could not be compared: it is {what}"
