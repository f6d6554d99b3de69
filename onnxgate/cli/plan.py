"""`onnxgate plan`: divides a check among jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import click
import msgspec

from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.cli.shared.project_request import load_project
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import pluralize
from onnxgate.gate.sharding.plan import ShardPlan, plan_shards
from onnxgate.project.lock.lock_file import load_lock


@click.command("plan")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--shards", type=click.IntRange(1, 256), required=True, metavar="N", help="How many jobs, at most.")
@click.option(
    "--output",
    "format_name",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="The plan, on one line, which is also a matrix of GitHub Actions; or a table to read.",
)
@common_options
def command(paths: tuple[Path, ...], shards: int, format_name: Literal["json", "text"], options: CommonOptions) -> int:
    """Divide the models, or those that PATHS select, into N shards of like cost.

    The JSON is the plan that `onnxgate check --shard 1/N --plan FILE` reads, with the same PATHS. It is also the
    `matrix` of a job, which `fromJSON` reads. Shards without a model are left out; where PATHS select none, `include`
    is empty.

    By hand: `onnxgate plan --shards 2 > plan.json`, then `onnxgate check --shard 1/2 --plan plan.json --output
    json=shard-1.json`, elsewhere the same with `2/2` and `shard-2.json`, then `onnxgate merge shard-1.json
    shard-2.json`.

    The plan divides by what the models cost when they were last checked with this cache (its folder `costs`). Without
    `--plan`, `check --shard` divides by estimates from config and lock, alike on every machine.
    """
    project = load_project(options)
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    plan = plan_shards(project, lock, models, shards)
    matrix = {"include": [msgspec.structs.asdict(entry) for entry in plan.entries]}
    click.echo(json.dumps(matrix) + "\n" if format_name == "json" else _render_text(plan, options.quiet), nl=False)
    return 0


def _render_text(plan: ShardPlan, quiet: bool) -> str:
    lines = []
    for entry in plan.entries if not quiet else ():
        weight_s = sum(plan.weights_ms[path] for path in entry.paths) / 1000
        lines.append(
            f"shard {entry.index} of {entry.of}: {pluralize(entry.models, 'model')}, about {weight_s:.1f} s of work"
        )
        lines += [escape_log_line(f"  {path}") for path in entry.paths]
    total = pluralize(len(plan.division.state.models), "model")
    basis = f"{plan.measured} of them measured" if plan.measured else "by estimates: none was measured here"
    return "\n".join([*lines, f"{total} in {pluralize(len(plan.entries), 'shard')}, {basis}", ""])
