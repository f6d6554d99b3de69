"""`onnxgate export`: models made again from their sources, into place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options
from onnxgate.scratch import scratch_folder

if TYPE_CHECKING:
    from onnxgate.config.project import Project, SelectedModel
    from onnxgate.findings import Hit
    from onnxgate.lock.types import Lock
    from onnxgate.runtimes.host import Host
    from onnxgate.stages.export_again import Made

CLOSED = 1
NO_VERDICT = 3


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
    project = _project(options)
    models = project.models(paths, base=options.start, absent=True)
    exported = [model for model in models if model.settings.is_exported]
    counts: Counter[str] = Counter()
    for model, made in _export(project, exported, options):
        became, lines = _settle(model, made, check)
        counts[became] += 1
        _say([] if options.quiet else [*lines, *_remarks(made)])
    counts["without a source"] = len(models) - len(exported)
    _say([_summed_up(counts)])
    return _status(counts)


def _project(options: CommonOptions) -> Project:
    from onnxgate import rules
    from onnxgate.config.discovery import find_config
    from onnxgate.config.loading import load_config
    from onnxgate.errors import ConfigError

    path = options.config or find_config(options.start)
    if path is None:
        raise ConfigError("there is no `onnxgate.toml` here or above", hint="run `onnxgate init`")
    return load_config(path, rule_ids=frozenset(rules.by_id))


def _export(
    project: Project, models: Sequence[SelectedModel], options: CommonOptions
) -> Iterator[tuple[SelectedModel, Made]]:
    """Each model with what came of its export; nothing is written before all of them ended."""
    if not models:
        return
    from onnxgate.cli.hosting import open_host
    from onnxgate.cli.progress import display
    from onnxgate.runtimes.frameworks import needs
    from onnxgate.runtimes.toolchain import find_toolchain

    lock = _lock(project)
    python = find_toolchain(project.folder, project.config.toolchain, needs(project.config, project.folder))
    if not options.quiet:
        _say(_drift(project, lock, python))
    with scratch_folder() as scratch:
        with display(quiet=options.quiet) as progress, open_host(project, options, progress) as host:
            made = list(_ask(project, lock, models, python, Path(scratch), host))
        yield from made


def _ask(
    project: Project, lock: Lock | None, models: Sequence[SelectedModel], python: Path, scratch: Path, host: Host
) -> Iterator[tuple[SelectedModel, Made]]:
    from onnxgate.model.placing import data_locations
    from onnxgate.stages import export as stage
    from onnxgate.stages import export_plan

    seat = export_plan.toolchain_seat(python)
    waiting = []
    for index, model in enumerate(models):
        planned = export_plan.plan(
            project,
            model,
            python,
            scratch / str(index),
            ir_version_max=_ir_limit(project, lock, model),
            external_data=bool(data_locations(model.absolute)),
            float64=False,
        )
        waiting.append((model, planned, host.submit(seat, planned.job)))
    for model, planned, future in waiting:
        yield model, stage.gather(project, planned, future.result())


def _lock(project: Project) -> Lock | None:
    from onnxgate.lock.loading import load_lock

    return load_lock(project.lock_path) if project.lock_path.exists() else None


def _ir_limit(project: Project, lock: Lock | None, model: SelectedModel) -> int | None:
    from onnxgate.plan import plan_models
    from onnxgate.stages.export_plan import ir_limit

    if lock is None:
        return None
    return ir_limit(each.runtime for planned in plan_models(project, lock, [model]) for each in planned.runtimes)


def _drift(project: Project, lock: Lock | None, python: Path) -> Iterator[str]:
    """What the rule about the toolchain says."""
    from onnxgate.rules.export.toolchain_drift import toolchain_drift
    from onnxgate.runtimes.toolchain import probe
    from onnxgate.stages.export import toolchain_state

    if lock is None or lock.toolchain is None:
        return
    found = probe(python, lock.toolchain.packages)
    if state := toolchain_state(project, lock.toolchain, found):
        yield from (f"warning: {hit.message}" for hit in toolchain_drift.judge(state))


def _settle(model: SelectedModel, made: Made, check: bool) -> tuple[str, list[str]]:
    """What became of one model, which is written where it is to be written; and what there is to say of it."""
    if wrong := list(_wrong(made)):
        return "failed", [line for hit in wrong for line in _in_words(model, hit)]
    if made.undone:
        return "not compared", [
            f"{model.path}: cannot be compared: {made.undone.reason}",
            *_hint(made.undone.hint),
        ]
    differences = _differences(made, check)
    if not differences:
        return "unchanged", [f"{model.path}: is what its source exports"]
    changes = [f"  {each}" for each in differences]
    if check:
        return "changed", [f"{model.path}: is not what its source exports", *changes]
    if not model.absolute.exists():
        return "written", [f"{model.path}: created", *_write(model, made)]
    return "written", [f"{model.path}: written", *changes, *_write(model, made)]


def _differences(made: Made, check: bool) -> tuple[str, ...]:
    """What the fresh file has otherwise; its IR version is a reason to write it, and none to call the old one stale."""
    if made.subject is None:
        return ()
    restamped = made.subject.restamped
    return (*((restamped,) if restamped and not check else ()), *made.subject.differences)


def _wrong(made: Made) -> Iterator[Hit]:
    """What makes an export one that nobody should commit."""
    yield from (hit for level, hit in _judged(made) if level == "error")


def _judged(made: Made) -> Iterator[tuple[str, Hit]]:
    """What the rules about the export itself say, with their levels."""
    from onnxgate.rules import ALL
    from onnxgate.rules.export.export_stale import export_stale

    for rule in ALL:
        if made.subject is not None and rule.subject is type(made.subject) and rule is not export_stale:
            yield from ((str((hit.level or rule.level).value), hit) for hit in rule.judge(made.subject))


def _remarks(made: Made) -> Iterator[str]:
    for level, hit in _judged(made):
        if level != "error":
            yield from (f"  {level}: {hit.message}", *_hint(hit.fix))


def _in_words(model: SelectedModel, hit: Hit) -> Iterator[str]:
    line = f":{hit.place.line}" if hit.place.line else ""
    yield f"{model.path}: {hit.message}"
    yield f"  at {hit.place.path}{line}"
    yield from _hint(hit.fix)


def _hint(text: str) -> list[str]:
    return [f"  hint: {text}"] if text else []


def _write(model: SelectedModel, made: Made) -> list[str]:
    from onnxgate.model.placing import data_locations, put_in_place, unused_data

    assert made.fresh is not None  # what differs was written
    before = data_locations(model.absolute)
    put_in_place(made.fresh, model.absolute)
    return [f"  `{name}` is not used by it any more" for name in unused_data(before, model.absolute)]


def _summed_up(counts: Counter[str]) -> str:
    said = ", ".join(f"{number} {what}" for what, number in counts.items() if number) or "no model"
    return f"{said}; run `onnxgate lock` next" if counts["written"] else said


def _status(counts: Counter[str]) -> int:
    if counts["failed"] or counts["changed"]:
        return CLOSED
    return NO_VERDICT if counts["not compared"] else 0


def _say(lines: Iterable[str]) -> None:
    from onnxgate.formats.escape import log_line

    for line in lines:
        click.echo(log_line(line))
