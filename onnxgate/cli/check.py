"""`onnxgate check`: the gate."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.shared.options import CommonOptions, common_options, name_formats, output_option, unknown_name_error
from onnxgate.core.errors import UsageError
from onnxgate.formats import RENDERERS

if TYPE_CHECKING:
    from onnxgate.core.findings import Stage


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="The stages that run nothing: file, lock, support.")
@click.option("--stage", "stages", metavar="A,B", help="Only these stages, separated by commas.")
@output_option(name_formats(RENDERERS))
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
    from onnxgate.cli.shared.outputs import parse_outputs
    from onnxgate.cli.shared.project_check import CheckRequest, IgnoreOptions, run_check
    from onnxgate.inputs.case_selection import CaseSelection

    sinks = parse_outputs(outputs)  # before the other options: an old report must not be taken for a new one
    request = CheckRequest(
        paths=paths,
        target=target,
        stages=_parse_stages(static, stages),
        inputs=CaseSelection(seed, tuple(dict.fromkeys(cases))),
        against=against,
        shard=shard,
        plan=plan,
        fresh=fresh,
        ignoring=IgnoreOptions(show_ignores, write_ignores, until.date() if until is not None else None),
    )
    return run_check(request, sinks, options)


def _parse_stages(static: bool, names: str | None) -> frozenset[Stage]:
    """Return the stages that `--static` or `--stage a,b` select; all without either.

    Raises:
        UsageError: both are given, or a name is not a stage.
    """
    from onnxgate.core.findings import ALL_STAGES, STATIC_STAGES, Stage

    if static and names is not None:
        raise UsageError("`--static` and `--stage` exclude each other")
    if names is None:
        return frozenset(STATIC_STAGES if static else ALL_STAGES)
    known_stages = [stage.value for stage in ALL_STAGES]
    selected = [name.strip() for name in names.split(",")]
    for name in selected:
        if name not in known_stages:
            raise unknown_name_error("stage", name, known_stages)
    return frozenset(map(Stage, selected))
