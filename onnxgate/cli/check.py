"""`onnxgate check`: the gate."""

from __future__ import annotations

import datetime
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from onnxgate.baseline.choosing import Chosen
    from onnxgate.cli.ignoring import Ignoring
    from onnxgate.config.project import Project, SelectedModel
    from onnxgate.findings import Stage
    from onnxgate.inputs.asked import Asked
    from onnxgate.lock.types import Lock
    from onnxgate.report import Report
    from onnxgate.request import Outcome
    from onnxgate.runtimes.host import Host
    from onnxgate.runtimes.metering import Meter
    from onnxgate.shards import Share


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="The stages that run nothing: file, lock, support.")
@click.option("--stage", "stages", metavar="A,B", help="Only these stages, separated by commas.")
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="FORMAT[=FILE]",
    help="text, json, html, markdown, github, summary, comment, sarif, junit or gitlab; to a file, or to standard "
    "output (default: text). Repeatable.",
)
@click.option(
    "--target",
    metavar="REQUIREMENT",
    help="Without a config: judge against these releases ('onnxruntime>=1.18') instead of all.",
)
@click.option(
    "--against",
    metavar="REF",
    help="The git revision that models are held against: what changed, and `budget`s in time and memory; `none` for "
    "no such baseline. In CI the default is the base of the pull request, or what was there before the push.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Draw generated inputs otherwise.")
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help="Only this input case, by the name that findings print. Repeatable.",
)
@click.option(
    "--shard",
    metavar="I/N",
    help="Judge one of N parts of the models; or the part that `onnxgate plan` wrote.",
)
@click.option(
    "--no-cache",
    "fresh",
    is_flag=True,
    help="Judge and run everything anew, whatever an earlier check found of the same bytes. Environments stay.",
)
@click.option(
    "--show-ignores", is_flag=True, help="Print with each finding what to paste into the config to accept it."
)
@click.option(
    "--write-ignores",
    is_flag=True,
    help="Accept what is there now, but for notes: write it into the config, and take out what is gone.",
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With `--write-ignores`: the last day on which new entries hold.",
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
    shard: str | None,
    fresh: bool,
    show_ignores: bool,
    write_ignores: bool,
    until: datetime.datetime | None,
    options: CommonOptions,
) -> int:
    """Judge the models of the project, or those that PATHS select.

    PATHS are models, their data files, folders or sources. The exit status is 0 where the gate is open, 1 where it is
    closed, 2 where the usage, the config or the lock is wrong, and 3 where something asked for could not be decided.
    """
    from onnxgate.cli.ignoring import Ignoring
    from onnxgate.cli.outputs import DRAWN, parse_outputs, write_outputs
    from onnxgate.cli.selection import chosen_stages
    from onnxgate.inputs.asked import Asked

    sinks = parse_outputs(outputs)
    drawn = any(sink.format in DRAWN for sink in sinks)
    asked = chosen_stages(static, stages)
    inputs = Asked(seed, tuple(dict.fromkeys(cases)))
    config = None if target is not None else _config(paths, options)
    ignoring = Ignoring(show_ignores, write_ignores, until.date() if until is not None else None)
    ignoring.refuse(config, shard, options.no_ignores)
    if config is None and against not in (None, "", "none"):
        from onnxgate.errors import UsageError

        raise UsageError("`--against` means nothing without a config", hint="run `onnxgate init`")
    if config is None and shard is not None:
        from onnxgate.errors import UsageError

        raise UsageError("`--shard` means nothing without a config", hint="run `onnxgate init`")
    if config is None:
        from onnxgate.cli.unconfigured import judge_files

        report = judge_files(paths, target, options, drawn=drawn)
    else:
        report = _gate(config, paths, asked, inputs, against, shard, ignoring, options, drawn=drawn, fresh=fresh)
    write_outputs(
        report,
        sinks,
        quiet=options.quiet,
        verbose=options.verbose,
        config=config,
        snippets=ignoring.snippets,
    )
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
        own = find_config(Path(os.path.realpath(options.start / path)).parent)
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
    shard: str | None,
    ignoring: Ignoring,
    options: CommonOptions,
    *,
    drawn: bool,
    fresh: bool,
) -> Report:
    from onnxgate import gate, rules, verdict
    from onnxgate.config.loading import load_config
    from onnxgate.lock.loading import load_lock
    from onnxgate.request import Request
    from onnxgate.runtimes.store import inputs_dir, static_dir

    today = datetime.datetime.now(tz=datetime.timezone.utc).date()
    before = ignoring.before(config, today)
    project = load_config(config, rule_ids=frozenset(rules.by_id))
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    share = _share(shard, project, lock, models, inputs)
    chosen = _baseline(project, against, asked, options)
    meter = _meter(asked, inputs)
    request = Request(
        project=project,
        lock=lock,
        lock_text=project.lock_path.read_text(encoding="utf-8"),
        lock_name=project.lock_path.name,
        models=models if share is None else share.own(models),
        stages=asked,
        today=today,
        open_host=functools.partial(_open_host, project, options, meter),
        honour_ignores=not options.no_ignores,
        support_folder=_support_folder,
        asked=inputs,
        inputs_folder=inputs_dir,
        against=chosen.revision if chosen is not None else None,
        unheld=chosen.remark if chosen is not None else "",
        share=share,
        results_folder=_results_folder(asked),
        fresh=fresh,
        jobs=options.jobs,
        static_folder=None if fresh else static_dir,
    )
    outcome = ignoring.settle(request, gate.run(request), before)
    report = verdict.sum_up(request, outcome, options.fail_on, drawn=drawn)
    _keep_costs(meter, report, project, outcome)
    return report if share is None else _sealed(report)


def _keep_costs(meter: Meter | None, report: Report, project: Project, outcome: Outcome) -> None:
    if meter is not None:
        from onnxgate.cli.sharding import keep_costs

        keep_costs(report, project.folder, meter.seconds(), outcome.gathered.execution.reused)


def _share(
    shard: str | None, project: Project, lock: Lock, models: Sequence[SelectedModel], inputs: Asked
) -> Share | None:
    if shard is None:
        return None
    from onnxgate.cli.sharding import share_of

    return share_of(shard, project, lock, models, inputs)


def _sealed(report: Report) -> Report:
    from onnxgate.formats import json

    return json.sealed(report)


def _meter(asked: frozenset[Stage], inputs: Asked) -> Meter | None:
    """What measures the cost of models, where they are judged in full."""
    if not asked.issuperset({"runtime", "parity", "export"}) or inputs.cases:
        return None
    from onnxgate.runtimes.metering import Meter

    return Meter()


def _baseline(project: Project, against: str | None, asked: frozenset[Stage], options: CommonOptions) -> Chosen | None:
    """What models are held against; outside of CI only where it is asked for."""
    from onnxgate.findings import Stage

    in_ci = not {"GITHUB_ACTIONS", "GITLAB_CI"}.isdisjoint(os.environ) and asked & {Stage.LOCK, Stage.RUNTIME}
    if against is None and not in_ci:
        return None
    from onnxgate.baseline.choosing import choose
    from onnxgate.config.discovery import find_root

    return choose(find_root(project.folder), against, os.environ, offline=options.offline)


def _results_folder(asked: frozenset[Stage]) -> Path | None:
    """Where results of earlier checks are; None where nothing is run, or where others can write to them."""
    from onnxgate.findings import DYNAMIC_STAGES
    from onnxgate.runtimes.store import kept_dir, private_folder, results_dir

    if asked.isdisjoint(DYNAMIC_STAGES):
        return None
    return results_dir() if kept_dir() else private_folder(results_dir())


def _support_folder() -> Path:
    from onnxgate.runtimes.store import support_dir

    return support_dir()


def _open_host(project: Project, options: CommonOptions, meter: Meter | None) -> AbstractContextManager[Host]:
    from onnxgate.cli.hosting import shown_host

    return shown_host(project, options, meter)
