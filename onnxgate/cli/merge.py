"""`onnxgate merge`: merges the reports of all shards into one verdict."""

from __future__ import annotations

import os
import re
from pathlib import Path

import click

from onnxgate.cli.shared.options import CommonOptions, common_options_without, name_formats, output_option
from onnxgate.cli.shared.outputs import parse_outputs, write_outputs
from onnxgate.cli.shared.project_request import find_project
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import join_quoted
from onnxgate.formats import RENDERERS
from onnxgate.gate.sharding.merge import merge_reports
from onnxgate.gate.sharding.plan import digest_text_file, import_shard_costs
from onnxgate.gate.sharding.shard_report import (
    NOT_A_REPORT,
    ExpectedCheck,
    collect_reports,
    list_report_files,
    read_report_file,
)
from onnxgate.project.config.project import Project, suggest_file


@click.command("merge")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option(name_formats(RENDERERS))
@click.option(
    "--key",
    metavar="KEY",
    default="",
    help="Reject reports whose key differs from KEY. `onnxgate plan` prints the key.",
)
@common_options_without("offline", "jobs", "no_ignores")
def command(reports: tuple[Path, ...], outputs: tuple[str, ...], key: str, options: CommonOptions) -> int:
    """Merge the reports of CI jobs into one verdict.

    REPORTS are files written by `onnxgate check --shard I/N --output json=FILE`, or folders that contain them. The
    merged report equals the report of a check without `--shard`. Inside a project, reports that were written
    with a different config or lock are rejected. Other JSON files in a folder are ignored.

    Exit status: as for `onnxgate check`; also 3 if no model fails, but the report of a shard is
    missing, is corrupted or belongs to another check.
    """
    if key and not re.fullmatch("[0-9a-f]{12,64}", key):
        raise UsageError(f"invalid `--key`: `{key}`", hint="use the `key` in the output of `onnxgate plan`")
    project = find_project(options)
    missing = [path for path in reports if not os.path.lexists(path)]
    if len(missing) == len(reports):  # otherwise, the reports of some shards are missing
        hint = suggest_file(missing[0].absolute(), str(missing[0]))
        raise UsageError(f"{join_quoted(map(str, missing))} {'do' if missing[1:] else 'does'} not exist", hint=hint)
    written = [Path(file) for _, _, file in (output.partition("=") for output in outputs) if file]
    files = [read_report_file(file) for file in list_report_files(reports, written)]
    others = [file for file in files if file.problem == NOT_A_REPORT and Path(file.name) not in reports]
    if others and not options.quiet:
        names = join_quoted(file.name for file in others)
        click.echo(escape_log_line(f"note: ignored files that are not onnxgate reports: {names}"), err=True)
    shard_reports = [file for file in files if file not in others]
    sinks = parse_outputs(outputs)
    report = merge_reports(*collect_reports(shard_reports, _expected_shards(project, key)), options.fail_on)
    import_shard_costs(reports, report)
    write_outputs(report, sinks, options, project.path if project is not None else None)
    return report.exit


def _expected_shards(project: Project | None, key: str) -> ExpectedCheck:
    """Return the plan key, config, lock and models that reports must match. Without a project, only the key is set."""
    if project is None:
        return ExpectedCheck(plan=key)
    try:
        models = tuple(model.path for model in project.models())
    except OnnxgateError:
        models = ()  # they are not needed here
    lock = digest_text_file(project.lock_path) if project.lock_path.is_file() else ""
    return ExpectedCheck(plan=key, config=digest_text_file(project.path), lock=lock, models=models)
