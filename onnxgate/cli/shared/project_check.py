"""Implementation of `onnxgate check`, for a project or for models without a config."""

from __future__ import annotations

import datetime
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.cli.shared.options import CommonOptions
from onnxgate.cli.shared.outputs import Sink, write_outputs
from onnxgate.cli.shared.project_request import (
    current_date,
    group_by_project,
    load_project_config,
    make_project_request,
    print_untracked_models,
    require_selection,
    run_for_each_project,
    several_projects_error,
)
from onnxgate.core.errors import UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.findings import DYNAMIC_STAGES, STATIC_STAGES, Stage
from onnxgate.core.matrix import build_matrix
from onnxgate.core.report import Report, ReportedCheckout
from onnxgate.core.report_json import seal_report
from onnxgate.core.text import join_phrases, pluralize
from onnxgate.formats import RENDERERS
from onnxgate.gate import pipeline
from onnxgate.gate.request import Baseline, GateOutcome, GateRequest, RunCaches, Selection, StaticSettings
from onnxgate.gate.results.target_advice import suggest_target_changes
from onnxgate.gate.results.verdict import build_report
from onnxgate.inputs.case_selection import CaseSelection
from onnxgate.project.config.ignore_entries import check_writable, write_config
from onnxgate.project.config.loader import find_config
from onnxgate.project.config.project import MAX_NAMED_PATHS
from onnxgate.project.git.repository import find_git_root
from onnxgate.project.lock.lock_file import load_lock
from onnxgate.runtimes.environments.storage import (
    create_private_folder,
    inputs_dir,
    results_dir,
    shared_cache_dir,
    static_dir,
    support_dir,
)
from onnxgate.runtimes.worker_spec import JobMeter

Snippets = Mapping[str, Sequence[str]]
"""For each finding, by fingerprint, the config lines that would accept it."""


class IgnoreOptions(msgspec.Struct, frozen=True):
    """Values of `--show-ignores`, `--write-ignores` and `--until`."""

    show: bool
    write: bool
    until: datetime.date | None

    def refuse(self, config: Path | None, shard: str | None, no_ignores: bool) -> None:
        """
        Reject invalid combinations of options before the check.

        Raises:
            UsageError: the options cannot be combined, or there is no config.
        """
        if self.until is not None and not self.write:
            raise UsageError("`--until` requires `--write-ignores`")
        if not self.show and not self.write:
            return
        option = "--write-ignores" if self.write else "--show-ignores"
        if config is None:
            raise UsageError(f"`{option}` requires a config", hint="run `onnxgate init` to create a config")
        if self.write and no_ignores:
            raise UsageError("`--write-ignores` and `--no-ignores` cannot be combined")
        if self.write and shard is not None:
            raise UsageError("`--write-ignores` and `--shard` cannot be combined", hint="check all models in one job")


class CheckRequest(msgspec.Struct, frozen=True):
    """Parsed options and arguments of `onnxgate check`."""

    paths: tuple[Path, ...]
    target: str | None
    stages: frozenset[Stage]
    has_stages: bool  # whether `--stage` was given
    inputs: CaseSelection
    against: str | None
    shard: str | None
    plan: Path | None
    fresh: bool
    ignoring: IgnoreOptions


def run_check(request: CheckRequest, sinks: Sequence[Sink], options: CommonOptions) -> int:
    """Check the models of each project, write the reports, and return the exit status."""
    if request.target is not None and options.config is not None:
        raise UsageError("`--target` and `--config` cannot be combined", hint="`--target` ignores the config")
    if request.against == "":  # an unset variable in CI must not turn off the comparison
        raise UsageError("`--against` is empty", hint="to check without a baseline, use `--against none`")
    groups: Mapping[Path | None, Sequence[str | Path]] = {None: request.paths}
    if request.target is None:
        groups = group_by_project(request.paths, options, all_below=True)
        _refuse_removed_configs(request, options)
    single = [sink for sink in sinks if sink.file is not None or sink.format not in STREAMED_FORMATS]
    if len(groups) > 1 and single:
        option = f"--output {single[0].format}{f'={single[0].file}' if single[0].file else ''}"
        raise several_projects_error(groups, f", but `{option}` contains one report")

    def run(config: Path | None, paths: Sequence[str | Path]) -> int:
        selected = msgspec.structs.replace(request, paths=tuple(map(Path, paths)))
        return _run_check(config, selected, sinks, options)

    return run_for_each_project(groups, run)


def _refuse_removed_configs(request: CheckRequest, options: CommonOptions) -> None:
    """
    Reject a check that would skip models because the config that selected them at the baseline was removed.

    Raises:
        UsageError: there are such models.
    """
    if options.config is not None or find_git_root(options.start.absolute()) is None:
        return
    baseline = _choose_baseline(options.start, request, options)
    if baseline.revision is None:
        return
    from onnxgate.gate.policy.comparison import find_removed_configs

    removed = find_removed_configs(options.start, baseline.revision)
    if removed:
        config, models = next(iter(removed.items()))
        named = join_phrases([f"`{model}`" for model in models], MAX_NAMED_PATHS)
        verb = "is" if len(models) == 1 else "are"
        message = f"`{config}` was removed since `{baseline.revision.name}`, so that {named} {verb} no longer checked"
        restore = f"git checkout {baseline.revision.commit[:12]} -- {shlex.quote(f':/{config}')}"  # from git's root
        hint = f"restore the config: `{restore}`; if these models need no check, use `--against none`"
        raise UsageError(message, hint=hint)


STREAMED_FORMATS = ("text", "github")
"""Formats whose reports of several projects can follow each other on standard output."""


def _run_check(config: Path | None, request: CheckRequest, sinks: Sequence[Sink], options: CommonOptions) -> int:
    drawn = any(RENDERERS[sink.format].has_drawings for sink in sinks)
    if config is None:
        set_command_folder(options.start)
    request.ignoring.refuse(config, request.shard, options.no_ignores)
    if request.plan is not None and request.shard is None:
        raise UsageError("`--plan` requires `--shard`", hint="add `--shard I/N`")
    if config is None:
        report, render_text, render_markdown = _check_files(request, options, drawn=drawn)
        write_outputs(report, sinks, options, render_text=render_text, render_markdown=render_markdown)
    else:
        _refuse_options_without_stage(request)
        report, snippets = _check_project(config, request, options, drawn=drawn)
        write_outputs(report, sinks, options, config, snippets)
    return report.exit


def _refuse_options_without_stage(request: CheckRequest) -> None:
    """Reject options that have no effect on the selected stages."""
    for option, is_given, stages in (
        ("--case", bool(request.inputs.cases), (Stage.RUNTIME, Stage.PARITY)),
        ("--seed", request.inputs.seed != 0, (Stage.RUNTIME, Stage.PARITY)),
    ):
        if is_given and request.stages.isdisjoint(stages):
            raise UsageError(f"`{option}` requires the stage `{stages[0].value}` or `{stages[1].value}`")


def _print_reuse(options: CommonOptions) -> Callable[[int, int], None] | None:
    """Return a function that prints how many results of static stages were reused; None without `-v`."""
    if not options.verbose or options.quiet:
        return None

    def print_reuse(reused: int, models: int) -> None:
        line = f"static results: {reused} of {pluralize(models, 'model')} reused from {static_dir()}"
        click.echo(escape_log_line(line), err=True)

    return print_reuse


PREDICTED_STAGES = (frozenset(STATIC_STAGES), frozenset({Stage.FILE, Stage.SUPPORT}))
"""Values of `--stage` that a check without a config accepts, because there is no lock to check."""


def _check_files(
    request: CheckRequest, options: CommonOptions, *, drawn: bool
) -> tuple[Report, Callable[..., str], Callable[[], str]]:
    """Check models without a config. Return the report, and the functions that render it as text and as Markdown."""
    from onnxgate.commands.files_without_config import check_files, make_request
    from onnxgate.formats.support_matrix import format_markdown, format_text

    for option, is_given in (
        ("--against", request.against not in (None, "none")),
        ("--shard", request.shard is not None),
        ("--stage", request.has_stages and request.stages not in PREDICTED_STAGES),
        ("--no-ignores", options.no_ignores),
        ("--case", bool(request.inputs.cases)),
        ("--seed", request.inputs.seed != 0),
    ):
        if is_given:
            ignored = request.target is not None and find_config(options.start) is not None
            hint = "omit `--target`, which ignores the config" if ignored else "run `onnxgate init` to create a config"
            raise UsageError(f"`{option}` requires a config", hint=hint)
    if request.target is None:
        require_selection(request.paths, options)
    files = make_request(request.paths, request.target, options.start, options.jobs)
    static = msgspec.structs.replace(files.static, fresh=request.fresh, report_reuse=_print_reuse(options))
    files = msgspec.structs.replace(files, static=static)
    checked = check_files(files, options.fail_on, drawn=drawn, target=request.target)
    required = request.target is not None

    def render_text(report: Report, *, verbosity: int = 0, **options: Any) -> str:
        matrix = build_matrix(checked.matrix.models, msgspec.structs.replace(report, remarks=checked.matrix.remarks))
        shown = {name: value for name, value in options.items() if name not in ("inputs", "snippets")}
        return format_text(matrix, has_table=False, required=required, verbose=verbosity > 0, **shown)

    def render_markdown() -> str:
        return format_markdown(checked.matrix, has_table=False, required=required)

    return checked.report, render_text, render_markdown


def _check_project(
    config: Path, request: CheckRequest, options: CommonOptions, *, drawn: bool
) -> tuple[Report, Snippets]:
    ignoring = request.ignoring
    before = _read_writable_config(config, ignoring.until) if ignoring.write else b""
    project = load_project_config(config)
    lock = load_lock(project.lock_path)
    paths = [str(path) for path in request.paths]
    models = project.models(paths, base=options.start)
    if not paths:
        print_untracked_models(project, options)
    share = None
    if request.shard is not None:
        from onnxgate.gate.sharding.plan import select_share

        share = select_share(request.shard, request.plan, project, lock, models, request.inputs)
    complete = request.stages.issuperset(DYNAMIC_STAGES) and not request.inputs.cases
    meter = JobMeter() if complete else None
    checked = make_project_request(
        project, lock, models if share is None else share.own(models), request.stages, options, meter
    )
    is_complete = not paths and (share is None or share.index == 1)  # one shard reports them
    unexported = tuple(model.path for model in project.unexported()) if is_complete else ()
    gate_request = msgspec.structs.replace(
        checked,
        checkout=msgspec.structs.replace(checked.checkout, unexported=unexported),
        selection=Selection(request.stages, request.inputs),
        baseline=_choose_baseline(project.folder, request, options),
        share=share,
        caches=RunCaches(_results_folder(request.stages), fresh=request.fresh, inputs=inputs_dir, support=support_dir),
        static=StaticSettings(options.jobs, static_dir, request.fresh, _print_reuse(options)),
    )
    outcome = pipeline.run(gate_request)
    snippets: Snippets = {}
    if ignoring.write or ignoring.show:
        outcome, snippets = _settle_ignores(ignoring, gate_request, outcome, before)
    if share is None:
        report = build_report(gate_request, outcome, options.fail_on, drawn=drawn)
    else:
        from onnxgate.gate.sharding.shard_report import build_shard_report

        report = build_shard_report(gate_request, outcome, share, options.fail_on, drawn=drawn)
    excluded = project.describe_excluded(paths, base=options.start)
    remarks = tuple(sorted({*report.remarks, *excluded}))
    report = suggest_target_changes(report, outcome.gathered.judged)
    report = msgspec.structs.replace(report, remarks=remarks, checkout=_report_checkout())
    report = seal_report(report)
    if meter is not None:
        from onnxgate.gate.sharding.plan import save_measured_costs

        save_measured_costs(report, project.folder, meter.seconds(), outcome.gathered.execution.reused)
    return report, snippets


def _is_in_ci() -> bool:
    return not {"GITHUB_ACTIONS", "GITLAB_CI"}.isdisjoint(os.environ)


def _report_checkout() -> ReportedCheckout | None:
    """Return the repository and the commit of a CI run; None outside CI."""
    if not _is_in_ci():
        return None
    from onnxgate.project.git.baseline import read_checkout

    return read_checkout(os.environ)


def _choose_baseline(folder: Path, request: CheckRequest, options: CommonOptions) -> Baseline:
    """Return the git revision to compare the models with. Outside CI, there is one only if `--against` is given."""
    if request.against is None and not _is_in_ci():
        return Baseline()
    if request.against == "none" and _is_in_ci():
        return Baseline(is_disabled=True)
    from onnxgate.project.git.baseline import choose_baseline

    root = find_git_root(folder.absolute())
    chosen = choose_baseline(root, request.against, os.environ, offline=options.offline)
    return Baseline(chosen.revision, chosen.remark, chosen.missing, chosen.hint)


def _results_folder(stages: frozenset[Stage]) -> Path | None:
    """Return the folder of cached results; None if no selected stage uses it, or if other users can write to it."""
    if stages.isdisjoint(DYNAMIC_STAGES):
        return None
    return results_dir() if shared_cache_dir() else create_private_folder(results_dir())


def _read_writable_config(config: Path, until: datetime.date | None) -> bytes:
    """Return the content of the config to which ignores will be written.

    Raises:
        UsageError: the config is read-only, or `until` is in the past.
    """
    if until is not None and until < current_date():
        raise UsageError(f"`--until {until}` is in the past", hint="use a future date")
    check_writable(config)
    return config.read_bytes()


def _settle_ignores(
    ignoring: IgnoreOptions, request: GateRequest, outcome: GateOutcome, before: bytes
) -> tuple[GateOutcome, Snippets]:
    """Write or render config entries that accept the findings. Return the new outcome of the check and the entries.

    `before` is the config from which the request was created.

    Raises:
        UsageError: the config cannot be edited or written.
    """
    from onnxgate.commands.ignores import accept_findings, render_ignore_snippets

    if ignoring.write:
        adopted = accept_findings(request, outcome, before, ignoring.until)
        if adopted.data != before:
            write_config(request.project.path, adopted.data, before)
        gathered = adopted.outcome.gathered
        change = msgspec.structs.replace(gathered.change, remarks=(*gathered.change.remarks, *adopted.remarks))
        outcome = msgspec.structs.replace(adopted.outcome, gathered=msgspec.structs.replace(gathered, change=change))
    return outcome, render_ignore_snippets(request, outcome) if ignoring.show else {}
