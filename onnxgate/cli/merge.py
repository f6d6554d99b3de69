"""`onnxgate merge`: one verdict of the reports of all shards."""

from __future__ import annotations

import re
from pathlib import Path

import click

from onnxgate.cli.shared.options import CommonOptions, common_options, output_option
from onnxgate.cli.shared.outputs import parse_outputs, write_outputs
from onnxgate.cli.shared.project_request import find_project
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.gate.sharding.merge import merge_reports
from onnxgate.gate.sharding.plan import digest_text_file, import_shard_costs
from onnxgate.gate.sharding.shard_report import ExpectedCheck, collect_reports, list_report_files, read_report_file
from onnxgate.project.config.project import Project


@click.command("merge")
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option("As of `onnxgate check`")
@click.option("--key", metavar="KEY", default="", help="The plan's `key`: reports of another plan are no verdict.")
@common_options
def command(reports: tuple[Path, ...], outputs: tuple[str, ...], key: str, options: CommonOptions) -> int:
    """Make one report of those that `onnxgate check --shard i/N --output json=FILE` wrote.

    REPORTS are files, or folders with *.json. Together they are what one undivided check reports. A shard that is
    missing, cut off, or of another check is no pass: what is known to be broken is 1, and else the exit status is 3.
    In a folder of the project, config and lock are compared with those that the shards were judged by.

    What the jobs measured is kept for the next `onnxgate plan`, where a folder of REPORTS has it in its `costs`.
    """
    if options.no_ignores:
        raise UsageError("`--no-ignores` is decided when shards are judged", hint="give it to `onnxgate check --shard`")
    if key and not re.fullmatch("[0-9a-f]{12,64}", key):
        raise UsageError(f"`--key` is `{key}`; expected what `onnxgate plan` wrote as `key`")
    project = find_project(options)
    written = [Path(file) for _, _, file in (output.partition("=") for output in outputs) if file]
    shard_reports = [read_report_file(file) for file in list_report_files(reports, written)]
    sinks = parse_outputs(outputs)
    report = merge_reports(*collect_reports(shard_reports, _expected_shards(project, key)), options.fail_on)
    import_shard_costs(reports, report)
    write_outputs(report, sinks, options, project.path if project is not None else None)
    return report.exit


def _expected_shards(project: Project | None, key: str) -> ExpectedCheck:
    """Return what the reports must match, from the project of the working directory if there is one."""
    if project is None:
        return ExpectedCheck(plan=key)
    try:
        models = tuple(model.path for model in project.models())
    except OnnxgateError:
        models = ()  # a checkout without the models will do
    lock = digest_text_file(project.lock_path) if project.lock_path.is_file() else ""
    return ExpectedCheck(plan=key, config=digest_text_file(project.path), lock=lock, models=models)
