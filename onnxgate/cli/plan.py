"""`onnxgate plan`: divides a check among jobs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.cli.shared.project_request import load_project
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import pluralize
from onnxgate.gate.sharding.plan import plan_shards
from onnxgate.project.lock.loader import load_lock

if TYPE_CHECKING:
    from onnxgate.gate.sharding.plan import ShardPlan


@click.command("plan")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--shards", type=click.IntRange(1, 256), required=True, metavar="N", help="How many jobs, at most.")
@click.option(
    "--output",
    "format_name",
    type=click.Choice(["json", "text"]),
    default="json",
    show_default=True,
    help="One line for a matrix of GitHub Actions, or a table to read.",
)
@common_options
def command(paths: tuple[Path, ...], shards: int, format_name: Literal["json", "text"], options: CommonOptions) -> int:
    """Divide the models, or those that PATHS select, into N shards of like cost.

    The JSON is the `matrix` of a job: `fromJSON` reads it, and each entry's `shard` is what `onnxgate check --shard`
    takes, with the same PATHS. Shards without a model are left out; where PATHS select none, `include` is empty.

    By hand: `onnxgate check --shard 1/2 --output json=shard-1.json`, elsewhere the same with `2/2` and `shard-2.json`,
    then `onnxgate merge shard-1.json shard-2.json`.

    `1/2` divides by estimates from config and lock, alike on every machine. The plan divides by what the models
    cost when they were last checked with this cache (its folder `costs`), and each entry says so to its job.
    """
    project = load_project(options)
    lock = load_lock(project.lock_path)
    models = project.models([str(path) for path in paths], base=options.start)
    planned = plan_shards(project, lock, models, shards)
    click.echo(_render_json(planned) if format_name == "json" else _render_text(planned, options.quiet), nl=False)
    return 0


def _render_json(planned: ShardPlan) -> str:
    entries = [
        {
            "shard": str(shard),
            "index": shard.index,
            "of": shard.of,
            "key": shard.plan,
            "models": len(planned.division.of_shard(shard.index)),
        }
        for shard in planned.shards
    ]
    return json.dumps({"include": entries}) + "\n"


def _render_text(planned: ShardPlan, quiet: bool) -> str:
    lines = []
    for shard in planned.shards if not quiet else ():
        models = planned.division.of_shard(shard.index)
        weight_s = sum(planned.weights_ms[path] for path in models) / 1000
        lines.append(
            f"shard {shard.index} of {shard.of}: {pluralize(len(models), 'model')}, about {weight_s:.1f} s of work"
        )
        lines += [escape_log_line(f"  {path}") for path in models]
    total = pluralize(len(planned.division.state.models), "model")
    basis = f"{planned.measured} of them measured" if planned.measured else "by estimates: none was measured here"
    return "\n".join([*lines, f"{total} in {pluralize(len(planned.shards), 'shard')}, {basis}", ""])
