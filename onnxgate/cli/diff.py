"""`onnxgate diff`: what changed between two models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from onnxgate.cli.options import CommonOptions, common_options, documents_option

if TYPE_CHECKING:
    from onnxgate.cli.outputs import Sink
    from onnxgate.model.difference import Difference, Verdict

FORMATS = ("text", "json", "markdown")
EXITS: dict[Verdict, int] = {"identical": 0, "same": 0, "different": 1, "undecided": 3}


@click.command("diff")
@click.argument("models", nargs=-1, metavar="OLD NEW")
@click.option("--exit-code", is_flag=True, help="Exit with 1 where they are not the same model, as git does.")
@click.option("--textconv", is_flag=True, help="Describe one model as text, for git; see `onnxgate init --git-diff`.")
@documents_option
@common_options
def command(
    models: tuple[str, ...], exit_code: bool, textconv: bool, outputs: tuple[str, ...], options: CommonOptions
) -> int:
    """Say what changed from the model OLD to the model NEW: interface, stamps, operators, nodes, weights and files.

    Each is a file, or REV:PATH for the file as it was at a git revision, with PATH from git's root on, or from here on
    where it begins with `./`. Git LFS and external data are followed. Nodes and weights are matched by how the graph is
    wired: what is only called otherwise is the same.

    No config is read. The exit status is 0, whatever differs; with --exit-code, 1 where they are not the same model,
    and 3 where they are as far as they could be read. It is 2 where one of them is no model.
    """
    if textconv:
        return _describe(models, outputs)
    _require_two(models)
    from onnxgate.cli.outputs import parse_outputs, write_sinks

    sinks = parse_outputs(outputs, FORMATS)
    found = _difference(models, options)

    def rendered(sink: Sink, color: bool, width: int) -> str:
        return _render(found, sink.format, options, color=color, width=width)

    write_sinks(sinks, rendered)
    return EXITS[found.verdict] if exit_code else 0


def _require_two(models: tuple[str, ...]) -> None:
    from onnxgate.errors import UsageError

    if len(models) != 2:
        hint = "`onnxgate diff HEAD:models/net.onnx models/net.onnx`"
        raise UsageError(f"two models are compared, and {len(models)} were given", hint=hint)


def _describe(models: tuple[str, ...], outputs: tuple[str, ...]) -> int:
    from onnxgate.errors import UsageError

    if len(models) != 1 or outputs:
        raise UsageError("`--textconv` describes one file, as text, on standard output")
    path = Path(models[0])
    if not path.exists():
        raise UsageError(f"there is no `{path}`")
    click.echo("".join(f"{line}\n" for line in _described(path)).encode("utf-8", "backslashreplace"), nl=False)
    return 0


def _described(path: Path) -> list[str]:
    """The model as text. Git gives up a whole log for one file that cannot be described, so that whatever goes wrong
    is a description too."""
    from onnxgate.formats.escape import log_line
    from onnxgate.model.describing import describe

    try:
        return [log_line(line) for line in describe(path)]
    except Exception as error:  # noqa: BLE001 - it is said
        return [log_line(f"this model could not be described: {type(error).__name__}: {error}")]


def _difference(models: tuple[str, ...], options: CommonOptions) -> Difference:
    from onnxgate import __version__
    from onnxgate.cli.revisions import given
    from onnxgate.errors import UsageError
    from onnxgate.model.differing import difference
    from onnxgate.model.structure import UnreadableModel
    from onnxgate.scratch import scratch_folder

    with scratch_folder() as scratch:
        old, new = (
            given(name, Path(scratch, side), options) for name, side in zip(models, ("old", "new"), strict=True)
        )
        try:
            return difference(old, new, __version__)
        except UnreadableModel as reason:
            raise UsageError(f"one of the models cannot be read: it is {reason}") from reason


def _render(found: Difference, format_name: str, options: CommonOptions, *, color: bool, width: int) -> str:
    from onnxgate.formats import diff_json, diff_markdown, diff_text

    match format_name:
        case "json":
            return diff_json.format(found)
        case "markdown":
            return diff_markdown.format(found, verbose=options.verbose)
        case _:
            return diff_text.format(found, color=color, width=width, quiet=options.quiet, verbose=options.verbose)
