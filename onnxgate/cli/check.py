"""`onnxgate check`: the gate."""

from __future__ import annotations

import datetime
import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from onnxgate.baseline.revisions import Revision
    from onnxgate.config.project import Project
    from onnxgate.findings import Stage
    from onnxgate.inputs.asked import Asked
    from onnxgate.report import Report
    from onnxgate.runtimes.host import Host


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="The stages that run nothing: file, lock, support.")
@click.option("--stage", "stages", metavar="A,B", help="Only these stages, separated by commas.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="FORMAT[=FILE]",
    help="text, json, github or summary; to a file, or to standard output (default: text). Repeatable.",
)
@click.option(
    "--target",
    metavar="REQUIREMENT",
    help="Without a config: judge against these releases ('onnxruntime>=1.18') instead of all.",
)
@click.option(
    "--against",
    metavar="REF",
    help="The git revision whose models are the baseline of `budget`s in time and memory; used for nothing else.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Draw generated inputs otherwise.")
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help="Only this input case, by the name that findings print. Repeatable.",
)
@common_options
def command(
    paths: tuple[Path, ...],
    static: bool,
    stages: str | None,
    outputs: tuple[str, ...],
    target: str | None,
    against: str | None,
    seed: int,
    cases: tuple[str, ...],
    options: CommonOptions,
) -> int:
    """Judge the models of the project, or those that PATHS select.

    PATHS are models, their data files, folders or sources. The exit status is 0 where the gate is open, 1 where it is
    closed, 2 where the usage, the config or the lock is wrong, and 3 where something asked for could not be decided.
    """
    from onnxgate.cli.outputs import parse_outputs, write_outputs
    from onnxgate.cli.selection import chosen_stages
    from onnxgate.inputs.asked import Asked

    sinks = parse_outputs(outputs)
    asked = chosen_stages(static, stages)
    inputs = Asked(seed, tuple(dict.fromkeys(cases)))
    config = None if target is not None else _config(paths, options)
    if config is None and against is not None:
        from onnxgate.errors import UsageError

        raise UsageError("`--against` means nothing without a config", hint="budgets stand in `onnxgate.toml`")
    if config is None:
        from onnxgate.cli.unconfigured import judge_files

        report = judge_files(paths, target, options)
    else:
        report = _gate(config, paths, asked, inputs, against, options)
    write_outputs(report, sinks, quiet=options.quiet, verbose=options.verbose, config=config)
    return report.exit


def _config(paths: tuple[Path, ...], options: CommonOptions) -> Path | None:
    """The config to judge by; none where there is none above, and none of PATHS belongs to one.

    Raises:
        UsageError: a path belongs to a config that the command was not started in, as in a repository of several.
    """
    from onnxgate.config.discovery import find_config
    from onnxgate.errors import UsageError

    found = options.config or find_config(options.start)
    for path in paths if found is None else ():
        own = find_config((options.start / path).resolve().parent)
        if own is not None:
            message = f"`{path}` belongs to the project of `{own}`, and the command was started outside of it"
            raise UsageError(message, hint=f"give `--config {own}`")
    return found


def _gate(
    config: Path,
    paths: tuple[Path, ...],
    asked: frozenset[Stage],
    inputs: Asked,
    against: str | None,
    options: CommonOptions,
) -> Report:
    from onnxgate import gate, rules, verdict
    from onnxgate.config.loading import load_config
    from onnxgate.lock.loading import load_lock
    from onnxgate.runtimes.store import inputs_dir

    project = load_config(config, rule_ids=frozenset(rules.by_id))
    lock = load_lock(project.lock_path)
    request = gate.Request(
        project=project,
        lock=lock,
        lock_text=project.lock_path.read_text(encoding="utf-8"),
        lock_name=project.lock_path.name,
        models=project.models([str(path) for path in paths], base=options.start),
        stages=asked,
        today=datetime.datetime.now(tz=datetime.timezone.utc).date(),
        open_host=functools.partial(_open_host, project, options),
        honour_ignores=not options.no_ignores,
        support_folder=_support_folder,
        asked=inputs,
        inputs_folder=inputs_dir,
        against=_revision(project, against, options),
    )
    return verdict.sum_up(request, gate.run(request), options.fail_on)


def _revision(project: Project, against: str | None, options: CommonOptions) -> Revision | None:
    if against is None:
        return None
    from onnxgate.baseline.revisions import resolve
    from onnxgate.config.discovery import find_root

    return resolve(find_root(project.folder), against, offline=options.offline)


def _support_folder() -> Path:
    from onnxgate.runtimes.store import support_dir

    return support_dir()


def _open_host(project: Project, options: CommonOptions) -> AbstractContextManager[Host]:
    from onnxgate.cli.hosting import shown_host

    return shown_host(project, options)
