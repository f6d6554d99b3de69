"""`onnxgate diff`: what changed between two models."""

from __future__ import annotations

import posixpath
from functools import partial
from pathlib import Path, PurePosixPath

import click

from onnxgate import __version__
from onnxgate.cli.shared.options import ANSWER_FORMATS, CommonOptions, common_options, name_formats, output_option
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.core.errors import UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import temporary_folder
from onnxgate.formats import model_diff
from onnxgate.model.diff.model_diff import NamedModel, compute_diff
from onnxgate.model.diff.result import Verdict
from onnxgate.model.diff.text_description import describe_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type
from onnxgate.project.git.repository import find_commit, find_git_root
from onnxgate.project.git.revisions import MissingAtRevisionError, Revision, write_model_at_revision

EXIT_STATUS: dict[Verdict, int] = {"identical": 0, "same": 0, "different": 1, "undecided": 3}


@click.command("diff")
@click.argument("models", nargs=-1, metavar="OLD NEW")
@click.option("--exit-code", is_flag=True, help="Exit with 1 where they are not the same model, as git does.")
@click.option("--textconv", is_flag=True, help="Describe one model as text, for git; see `onnxgate init --git-diff`.")
@output_option(name_formats(ANSWER_FORMATS))
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
        return _print_textconv(models, outputs)
    if len(models) != 2:
        hint = "`onnxgate diff HEAD:models/net.onnx models/net.onnx`"
        raise UsageError(f"two models are compared, and {len(models)} were given", hint=hint)
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    with temporary_folder() as scratch:
        old, new = (
            resolve_model(name, Path(scratch, side), options) for name, side in zip(models, ("old", "new"), strict=True)
        )
        try:
            difference = compute_diff(old, new, __version__)
        except UnreadableModel as reason:
            raise UsageError(f"one of the models cannot be read: it is {reason}") from reason
    write_answer(
        sinks,
        difference,
        partial(model_diff.format_text, difference, quiet=options.quiet, verbose=options.verbose),
        partial(model_diff.format_markdown, difference, verbose=options.verbose),
    )
    return EXIT_STATUS[difference.verdict] if exit_code else 0


def _print_textconv(models: tuple[str, ...], outputs: tuple[str, ...]) -> int:
    if len(models) != 1 or outputs:
        raise UsageError("`--textconv` describes one file, as text, on standard output")
    path = Path(models[0])
    if not path.exists():
        raise UsageError(f"there is no `{path}`")
    try:
        lines = [escape_log_line(line) for line in describe_model(path)]
    except Exception as error:  # noqa: BLE001 - git aborts a whole log for one file that cannot be described
        lines = [escape_log_line(f"this model could not be described: {type(error).__name__}: {error}")]
    click.echo("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"), nl=False)
    return 0


def resolve_model(name: str, scratch: Path, options: CommonOptions) -> NamedModel:
    """Return the model of that name; one of a revision is written to `scratch`, with its data.

    Raises:
        UsageError: there is none, or it is not a model.
    """
    path = options.start / name
    if ":" in name and not path.exists():
        return _resolve_revision(name, scratch, options)
    try:
        wrong = detect_other_type(path)
    except OSError as error:
        raise UsageError(f"`{name}` cannot be read: {(error.strerror or str(error)).lower()}") from error
    if wrong:
        if wrong == "not there":
            raise UsageError(f"there is no `{name}`", hint="name a file, or REV:PATH for a file at a git revision")
        hint = f'git lfs pull --include "{name}"' if wrong == "a Git LFS pointer" else None
        raise UsageError(f"`{name}` is no model: it is {wrong}", hint=hint)
    return NamedModel(name, path)


def _resolve_revision(name: str, scratch: Path, options: CommonOptions) -> NamedModel:
    """Return a model of a revision; its path is from git's root, or from the start folder if it begins with a dot."""
    revision, _, path = name.partition(":")
    start = options.start.resolve()
    root = find_git_root(start)
    if root is None:
        raise UsageError(f"there is no `{name}`, and this is no git repository")
    commit = find_commit(root, revision) if revision else ""
    if not commit:
        raise UsageError(f"there is no `{name}`, and git knows no revision `{revision}` here")
    path_at_root = "/".join(PurePosixPath(path).parts)
    if path.startswith(("./", "../")):
        path_at_root = posixpath.normpath(f"/{start.relative_to(root).as_posix()}/{path}").lstrip("/")
    try:
        at = Revision(root, revision, commit, options.offline)
        written = write_model_at_revision(at, path_at_root, scratch)
        return NamedModel(name, written.path, written.view)
    except MissingAtRevisionError as reason:
        raise UsageError(reason.reason, hint=reason.hint or None) from reason
