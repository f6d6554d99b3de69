"""`onnxgate matrix`: shows which releases can load the models."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click
import msgspec

from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.cli.shared.options import (
    ANSWER_FORMATS,
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
    target_option,
)
from onnxgate.cli.shared.outputs import parse_outputs, with_command_folder, write_answer
from onnxgate.cli.shared.worker_pool import ProgressBoard, open_pool, open_progress
from onnxgate.commands.files_without_config import check_files, make_request
from onnxgate.commands.matrix_verification import find_releases, verify_matrix
from onnxgate.core.errors import UsageError
from onnxgate.core.matrix import MatrixModel, build_matrix
from onnxgate.formats import support_matrix
from onnxgate.project.config.schema import ReleaseSelection


@click.command("matrix")
@click.argument("models", nargs=-1, metavar="MODELS...", type=click.Path(path_type=Path))
@target_option("Require the models to load on all releases that match REQUIREMENT, such as 'onnxruntime>=1.18'.")
@click.option(
    "--select",
    type=click.Choice(["minors", "bounds", "newest", "all"]),
    default="all",
    show_default=True,
    help="Releases to include. all: every release; minors: the newest patch of each minor release; bounds: the newest "
    "patch of the oldest and of the newest minor release; newest: only the newest release.",
)
@click.option("--verify", is_flag=True, help="Install each release and load the models on it.")
@output_option(name_formats(ANSWER_FORMATS))
@common_options_without("config", "fail_on", "no_ignores")
def command(
    models: tuple[Path, ...],
    target: str | None,
    select: ReleaseSelection,
    verify: bool,
    outputs: tuple[str, ...],
    options: CommonOptions,
) -> int:
    """Show which releases can load each model, and why the others cannot load it.

    MODELS are files or folders; hidden folders in them are skipped. The releases are those of ONNX Runtime, or those of
    another engine if REQUIREMENT names one. The config is not read. Without `--verify`, the
    results are predictions; no release is installed or run.

    The verdict is the same as for `onnxgate check` without a config. A model fails if no release can load it. With
    `--target`, a model fails if any release that matches REQUIREMENT refuses it. Other errors also make the model fail,
    and are listed below the table.

    Exit status: 0 pass; 1 fail; 2 usage error; 3 undecided (a result is unknown or could not be verified).
    """
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    if not models:
        raise UsageError("no models are given", hint="specify models or folders, such as `onnxgate matrix .`")
    set_command_folder(options.start)
    request = make_request(models, target, options.start, options.jobs, select)

    def verify_loads(predicted: tuple[MatrixModel, ...]) -> tuple[MatrixModel, ...]:
        board = ProgressBoard(len(find_releases(request)) * len(request.models))
        with (
            open_progress(quiet=options.quiet, board=board) as progress,
            open_pool(request.project, options, progress) as pool,
        ):
            return verify_matrix(predicted, request, pool, progress, offline=options.offline)

    checked = check_files(request, "error", drawn=False, target=target, verify=verify_loads if verify else None)
    matrix, required = checked.matrix, target is not None
    shown = msgspec.structs.replace(with_command_folder(checked.report), remarks=matrix.remarks)
    write_answer(
        sinks,
        matrix,
        partial(
            support_matrix.format_text,
            build_matrix(matrix.models, shown),
            required=required,
            quiet=options.quiet,
            verbose=options.verbose,
            elapsed_s=options.elapsed_s,
        ),
        partial(support_matrix.format_markdown, matrix, required=required),
    )
    return matrix.exit
