"""`onnxgate lock`: resolves the targets and writes `onnxgate.lock`."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options

if TYPE_CHECKING:
    from onnxgate.config.project import Project
    from onnxgate.evidence.file import ModelFile
    from onnxgate.lock.entries import Measured
    from onnxgate.lock.locking import Relocked
    from onnxgate.lock.types import Lock, LockedToolchain


@click.command("lock")
@click.argument("paths", nargs=-1)
@click.option(
    "--check", is_flag=True, help="Write nothing, ask no index: is the lock one of this config and these models?"
)
@click.option(
    "--upgrade",
    "upgrades",
    is_flag=False,
    flag_value="",
    multiple=True,
    metavar="[REQUIREMENT]",
    help="Give up pins: all, or those of `onnxruntime`, `onnxruntime=1.31.1`, `numpy`. Repeatable.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Record how far outputs may differ from their source, and what quantized models keep of the float one.",
)
@click.option(
    "--preview",
    is_flag=True,
    help="With --upgrade: write nothing; run the models as they would be, and say what breaks, repairs or changes.",
)
@common_options
def command(
    paths: tuple[str, ...],
    check: bool,
    upgrades: tuple[str, ...],
    measure: bool,
    preview: bool,
    options: CommonOptions,
) -> int:
    """Resolve the targets to exact releases and write onnxgate.lock.

    Pins that fit the config stay, whatever has been released since; a package index is asked for what is missing alone.
    With PATHS, only the entries of these models are rewritten. With --check, the exit status is 1 where the lock is
    stale; with --preview, where the upgrade would break something or change outputs by more than is allowed.
    """
    project = _project(options)
    _refuse_mixture(paths, check, upgrades, measure, preview)
    if check:
        return _check(project, paths, options)
    old = _old(project)
    if preview:
        return _preview(project, old, upgrades, options)
    measured = _measured(project, paths, options) if measure else {}
    if paths:
        relocked = _models(project, old, paths, measured, options)
    else:
        relocked = _everything(project, old, upgrades, measured, options)
    if measure:
        relocked = _with_figures(project, relocked, paths, options)
    _write(project, old, relocked, options)
    return 0


def _project(options: CommonOptions) -> Project:
    from onnxgate import rules
    from onnxgate.config.discovery import find_config
    from onnxgate.config.loading import load_config
    from onnxgate.errors import ConfigError

    path = options.config or find_config(options.start)
    if path is None:
        raise ConfigError("there is no `onnxgate.toml` here or above", hint="run `onnxgate init`")
    return load_config(path, rule_ids=frozenset(rules.by_id))


def _old(project: Project) -> Lock | None:
    from onnxgate.lock.loading import load_lock

    return load_lock(project.lock_path) if project.lock_path.exists() else None


def _refuse_mixture(paths: Sequence[str], check: bool, upgrades: Sequence[str], measure: bool, preview: bool) -> None:
    from onnxgate.errors import UsageError

    if upgrades and paths:
        raise UsageError("`--upgrade` is about pins and PATHS are about models; give one of them")
    if check and (upgrades or measure or preview):
        raise UsageError("`--check` writes nothing; it excludes `--upgrade`, `--preview` and `--measure`")
    if preview and (not upgrades or measure):
        raise UsageError("`--preview` is about an upgrade alone", hint="run `onnxgate lock --upgrade --preview`")


def _measured(project: Project, paths: Sequence[str], options: CommonOptions) -> Measured:
    """What the sources of the selected models give; what could not be measured is said."""
    from onnxgate.cli.hosting import shown_host
    from onnxgate.measuring import measure_sources

    with shown_host(project, options) as host:
        measurement = measure_sources(project, project.models(paths, base=options.start), host)
    if not options.quiet:
        _say(f"note: {note}" for note in measurement.notes)
    return measurement.tolerances


def _with_figures(project: Project, relocked: Relocked, paths: Sequence[str], options: CommonOptions) -> Relocked:
    """The new lock with what quantized models keep of their float models, measured on its own runtimes."""
    import dataclasses

    import msgspec

    from onnxgate.cli.hosting import shown_host
    from onnxgate.measuring import measure_quantized

    models = project.models(paths, base=options.start)
    if all(model.settings.quantized_from is None for model in models):
        return relocked
    lock = relocked.lock
    with shown_host(project, options) as host:
        record = measure_quantized(project, lock, models, host)
    entries = {
        path: msgspec.structs.replace(entry, quantization=record.figures.get(path, entry.quantization))
        for path, entry in lock.models.items()
    }
    lock = msgspec.structs.replace(lock, models=entries)
    return dataclasses.replace(relocked, lock=lock, notes=(*relocked.notes, *record.notes))


def _everything(
    project: Project, old: Lock | None, upgrades: Sequence[str], measured: Measured, options: CommonOptions
) -> Relocked:
    from onnxgate.lock.entries import lock_models
    from onnxgate.lock.index import Index
    from onnxgate.lock.locking import relock
    from onnxgate.lock.npm import Npm
    from onnxgate.lock.upgrades import parse_upgrade
    from onnxgate.runtimes.builds import find_build

    upgrade = parse_upgrade(upgrades)
    entries = lock_models(project.models(), old.models if old else {}, measured)
    return relock(
        project,
        old,
        entries,
        index=Index(offline=options.offline),
        probe_toolchain=functools.partial(_toolchain, project),
        find_build=functools.partial(find_build, project.folder),
        upgrade=upgrade,
        npm=Npm(offline=options.offline),
    )


def _preview(project: Project, old: Lock | None, upgrades: Sequence[str], options: CommonOptions) -> int:
    from onnxgate.cli.previewing import show
    from onnxgate.errors import LockError

    if old is None:
        raise LockError("there is no lock that could be upgraded", hint="run `onnxgate lock`")
    relocked = _everything(project, old, upgrades, {}, options)
    if not options.quiet:
        _say(f"note: {note}" for note in relocked.notes)
    return show(project, old, relocked.lock, upgrades, options)


def _models(
    project: Project, old: Lock | None, paths: Sequence[str], measured: Measured, options: CommonOptions
) -> Relocked:
    from onnxgate.lock.entries import lock_models
    from onnxgate.lock.locking import relock_models

    locked = old.models if old else {}
    gone = _gone(project, locked, paths, options)
    present = [path for path in paths if path not in gone]
    models = project.models(present, base=options.start) if present else ()
    return relock_models(old, lock_models(models, locked, measured), gone.values())


def _gone(project: Project, locked: Iterable[str], paths: Sequence[str], options: CommonOptions) -> dict[str, str]:
    """Paths of models that are locked and no longer there, by what the user called them."""
    known = set(locked)
    files = {path: Path(os.path.normpath(options.start.absolute() / path)) for path in paths}
    inside = {
        path: file.relative_to(project.folder).as_posix()
        for path, file in files.items()
        if file.is_relative_to(project.folder) and not os.path.lexists(file)
    }
    return {path: relative for path, relative in inside.items() if relative in known}


def _toolchain(project: Project) -> LockedToolchain:
    from onnxgate.errors import UnavailableError
    from onnxgate.runtimes.frameworks import deciding, needs
    from onnxgate.runtimes.toolchain import ProbeError, find_toolchain, locked_toolchain

    settings = project.config.toolchain
    python = find_toolchain(project.folder, settings, needs(project.config, project.folder))
    try:
        return locked_toolchain(python, settings, deciding(project.config, project.folder))
    except ProbeError as error:
        raise UnavailableError(f"the toolchain {error}") from error


def _write(project: Project, old: Lock | None, relocked: Relocked, options: CommonOptions) -> None:
    from onnxgate.lock.changes import kept_pins, lock_changes
    from onnxgate.lock.types import Lock
    from onnxgate.lock.writing import write_lock

    before, name = old or Lock(), project.lock_path.name
    if not options.quiet:
        _say(lock_changes(before, relocked.lock))
        _say(f"note: {note}" for note in relocked.notes)
    written = write_lock(relocked.lock, project.lock_path)
    kept = kept_pins(before, relocked.lock)
    state = f"wrote `{name}`" if written else f"`{name}` is up to date"
    _say([f"{state}: {_count(len(relocked.lock.models), 'model')}, {_count(kept, 'pin')} kept"])


def _check(project: Project, paths: Sequence[str], options: CommonOptions) -> int:
    from onnxgate.examining import keeping_examiner
    from onnxgate.lock.loading import parse_lock, read_lock
    from onnxgate.runtimes.store import static_dir

    text = read_lock(project.lock_path)
    lock = parse_lock(text, project.lock_path.name)
    with keeping_examiner(options.jobs, static_dir(), project.folder) as examiner:
        files = examiner.files(project, project.models(paths, base=options.start), lock)
    stale = list(_stale(project, lock, text, files))
    name = project.lock_path.name
    if not options.quiet:
        _say(stale)
    if stale:
        _say([f"`{name}` is stale: {_count(len(stale), 'difference')}"])
        return 1
    _say([f"`{name}` is the lock of this config and of {_count(len(files), 'model')}"])
    return 0


def _stale(project: Project, lock: Lock, text: str, files: Sequence[ModelFile]) -> Iterator[str]:
    """What differs, in the words of the rules that judge it in `check`."""
    from onnxgate.rules.lock.lock_stale import lock_stale
    from onnxgate.rules.lock.model_changed import model_changed
    from onnxgate.rules.lock.unlocked_model import unlocked_model
    from onnxgate.stages import lock as lock_stage

    against, whole = lock_stage.gather(project, lock, text, files)
    compared = {each.facts.path for each in against}
    yield from (hit.message for hit in lock_stale.judge(whole))
    for subject in against:
        yield from (
            f"`{hit.model}` {hit.message}" for rule in (unlocked_model, model_changed) for hit in rule.judge(subject)
        )
    for file in files:
        if file.path not in compared:
            what = f"unreadable ({file.unreadable})" if file.unreadable else file.really
            yield f"`{file.path}` cannot be compared: it is {what or 'a Git LFS pointer to other content'}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _say(lines: Iterable[str]) -> None:
    from onnxgate.formats.escape import log_line

    for line in lines:
        click.echo(log_line(line))
