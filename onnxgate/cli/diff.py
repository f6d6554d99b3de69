"""`onnxgate diff`: compares two models."""

from __future__ import annotations

import posixpath
from functools import partial
from pathlib import Path, PurePosixPath

import click

from onnxgate import __version__
from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.cli.shared.options import (
    ANSWER_FORMATS,
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
)
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.core.errors import UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import temporary_folder
from onnxgate.core.text import join_command
from onnxgate.formats import model_diff
from onnxgate.model.diff.model_diff import NamedModel, compute_diff
from onnxgate.model.diff.result import Verdict
from onnxgate.model.diff.text_description import describe_model
from onnxgate.model.reading.file_format import UnreadableModel, detect_other_type
from onnxgate.project.git.repository import find_commit, find_git_root, lfs_pull_command, read_git_output
from onnxgate.project.git.revisions import MissingAtRevisionError, Revision, write_model_at_revision

EXIT_STATUS: dict[Verdict, int] = {"identical": 0, "same": 0, "different": 1, "undecided": 3}


@click.command("diff")
@click.argument("models", nargs=-1, metavar="OLD NEW")
@click.option(
    "--exit-code", is_flag=True, help="Exit with status 1 if the models differ, or 3 if the comparison is incomplete."
)
@click.option("--textconv", is_flag=True, help="Print one model as text, for git (see `onnxgate init --git-diff`).")
@output_option(name_formats(ANSWER_FORMATS))
@common_options_without("config", "jobs", "fail_on", "no_ignores")
def command(
    models: tuple[str, ...], exit_code: bool, textconv: bool, outputs: tuple[str, ...], options: CommonOptions
) -> int:
    """Compare the models OLD and NEW: interface, version fields, operators, nodes, weights and files.

    OLD and NEW are files, or REV:PATH for a file at a git revision. PATH is relative to the root of the repository or,
    if it begins with `./`, to the current folder (see `--directory`). Git LFS content and external data are fetched.
    Renamed nodes and weights do not count as differences.

    Exit status: 0, even if the models differ (unless `--exit-code` is given); 2 if OLD or NEW is not a model.
    """
    if textconv:
        return _print_textconv(models, outputs, exit_code)
    if len(models) != 2:
        raise UsageError(f"expected 2 models, got {len(models)}", hint=f"run `{_suggest_command(models, options)}`")
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    with temporary_folder() as scratch:
        old, new = (
            resolve_model(name, Path(scratch, side), options) for name, side in zip(models, ("old", "new"), strict=True)
        )
        try:
            difference = compute_diff(old, new, __version__)
        except UnreadableModel as reason:
            raise UsageError(f"one of the models cannot be read: {reason}") from reason
    write_answer(
        sinks,
        difference,
        partial(model_diff.format_text, difference, quiet=options.quiet, verbose=options.verbose),
        partial(model_diff.format_markdown, difference, verbose=options.verbose),
    )
    return EXIT_STATUS[difference.verdict] if exit_code else 0


def _suggest_command(models: tuple[str, ...], options: CommonOptions) -> str:
    """Return an example command. If one committed model is given, it is compared with its version in `HEAD`."""
    name = models[0] if len(models) == 1 else "new.onnx"
    is_committed = read_git_output(options.start, "cat-file", "-e", f"HEAD:./{name}") is not None
    return join_command(("onnxgate", "diff", f"HEAD:./{name}" if is_committed else "old.onnx"), name)


def _print_textconv(models: tuple[str, ...], outputs: tuple[str, ...], exit_code: bool) -> int:
    if len(models) != 1 or outputs or exit_code:
        raise UsageError("`--textconv` takes one file and cannot be combined with `--output` or `--exit-code`")
    path = Path(models[0])
    if not path.exists() and not path.is_symlink():
        raise UsageError(f"`{path}` does not exist")
    try:
        lines = [escape_log_line(line) for line in describe_model(path)]
    except Exception as error:  # noqa: BLE001 - a failure would abort `git log`
        lines = [escape_log_line(f"cannot describe this model: {type(error).__name__}: {error}")]
    click.echo("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"), nl=False)
    return 0


def resolve_model(name: str, scratch: Path, options: CommonOptions) -> NamedModel:
    """Return the model `name`: a file, or `REV:PATH`. A model at a git revision is first written to `scratch`.

    Raises:
        UsageError: the file does not exist, or is not a model.
    """
    path = options.start / name
    if ":" in name and not path.exists():
        return _resolve_revision(name, scratch, options)
    if not path.exists() and not path.is_symlink():
        raise UsageError(f"`{name}` does not exist", hint="specify a file, or `REV:PATH` for a file at a git revision")
    try:
        wrong = detect_other_type(path)
    except OSError as error:
        raise UsageError(f"`{name}` cannot be read: {(error.strerror or str(error)).lower()}") from error
    if wrong:
        set_command_folder(path.parent)
        hint = f"run `{lfs_pull_command(path)}`" if wrong == "a Git LFS pointer" else None
        raise UsageError(f"`{name}` cannot be read as a model: it is {wrong}", hint=hint)
    return NamedModel(name, path)


def _resolve_revision(name: str, scratch: Path, options: CommonOptions) -> NamedModel:
    """Write the model `REV:PATH` to `scratch` and return it.

    Paths that begin with `./` or `../` are relative to the folder in `options`, others to the root of the repository.
    """
    revision, _, path = name.partition(":")
    start = options.start.resolve()
    root = find_git_root(start)
    if root is None:
        raise UsageError(f"`{name}` does not exist, and this folder is not in a git repository")
    commit = find_commit(root, revision) if revision else ""
    if not commit:
        raise UsageError(f"`{name}` does not exist, and git has no revision `{revision}`")
    path_at_root = "/".join(PurePosixPath(path).parts)
    if path.startswith(("./", "../")):
        path_at_root = posixpath.normpath(f"/{start.relative_to(root).as_posix()}/{path}").lstrip("/")
    try:
        at = Revision(root, revision, commit, options.offline)
        written = write_model_at_revision(at, path_at_root, scratch)
        return NamedModel(name, written.path, written.view)
    except MissingAtRevisionError as reason:
        raise UsageError(reason.reason, hint=reason.hint or None) from reason
