"""`onnxgate plan`: divides a check among CI jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click
import msgspec

from onnxgate.cli.shared.options import CommonOptions, common_options_without
from onnxgate.cli.shared.project_request import load_project
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import pluralize
from onnxgate.gate.sharding.plan import ShardPlan, plan_shards
from onnxgate.project.lock.lock_file import load_lock


@click.command("plan")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--shards", type=click.IntRange(1, 256), required=True, metavar="N", help="Maximum number of jobs.")
@click.option(
    "--output",
    "format_name",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="json: one line, for the matrix of a GitHub Actions job; text: a readable list.",
)
@click.option(
    "--measured",
    is_flag=True,
    help="Estimate costs from the cached durations of earlier checks. Each job must then use `--plan FILE`.",
)
@common_options_without("offline", "jobs", "fail_on", "no_ignores", "verbosity")
def command(
    paths: tuple[Path, ...], shards: int, format_name: Literal["json", "text"], measured: bool, options: CommonOptions
) -> int:
    """Divide a check among CI jobs.

    All models, or only those selected by PATHS, are divided into up to N shards of similar cost. Costs are estimated
    from the config and the lock, in the same way as for `onnxgate check --shard I/N` without a plan.

    Each job runs `onnxgate check --shard I/N --plan FILE --output json=report-I.json` with the same PATHS, and a last
    job runs `onnxgate merge report-*.json`.
    """
    project = load_project(options, paths)
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    plan = plan_shards(project, lock, models, shards, measured=measured)
    matrix = {"include": [msgspec.structs.asdict(entry) for entry in plan.entries]}
    click.echo(json.dumps(matrix) + "\n" if format_name == "json" else _render_text(plan, options.quiet), nl=False)
    return 0


def _render_text(plan: ShardPlan, quiet: bool) -> str:
    lines = []
    for entry in plan.entries if not quiet else ():
        weight_s = sum(plan.weights_ms[path] for path in entry.paths) / 1000
        lines.append(f"shard {entry.index}/{entry.of}: {pluralize(entry.models, 'model')}, about {weight_s:.1f} s")
        lines += [escape_log_line(f"  {path}") for path in entry.paths]
    total = pluralize(len(plan.division.state.models), "model")
    basis = f"with measured costs for {plan.measured}" if plan.measured else "with estimated costs"
    used = f"{len(plan.entries)} of " if len(plan.entries) < plan.division.of else ""
    return "\n".join([*lines, f"{total} in {used}{pluralize(plan.division.of, 'shard')}, {basis}", ""])
