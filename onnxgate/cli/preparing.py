"""Making the environments of a lock, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions

if TYPE_CHECKING:
    from onnxgate.errors import UnavailableError
    from onnxgate.lock.types import Lock, LockedRuntime
    from onnxgate.runtimes.environments import Environments
    from onnxgate.runtimes.progress import Progress

UNDECIDED = 3


def prepare(names: Sequence[str], options: CommonOptions) -> int:
    """Make those that are asked for; the exit status."""
    from onnxgate.cli.progress import display
    from onnxgate.cli.project import load_project
    from onnxgate.lock.loading import load_lock
    from onnxgate.runtimes.environments import Environments
    from onnxgate.runtimes.stock import targets_of
    from onnxgate.runtimes.store import cache_dir, kept_dir

    project = load_project(options)
    lock = load_lock(project.lock_path)
    chosen = _chosen(targets_of(lock), names)
    environments = Environments(cache_dir(), offline=options.offline, kept=kept_dir())
    with display(quiet=options.quiet) as progress, ThreadPoolExecutor(options.jobs) as threads:
        try:
            made = threads.map(lambda runtime: _make(runtime, lock, environments, progress), chosen)
            failed = {runtime: error for runtime, error in zip(chosen, made, strict=True) if error is not None}
        finally:
            environments.close()
    required = {name for name, target in project.config.targets.items() if target.required}
    asked = {runtime for runtime, targets in chosen.items() if required.intersection(targets)}
    _say(chosen, failed, asked, options)
    return UNDECIDED if asked.intersection(failed) else 0


def _chosen(
    runtimes: Mapping[LockedRuntime, tuple[str, ...]], names: Sequence[str]
) -> dict[LockedRuntime, tuple[str, ...]]:
    from onnxgate.errors import UsageError

    known = {*(each.name for each in runtimes), *(name for targets in runtimes.values() for name in targets)}
    for name in names:
        if name not in known:
            hint = f"one of {', '.join(sorted(known))}"
            raise UsageError(f"the lock has neither a runtime nor a target called `{name}`", hint=hint)
    wanted = frozenset(names or known)
    return {each: targets for each, targets in runtimes.items() if not wanted.isdisjoint((each.name, *targets))}


def _make(
    runtime: LockedRuntime, lock: Lock, environments: Environments, progress: Progress
) -> UnavailableError | None:
    """Why it cannot be had; None where it is ready. An environment of the user's own is theirs to make."""
    from onnxgate.cli.progress import PREPARE
    from onnxgate.errors import UnavailableError

    if runtime.environment:
        return None
    progress.started(runtime.name, PREPARE)
    try:
        environments.prepare(runtime, lock.pinned)
    except UnavailableError as error:
        progress.finished(runtime.name, PREPARE, "unavailable")
        return error
    progress.finished(runtime.name, PREPARE, "ready")
    return None


def _say(
    chosen: Mapping[LockedRuntime, tuple[str, ...]],
    failed: Mapping[LockedRuntime, UnavailableError],
    asked: set[LockedRuntime],
    options: CommonOptions,
) -> None:
    from onnxgate.formats.escape import log_line
    from onnxgate.formats.phrases import count

    for runtime, error in failed.items() if not options.quiet else ():
        word = "undecided" if runtime in asked else "skipped"
        click.echo(log_line(f"{word} {runtime.name}: {error.message}"))
        if error.hint:
            click.echo(log_line(f"  hint: {error.hint}"))
    own = sum(bool(runtime.environment) for runtime in chosen)
    beside = f"; {own} of your own {'is' if own == 1 else 'are'} left as they are" if own else ""
    locked = len(chosen) - own
    click.echo(f"{locked - len(failed)} of {count(locked, 'environment')} ready{beside}")
