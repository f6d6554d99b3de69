"""`onnxgate matrix`: on which releases models load."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from onnxgate import __version__
from onnxgate.cli.shared.options import ANSWER_FORMATS, CommonOptions, common_options, name_formats, output_option
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.cli.shared.worker_pool import ProgressBoard, open_pool, open_progress
from onnxgate.commands.files_without_config import make_request, predict_matrix
from onnxgate.commands.matrix_verification import find_releases, verify_matrix
from onnxgate.core.matrix import build_matrix
from onnxgate.formats import support_matrix
from onnxgate.gate import pipeline
from onnxgate.project.config.schema import ReleaseSelection


@click.command("matrix")
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--target", metavar="REQUIREMENT", help="Only these releases ('onnxruntime>=1.18').")
@click.option(
    "--select",
    type=click.Choice(["minors", "bounds", "newest", "all"]),
    default="all",
    show_default=True,
    help="Of these releases: the newest patch of each minor, the first and the last of those, the last, or all.",
)
@click.option("--verify", is_flag=True, help="Really load the models in each of these releases, too.")
@output_option(name_formats(ANSWER_FORMATS))
@common_options
def command(
    models: tuple[Path, ...],
    target: str | None,
    select: ReleaseSelection,
    verify: bool,
    outputs: tuple[str, ...],
    options: CommonOptions,
) -> int:
    """Say on which releases of ONNX Runtime each of MODELS (files or folders) loads, and why not on the others.

    Hidden folders are entered where they are named alone.

    It is predicted from what each release's own wheel reports; nothing is installed or run, unless --verify asks for
    it. No config is read. The exit status is 0 where every model loads on one of the releases at least, 1 where a model
    loads on none, and 3 where that is not known or could not be verified.
    """
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    request = make_request(models, target, options.start, options.jobs, select)
    predicted = predict_matrix(pipeline.run(request))
    if verify:
        board = ProgressBoard(len(find_releases(request)) * len(request.models))
        with (
            open_progress(quiet=options.quiet, board=board) as progress,
            open_pool(request.project, options, progress) as pool,
        ):
            predicted = verify_matrix(predicted, request, pool, progress, offline=options.offline)
    matrix = build_matrix(predicted, __version__)
    write_answer(
        sinks,
        matrix,
        partial(support_matrix.format_text, matrix, quiet=options.quiet, verbose=options.verbose),
        partial(support_matrix.format_markdown, matrix),
    )
    return matrix.exit
