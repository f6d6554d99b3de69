"""`onnxgate init`: a repository joins."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from packaging.requirements import InvalidRequirement, Requirement

from onnxgate.cli import lock
from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.commands.init import generated_files
from onnxgate.commands.init.generated_files import (
    SuggestedRuntime,
    find_written_model,
    is_git_driver_set_up,
    set_up_git_driver,
    suggest_runtime,
)
from onnxgate.commands.init.survey import survey_repository
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.formats.wording import pluralize
from onnxgate.project.config.discovery import CONFIG_NAME, PYPROJECT, find_config

if TYPE_CHECKING:
    from onnxgate.commands.init.survey import ExportScript, RepositorySurvey

WORKFLOW = ".github/workflows/onnxgate.yml"
HOOKS_CONFIG = ".pre-commit-config.yaml"


@click.command("init")
@click.option(
    "--runtime", metavar="REQUIREMENT", help="What to promise, such as 'onnxruntime>=1.18' (default: chosen)."
)
@click.option("--no-lock", is_flag=True, help="Do not resolve and write the lock.")
@click.option("--force", is_flag=True, help="Write the config and the workflow anew where they exist.")
@click.option(
    "--git-diff/--no-git-diff",
    default=None,
    help="Let `git diff` and `git log -p` show what changed in models (default: ask).",
)
@click.option("-y", "--yes", is_flag=True, help="Ask nothing; so it is where standard input is no terminal.")
@common_options
def command(
    runtime: str | None, no_lock: bool, force: bool, git_diff: bool | None, yes: bool, options: CommonOptions
) -> None:
    """Look at the repository and write onnxgate.toml, onnxgate.lock, a workflow and hook entries.

    What exists is kept, unless --force is given; an existing hook config is never rewritten. With --git-diff, git's
    attributes and this clone's git config are told who describes a model; every other line of them stays.
    """
    asked = None if runtime is None else _check_requirement(runtime)
    found = survey_repository(options.start)
    _refuse_without_models(found)
    _print_action("found", _describe_contents(found))
    asks = not yes and sys.stdin.isatty()
    promise = _choose_runtime(found, asked, asks)
    exported = _choose_exports(found, asks)
    shows = _wants_git_diff(found, git_diff, asks)
    written = (*_write_files(found, promise, exported, force), *_set_up_git_diff(found, wanted=shows))
    remains = [*written, *_write_lock(found, options, wanted=not no_lock)]
    _print_next_steps(found, remains, exported)


def _refuse_without_models(found: RepositorySurvey) -> None:
    if not found.models and found.untracked:
        hint = f"`git add {found.untracked[0]}` first: the gate judges what is committed"
        raise UsageError("git tracks no `.onnx` file here", hint=hint)
    if not found.models:
        raise UsageError("there is no `.onnx` file here", hint="run it in the folder that has the models")


def _describe_contents(found: RepositorySurvey) -> str:
    said = [pluralize(len(found.models), "model")]
    if found.uses_lfs:
        absent = len(found.models) - len(found.facts)
        said.append("Git LFS" if not absent else f"Git LFS ({absent} not fetched or not readable)")
    if found.exports:
        said.append(
            f"`torch.onnx.export` called in {', '.join(dict.fromkeys(export.path for export in found.exports))}"
        )
    if found.untracked:
        said.append(f"{pluralize(len(found.untracked), 'model')} that git does not track, left out")
    return ", ".join(said)


def _choose_runtime(found: RepositorySurvey, runtime: str | None, asks: bool) -> SuggestedRuntime:
    if runtime is not None:
        return SuggestedRuntime(runtime)
    chosen = suggest_runtime(found)
    if not asks:
        return chosen
    answer = click.prompt("Which runtimes do you promise?", default=chosen.runtime, value_proc=_check_requirement)
    return chosen if answer == chosen.runtime else SuggestedRuntime(answer)


def _check_requirement(runtime: str) -> str:
    try:
        Requirement(runtime)
    except InvalidRequirement as error:
        raise UsageError(f"`{runtime}` is no requirement", hint="write it as in `onnxruntime>=1.18,<2`") from error
    return runtime


def _choose_exports(found: RepositorySurvey, asks: bool) -> list[ExportScript]:
    """Return the scripts that `check` shall run. Only a person may agree to run project code."""
    chosen = []
    for script in found.exports if asks else ():
        model = find_written_model(found, script)
        if model and script.command:
            question = escape_log_line(f"Shall `check` export {model} again with `{' '.join(script.command)}`?")
            chosen += [script] if click.confirm(question, default=False) else []
    return chosen


def _wants_git_diff(found: RepositorySurvey, wanted: bool | None, asks: bool) -> bool:
    """Return if `git diff` shall describe models. Git is not configured without consent."""
    if wanted is not None or found.root is None or not asks:
        return bool(wanted) and found.root is not None
    if is_git_driver_set_up(found.root, _models_from_git_root(found)):
        return True
    return click.confirm("Shall `git diff` show what changed in models?", default=True)


def _models_from_git_root(found: RepositorySurvey) -> list[str]:
    """Return the paths of the models relative to git's root."""
    below = f"{found.below_root}/" if found.below_root else ""
    return [f"{below}{model}" for model in found.models]


def _set_up_git_diff(found: RepositorySurvey, *, wanted: bool) -> Iterator[str]:
    if wanted and found.root is not None:
        yield from set_up_git_driver(found.root, _models_from_git_root(found), _print_action, uses_lfs=found.uses_lfs)


def _write_files(
    found: RepositorySurvey, promise: SuggestedRuntime, exported: Sequence[ExportScript], force: bool
) -> Iterator[str]:
    """Write the files; yield what remains to do."""
    _write_config(found, generated_files.render_config(found, promise, exported), force)
    if found.root is None:
        yield "this is no git repository: no workflow and no hooks were written"
        return
    _write_file(found.root, WORKFLOW, generated_files.render_workflow(found), force)
    yield from _write_hooks(found.root, generated_files.render_hooks(found))


def _write_config(found: RepositorySurvey, text: str, force: bool) -> None:
    existing = find_config(found.folder)
    if existing is not None and existing == found.folder / PYPROJECT:
        _print_action("kept", f"{existing.name}, which has `[tool.onnxgate]`")
    else:
        _write_file(found.folder, CONFIG_NAME, text, force)


def _write_file(folder: Path, name: str, text: str, force: bool) -> None:
    path = folder / name
    if path.exists() and not force:
        same = path.read_text(encoding="utf-8", errors="replace") == text
        _print_action("kept", f"{name}, which is the same" if same else f"{name}; `--force` writes it anew")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    _print_action("wrote", name)


def _write_hooks(root: Path, entry: str) -> Iterator[str]:
    path = root / HOOKS_CONFIG
    if not path.exists():
        path.write_text(f"repos:\n{entry}", encoding="utf-8", newline="\n")
        _print_action("wrote", HOOKS_CONFIG)
        yield "enable the hooks: `pre-commit install --hook-type pre-commit --hook-type pre-push`"
    elif "onnxgate" in path.read_text(encoding="utf-8", errors="replace"):
        _print_action("kept", f"{HOOKS_CONFIG}, which has hooks of onnxgate")
    else:
        _print_action("kept", HOOKS_CONFIG)
        yield f"add to {HOOKS_CONFIG}, below `repos:`:\n{entry}"


def _write_lock(found: RepositorySurvey, options: CommonOptions, *, wanted: bool) -> Iterator[str]:
    """Write the lock as `onnxgate lock` does; yield what remains to do if that failed."""
    if not wanted:
        yield "write the lock: `onnxgate lock`"
        return

    arguments = ["--config", str(find_config(found.folder)), *(["--offline"] if options.offline else [])]
    try:
        with lock.command.make_context("lock", arguments) as context:
            lock.command.invoke(context)
    except OnnxgateError as error:
        problems = getattr(error, "problems", ())
        said = [
            f"write the lock: `onnxgate lock`; now it could not: {error.message}",
            *(f"  {problem}" for problem in problems),
        ]
        yield "\n".join((*said, *([f"  hint: {error.hint}"] if error.hint else ())))


def _print_next_steps(found: RepositorySurvey, remains: Sequence[str], exported: Sequence[ExportScript]) -> None:
    left = list(remains)
    if len(exported) < len(found.exports):
        left.append("let `check` export again from source: the comments in onnxgate.toml say how")
    left.append("run the gate: `onnxgate check`")
    left.append("commit what was written")
    click.echo("\nwhat remains")
    for text in left:
        first, *rest = text.splitlines()
        _print_line(f"  - {first}")
        for line in rest:
            _print_line(f"    {line}")


def _print_action(what: str, about: str) -> None:
    _print_line(f"{what:6} {about}")


def _print_line(line: str) -> None:
    click.echo(escape_log_line(line))
