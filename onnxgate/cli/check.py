"""`onnxgate check`: check models against the locked runtimes."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.shared.options import (
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
    target_option,
    unknown_name_error,
)
from onnxgate.core.errors import UsageError
from onnxgate.formats import RENDERERS

if TYPE_CHECKING:
    from onnxgate.core.findings import Stage


@click.command("check")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--static", is_flag=True, help="Run only the stages that do not execute models: file, lock and support.")
@click.option(
    "--stage",
    "stages",
    multiple=True,
    metavar="A,B",
    help="Run only these stages, separated by commas: file, lock, support, runtime, parity, export. Repeatable.",
)
@output_option(name_formats(RENDERERS))
@target_option(
    "Ignore the config, and require the models to load on all releases that match REQUIREMENT, such as "
    "'onnxruntime>=1.18'."
)
@click.option(
    "--against",
    metavar="REF",
    help="Git revision to compare the models with; `none` disables the comparison. Default in CI: the base of the "
    "pull request, or the revision before the push.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Seed for generated inputs.")
@click.option(
    "--case",
    "cases",
    multiple=True,
    metavar="NAME",
    help="Run only the input case with this name, as shown in findings. Repeatable.",
)
@click.option("--shard", metavar="I/N", help="Check only shard I of N, to divide the check among CI jobs.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="With `--shard`: file written by `onnxgate plan`.",
)
@click.option(
    "--no-cache",
    "fresh",
    is_flag=True,
    help="Do not reuse results of earlier checks; environments are still reused.",
)
@click.option(
    "--show-ignores",
    is_flag=True,
    help="For each finding and undecided check, print the `[[ignore]]` entry that would accept it.",
)
@click.option(
    "--write-ignores",
    is_flag=True,
    help="Add `[[ignore]]` entries for the current errors, warnings and undecided checks to the config, and remove "
    "unused entries that this option created.",
)
@click.option(
    "--until",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="With `--write-ignores`: last day on which the new entries apply.",
)
@common_options_without(details={"verbosity": "`-vv` adds the duration of each job and the measured differences"})
def command(
    paths: tuple[Path, ...],
    static: bool,
    stages: tuple[str, ...],
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
    """Check all models in the project, or only those selected by PATHS.

    PATHS are models, their data files, folders or export scripts.

    Without a config, onnxgate predicts which ONNX Runtime releases can load the models. A model fails if no release can
    load it. With `--target`, a model fails if any release that matches REQUIREMENT refuses it; the engine can also be
    onnxruntime-web, openvino or tract. Other errors, such as a corrupted file, also make the model fail.

    Exit status: 0 pass; 1 fail; 2 usage, config or lock error; 3 undecided.
    """
    from onnxgate.cli.shared.outputs import parse_outputs
    from onnxgate.cli.shared.project_check import CheckRequest, IgnoreOptions, run_check
    from onnxgate.inputs.case_selection import CaseSelection

    sinks = parse_outputs(outputs)  # first, as it empties the files: an old report must not look like a new one
    request = CheckRequest(
        paths=paths,
        target=target,
        stages=_parse_stages(static, stages),
        has_stages=bool(stages),
        inputs=CaseSelection(seed, tuple(dict.fromkeys(cases))),
        against=against,
        shard=shard,
        plan=plan,
        fresh=fresh,
        ignoring=IgnoreOptions(show_ignores, write_ignores, until.date() if until is not None else None),
    )
    return run_check(request, sinks, options)


def _parse_stages(static: bool, values: Sequence[str]) -> frozenset[Stage]:
    """Return the stages that `--static` or `--stage` selects; all stages by default.

    Raises:
        UsageError: both options are given, or a stage is missing or does not exist.
    """
    from onnxgate.core.findings import ALL_STAGES, STATIC_STAGES, Stage

    if static and values:
        raise UsageError("`--static` and `--stage` cannot be combined")
    if not values:
        return frozenset(STATIC_STAGES if static else ALL_STAGES)
    known_stages = [stage.value for stage in ALL_STAGES]
    selected = [name.strip() for value in values for name in value.split(",")]
    for name in selected:
        if not name:
            raise UsageError("`--stage` has an empty name", hint=f"available: {', '.join(known_stages)}")
        if name not in known_stages:
            raise unknown_name_error("stage", name, known_stages)
    return frozenset(map(Stage, selected))
