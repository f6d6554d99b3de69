"""`onnxgate check`: the gate."""

from __future__ import annotations

import dataclasses
import datetime
import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.core.errors import UsageError
from onnxgate.core.findings import ALL_STAGES, STATIC_STAGES, Stage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxgate.core.report import Report
    from onnxgate.gate.request import GateOutcome, GateRequest
    from onnxgate.gate.sharding.plan import Share
    from onnxgate.inputs.case_selection import CaseSelection
    from onnxgate.project.config.project import Project, SelectedModel
    from onnxgate.project.git.baseline import BaselineChoice
    from onnxgate.project.lock.types import Lock
    from onnxgate.runtimes.worker_spec import JobMeter


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
    help="Judge one of N parts of the models.",
)
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With `--shard`: the plan that `onnxgate plan` wrote. Without it, the models are divided by estimates.",
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
    plan: Path | None,
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
    from onnxgate.cli.shared.outputs import FORMATS_WITH_DRAWINGS, parse_outputs, write_outputs
    from onnxgate.inputs.case_selection import CaseSelection

    sinks = parse_outputs(outputs)
    drawn = any(sink.format in FORMATS_WITH_DRAWINGS for sink in sinks)
    selected_stages = parse_stages(static, stages)
    inputs = CaseSelection(seed, tuple(dict.fromkeys(cases)))
    config = None if target is not None else _find_project_config(paths, options)
    ignoring = IgnoreOptions(show_ignores, write_ignores, until.date() if until is not None else None)
    ignoring.refuse(config, shard, options.no_ignores)
    if config is None and against not in (None, "", "none"):
        raise UsageError("`--against` means nothing without a config", hint="run `onnxgate init`")
    if plan is not None and shard is None:
        raise UsageError("`--plan` means nothing without `--shard`", hint="give `--shard I/N`")
    if config is None and shard is not None:
        raise UsageError("`--shard` means nothing without a config", hint="run `onnxgate init`")
    if config is None:
        from onnxgate.commands.files_without_config import check_files

        report = check_files(paths, target, options.start, options.jobs, options.fail_on, drawn=drawn)
    else:
        report = _run_gate(
            config, paths, selected_stages, inputs, against, shard, plan, ignoring, options, drawn=drawn, fresh=fresh
        )
    write_outputs(
        report,
        sinks,
        quiet=options.quiet,
        verbose=options.verbose,
        config=config,
        snippets=ignoring.snippets,
    )
    return report.exit


def _find_project_config(paths: tuple[Path, ...], options: CommonOptions) -> Path | None:
    """Return the config to check by; None if no folder above and none of PATHS has one.

    Raises:
        UsageError: a path belongs to a config that the command was not started in, as in a repository of several.
    """
    from onnxgate.project.config.loader import find_config

    config_path = options.config or find_config(options.start)
    for path in paths if config_path is None else ():
        own = find_config(Path(os.path.realpath(options.start / path)).parent)
        if own is not None:
            message = f"`{path}` belongs to the project of `{own}`, and the command was started outside of it"
            raise UsageError(message, hint=f"give `--config {own}`")
    return config_path


def _run_gate(
    config: Path,
    paths: tuple[Path, ...],
    selected_stages: frozenset[Stage],
    inputs: CaseSelection,
    against: str | None,
    shard: str | None,
    plan: Path | None,
    ignoring: IgnoreOptions,
    options: CommonOptions,
    *,
    drawn: bool,
    fresh: bool,
) -> Report:
    from onnxgate import rules
    from onnxgate.cli.shared.project_request import current_date, make_project_request
    from onnxgate.gate import pipeline
    from onnxgate.gate.request import Baseline, RunCaches, Selection, StaticSettings
    from onnxgate.gate.results.verdict import build_report
    from onnxgate.project.config.loader import load_config
    from onnxgate.project.lock.lock_file import load_lock
    from onnxgate.runtimes.environments.storage import inputs_dir, static_dir, support_dir

    today = current_date()
    before = ignoring.before(config, today)
    project = load_config(config, rule_ids=frozenset(rules.by_id))
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    share = _resolve_shard(shard, plan, project, lock, models, inputs)
    chosen = _choose_baseline(project, against, selected_stages, options)
    meter = _make_cost_meter(selected_stages, inputs)
    own_models = models if share is None else share.own(models)
    request = dataclasses.replace(
        make_project_request(project, lock, own_models, selected_stages, options, meter),
        selection=Selection(selected_stages, inputs),
        baseline=Baseline(chosen.revision, chosen.remark) if chosen is not None else Baseline(),
        share=share,
        caches=RunCaches(_results_folder(selected_stages), fresh=fresh, inputs=inputs_dir, support=support_dir),
        static=StaticSettings(options.jobs, None if fresh else static_dir),
    )
    outcome = ignoring.settle(request, pipeline.run(request), before)
    if share is None:
        report = build_report(request, outcome, options.fail_on, drawn=drawn)
    else:
        from onnxgate.gate.sharding.shard_report import build_shard_report

        report = build_shard_report(request, outcome, share, options.fail_on, drawn=drawn)
    _keep_costs(meter, report, project, outcome)
    return report


def _keep_costs(meter: JobMeter | None, report: Report, project: Project, outcome: GateOutcome) -> None:
    if meter is not None:
        from onnxgate.gate.sharding.plan import save_measured_costs

        save_measured_costs(report, project.folder, meter.seconds(), outcome.gathered.execution.reused)


def _resolve_shard(
    shard: str | None,
    plan: Path | None,
    project: Project,
    lock: Lock,
    models: Sequence[SelectedModel],
    inputs: CaseSelection,
) -> Share | None:
    if shard is None:
        return None
    from onnxgate.gate.sharding.plan import select_share

    return select_share(shard, plan, project, lock, models, inputs)


def _make_cost_meter(selected_stages: frozenset[Stage], inputs: CaseSelection) -> JobMeter | None:
    """Return the meter of job times; None if only a part of the check is run."""
    if not selected_stages.issuperset({"runtime", "parity", "export"}) or inputs.cases:
        return None
    from onnxgate.runtimes.worker_spec import JobMeter

    return JobMeter()


def _choose_baseline(
    project: Project, against: str | None, selected_stages: frozenset[Stage], options: CommonOptions
) -> BaselineChoice | None:
    """Return the baseline of the models; outside of CI only with `--against`."""
    in_ci = not {"GITHUB_ACTIONS", "GITLAB_CI"}.isdisjoint(os.environ) and selected_stages & {Stage.LOCK, Stage.RUNTIME}
    if against is None and not in_ci:
        return None
    from onnxgate.project.git.baseline import choose_baseline
    from onnxgate.project.git.repository import find_git_root

    return choose_baseline(find_git_root(project.folder), against, os.environ, offline=options.offline)


def _results_folder(selected_stages: frozenset[Stage]) -> Path | None:
    """Return the folder of cached results; None if no stage uses it, or if other users can write to it."""
    from onnxgate.core.findings import DYNAMIC_STAGES
    from onnxgate.runtimes.environments.storage import create_private_folder, results_dir, shared_cache_dir

    if selected_stages.isdisjoint(DYNAMIC_STAGES):
        return None
    return results_dir() if shared_cache_dir() else create_private_folder(results_dir())


@dataclass(slots=True)
class IgnoreOptions:
    """`--show-ignores`, `--write-ignores` and `--until`; `snippets` is filled when the models were judged."""

    show: bool = False
    write: bool = False
    until: datetime.date | None = None
    snippets: Mapping[str, Sequence[str]] = field(default_factory=dict)  # a finding's fingerprint -> lines of TOML

    def refuse(self, config: Path | None, shard: str | None, no_ignores: bool) -> None:
        """
        Reject options that exclude each other, before any work is done.

        Raises:
            UsageError: options contradict each other, or `--write-ignores` has no config to write into.
        """
        if self.until is not None and not self.write:
            raise UsageError("`--until` means nothing without `--write-ignores`")
        if not self.show and not self.write:
            return
        option = "--write-ignores" if self.write else "--show-ignores"
        if config is None:
            raise UsageError(f"`{option}` means nothing without a config", hint="run `onnxgate init`")
        if self.write and no_ignores:
            raise UsageError("`--write-ignores` writes what `--no-ignores` does not read", hint="give one of them")
        if self.write and shard is not None:
            raise UsageError("`--write-ignores` needs the verdict over all models", hint="leave `--shard` out")

    def before(self, config: Path, today: datetime.date) -> bytes:
        """
        Return the bytes of the config if it will be written, empty bytes otherwise.

        Raises:
            UsageError: it is read-only, or what is to be written would be over already.
        """
        if not self.write:
            return b""
        if self.until is not None and self.until < today:
            raise UsageError(f"`--until {self.until}` is over", hint="name a date to come")
        from onnxgate.project.config.ignore_entries import check_writable

        check_writable(config)
        return config.read_bytes()

    def settle(self, request: GateRequest, outcome: GateOutcome, before: bytes) -> GateOutcome:
        """
        Return the outcome after the entries are written; `before` is the config that the request was read from.

        Raises:
            UsageError: the config cannot be edited or written.
        """
        if self.write:
            outcome = _write_ignores(request, outcome, before, self.until)
        if self.show:
            from onnxgate.commands.ignores import render_ignore_snippets

            self.snippets = render_ignore_snippets(request, outcome)
        return outcome


def _write_ignores(
    request: GateRequest, outcome: GateOutcome, before: bytes, until: datetime.date | None
) -> GateOutcome:
    from onnxgate.commands.ignores import accept_findings
    from onnxgate.project.config.ignore_entries import write_config

    adopted = accept_findings(request, outcome, before, until)
    if adopted.data != before:
        write_config(request.project.path, adopted.data, before)
    gathered = adopted.outcome.gathered
    change = replace(gathered.change, remarks=(*gathered.change.remarks, *adopted.remarks))
    return replace(adopted.outcome, gathered=replace(gathered, change=change))


def parse_stages(static: bool, names: str | None) -> frozenset[Stage]:
    """Return the stages that `--static` or `--stage a,b` select; all without either.

    Raises:
        UsageError: both are given, or a name is not a stage.
    """
    if static and names is not None:
        raise UsageError("`--static` and `--stage` exclude each other")
    if static:
        return frozenset(STATIC_STAGES)
    if names is None:
        return frozenset(ALL_STAGES)
    return frozenset(_parse_stage(name.strip()) for name in names.split(","))


def _parse_stage(name: str) -> Stage:
    names = [stage.value for stage in ALL_STAGES]
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        meant = f"; did you mean `{near[0]}`" if near else ""
        raise UsageError(f"unknown stage `{name}`{meant}", hint=f"one of {', '.join(names)}")
    return Stage(name)
