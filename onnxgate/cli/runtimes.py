"""`onnxgate runtimes`: manages the environments of locked runtimes on this machine."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import click

from onnxgate.cli.shared.hint_commands import prefix_command_folder
from onnxgate.cli.shared.options import (
    ANSWER_FORMATS,
    EXIT_UNDECIDED,
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
)
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.cli.shared.project_request import find_project, load_project
from onnxgate.cli.shared.worker_pool import open_progress
from onnxgate.commands import cache_inventory
from onnxgate.commands.cache_inventory import PRUNABLE_FOLDERS, environment_folders, remove_unused, targets_of
from onnxgate.core.errors import UnavailableError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import cache_dir
from onnxgate.core.text import format_size, join_quoted, pluralize, suggest_spelling
from onnxgate.formats import runtime_inventory
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.project.lock.types import Lock, LockedRuntime
from onnxgate.runtimes.environments.builder import Environments
from onnxgate.runtimes.environments.storage import shared_cache_dir
from onnxgate.runtimes.pool import PREPARE_ACTIVITY, Progress

DEFAULT_AGE = "30d"


@click.group("runtimes")
def command() -> None:
    """List, prepare or remove the environments of locked runtimes.

    Environments are stored in `ONNXGATE_CACHE_DIR` or the user's cache folder, and shared by all projects.
    """


@command.command("list", short_help="List the environments and their sizes.")
@output_option(name_formats(ANSWER_FORMATS))
@common_options_without("offline", "jobs", "fail_on", "no_ignores", "verbosity")
def list_(outputs: tuple[str, ...], options: CommonOptions) -> int:
    """List the environments of locked runtimes, and the required Python interpreters.

    The table shows the state and the size of each environment. This command does not create environments or download
    files.
    """
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    project = load_project(options)
    lock = load_lock(project.lock_path)
    offline = Environments(cache_dir(), offline=True)
    inventory = cache_inventory.list_environments(lock, project.folder, cache_dir(), offline)
    write_answer(
        sinks,
        inventory,
        partial(runtime_inventory.format_text, inventory, quiet=options.quiet),
        partial(runtime_inventory.format_markdown, inventory),
    )
    return 0


@command.command("prepare", short_help="Create the environments.")
@click.argument("names", nargs=-1)
@common_options_without("fail_on", "no_ignores", "verbosity")
def prepare(names: tuple[str, ...], options: CommonOptions) -> int:
    """Create the environments of all locked runtimes, or only those of NAMES.

    NAMES are targets, or runtimes as named in the lock ('onnxruntime 1.18.1'). Environments that are ready are not
    changed.

    Exit status: 3 if an environment of a required target could not be created.
    """
    project = load_project(options)
    lock = load_lock(project.lock_path)
    chosen = _select_runtimes(targets_of(lock), names)
    environments = Environments(cache_dir(), offline=options.offline, shared=shared_cache_dir())
    with open_progress(quiet=options.quiet) as progress, ThreadPoolExecutor(options.jobs) as threads:
        try:
            results = threads.map(lambda runtime: _prepare_environment(runtime, lock, environments, progress), chosen)
            failed = {runtime: error for runtime, error in zip(chosen, results, strict=True) if error is not None}
        finally:
            environments.close()
    required = {name for name, target in project.config.targets.items() if target.required}
    required_runtimes = {runtime for runtime, targets in chosen.items() if required.intersection(targets)}
    _print_prepared(chosen, failed, required_runtimes, options)
    return EXIT_UNDECIDED if required_runtimes.intersection(failed) else 0


@command.command("prune", short_help="Remove unused environments and results.")
@click.option(
    "--all", "everything", is_flag=True, help="Also remove environments of locked runtimes and recently used data."
)
@click.option(
    "--older-than",
    "age",
    default=DEFAULT_AGE,
    show_default=True,
    metavar="AGE",
    help="Remove only data that has not been used for this long, such as `12h` or `30d`.",
)
@click.option(
    "--lock",
    "locks",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also keep the environments of the runtimes in this lock file. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be removed, but remove nothing.")
@common_options_without("offline", "jobs", "fail_on", "no_ignores", "verbosity")
def prune(everything: bool, age: str, locks: tuple[Path, ...], dry_run: bool, options: CommonOptions) -> int:
    """Remove cached environments, results and other data that have not been used recently.

    Environments that are in use or belong to the project's lock are kept.
    """
    if everything and (locks or age != DEFAULT_AGE):
        raise UsageError("`--all` cannot be combined with `--older-than` or `--lock`")
    age_s = None if everything else parse_age(age)
    before = float("inf") if age_s is None else time.time() - age_s
    named: set[Path] = set()
    if age_s is not None:
        project = find_project(options)
        own = [project.lock_path] if project is not None and project.lock_path.is_file() else []
        all_locks = [load_lock(path) for path in (*own, *locks)]
        named = environment_folders(all_locks, Environments(cache_dir(), offline=True))
    pruned = remove_unused(cache_dir(), named=named, before=before, really=not dry_run)
    action, freed = ("would remove", "would free") if dry_run else ("removed", "freed")
    for name, number in pruned.removed.items() if not options.quiet else ():
        files = f"{pluralize(number, 'file')} in {name}/" if name in PRUNABLE_FOLDERS else name
        click.echo(escape_log_line(f"{action} {files}"))
    for name in pruned.in_use if not options.quiet else ():
        click.echo(escape_log_line(f"kept {name} (in use)"))
    shared = pruned.size_bytes - pruned.freed_bytes
    aside = f" ({format_size(shared)} more remain in other caches, such as uv's cache)" if shared else ""
    in_use = f", {len(pruned.in_use)} in use" if pruned.in_use else ""
    click.echo(
        f"{freed} {format_size(pruned.freed_bytes)}{aside}; {pluralize(pruned.kept_count, 'environment')} kept{in_use}"
    )
    return 0


def parse_age(age: str) -> float:
    """Return an age such as `30d` in seconds.

    Raises:
        UsageError: the age is invalid.
    """
    match = re.fullmatch(r"(\d{1,6})([hdw])", age.strip(), re.ASCII)
    if match is None:
        raise UsageError(f"invalid `--older-than`: `{age}`", hint="use a form such as `12h`, `30d` or `8w`")
    return int(match[1]) * {"h": 3600, "d": 86400, "w": 604800}[match[2]]


def _select_runtimes(
    runtimes: Mapping[LockedRuntime, tuple[str, ...]], names: Sequence[str]
) -> dict[LockedRuntime, tuple[str, ...]]:
    known_names = {name for runtime, targets in runtimes.items() for name in (runtime.name, *targets)}
    for name in names:
        if name not in known_names:
            near = suggest_spelling(name, known_names)
            hint = f"available: {join_quoted(sorted(known_names))}"
            raise UsageError(f"the lock has no runtime or target `{name}`{near}", hint=hint)
    selected = frozenset(names or known_names)
    return {
        runtime: targets for runtime, targets in runtimes.items() if not selected.isdisjoint((runtime.name, *targets))
    }


def _prepare_environment(
    runtime: LockedRuntime, lock: Lock, environments: Environments, progress: Progress
) -> UnavailableError | None:
    """Create the environment of one runtime, unless it is managed by the user. Return the error if that fails."""
    if runtime.environment:
        return None
    progress.started(runtime.name, PREPARE_ACTIVITY)
    try:
        environments.prepare(runtime, lock.pinned)
    except UnavailableError as error:
        progress.finished(runtime.name, PREPARE_ACTIVITY, "unavailable")
        return error
    progress.finished(runtime.name, PREPARE_ACTIVITY, "ready")
    return None


def _print_prepared(
    chosen: Mapping[LockedRuntime, tuple[str, ...]],
    failed: Mapping[LockedRuntime, UnavailableError],
    required_runtimes: set[LockedRuntime],
    options: CommonOptions,
) -> None:
    for runtime, error in failed.items() if not options.quiet else ():
        word = "undecided" if runtime in required_runtimes else "skipped"
        click.echo(escape_log_line(f"{word} {runtime.name}: {error.message}"))
        if error.hint:
            click.echo(escape_log_line(f"  hint: {prefix_command_folder(error.hint)}"))
    own = sum(bool(runtime.environment) for runtime in chosen)
    own_note = f"; {pluralize(own, 'user-managed environment')} not changed" if own else ""
    locked = len(chosen) - own
    click.echo(f"{locked - len(failed)} of {pluralize(locked, 'environment')} ready{own_note}")
