"""`onnxgate init`: a repository joins."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from packaging.requirements import InvalidRequirement, Requirement

from onnxgate.cli import lock
from onnxgate.cli.shared.options import CommonOptions, common_options
from onnxgate.commands import generated_files
from onnxgate.commands.generated_files import (
    SuggestedRuntime,
    find_written_model,
    is_git_driver_set_up,
    set_up_git_driver,
    suggest_runtime,
)
from onnxgate.commands.repository_survey import ExportScript, RepositorySurvey, survey_repository
from onnxgate.core.errors import OnnxgateError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.text import pluralize
from onnxgate.project.config.loader import CONFIG_NAME, PYPROJECT, find_config

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
    requirement = None if runtime is None else _check_requirement(runtime)
    survey = survey_repository(options.start)
    if not survey.models and survey.untracked:
        hint = f"`git add {survey.untracked[0]}` first: the gate judges what is committed"
        raise UsageError("git tracks no `.onnx` file here", hint=hint)
    if not survey.models:
        raise UsageError("there is no `.onnx` file here", hint="run it in the folder that has the models")
    _print_action("found", _describe_contents(survey))
    interactive = not yes and sys.stdin.isatty()
    promise = _choose_runtime(survey, requirement, interactive)
    exported = _choose_exports(survey, interactive)
    shows_diff = _choose_git_diff(survey, git_diff, interactive)
    remaining = list(_write_files(survey, promise, exported, force))
    if shows_diff and survey.root is not None:
        models = _models_from_git_root(survey)
        remaining += set_up_git_driver(survey.root, models, _print_action, uses_lfs=survey.uses_lfs)
    remaining += ["write the lock: `onnxgate lock`"] if no_lock else _write_lock(survey, options)
    if len(exported) < len(survey.exports):
        remaining.append("let `check` export again from source: the comments in onnxgate.toml say how")
    click.echo("\nwhat remains")
    for text in (*remaining, "run the gate: `onnxgate check`", "commit what was written"):
        first, *rest = text.splitlines()
        for line in (f"  - {first}", *(f"    {line}" for line in rest)):
            click.echo(escape_log_line(line))


def _describe_contents(survey: RepositorySurvey) -> str:
    parts = [pluralize(len(survey.models), "model")]
    if survey.uses_lfs:
        absent = len(survey.models) - len(survey.facts)
        parts.append("Git LFS" if not absent else f"Git LFS ({absent} not fetched or not readable)")
    if survey.exports:
        paths = ", ".join(dict.fromkeys(export.path for export in survey.exports))
        parts.append(f"`torch.onnx.export` called in {paths}")
    if survey.untracked:
        parts.append(f"{pluralize(len(survey.untracked), 'model')} that git does not track, left out")
    return ", ".join(parts)


def _choose_runtime(survey: RepositorySurvey, runtime: str | None, interactive: bool) -> SuggestedRuntime:
    if runtime is not None:
        return SuggestedRuntime(runtime)
    chosen = suggest_runtime(survey)
    if not interactive:
        return chosen
    answer = click.prompt("Which runtimes do you promise?", default=chosen.runtime, value_proc=_check_requirement)
    return chosen if answer == chosen.runtime else SuggestedRuntime(answer)


def _check_requirement(runtime: str) -> str:
    try:
        Requirement(runtime)
    except InvalidRequirement as error:
        raise UsageError(f"`{runtime}` is no requirement", hint="write it as in `onnxruntime>=1.18,<2`") from error
    return runtime


def _choose_exports(survey: RepositorySurvey, interactive: bool) -> list[ExportScript]:
    """Return the scripts that `check` shall run. Only a person may agree to run project code."""
    chosen = []
    for script in survey.exports if interactive else ():
        model = find_written_model(survey, script)
        if model and script.command:
            question = escape_log_line(f"Shall `check` export {model} again with `{' '.join(script.command)}`?")
            chosen += [script] if click.confirm(question, default=False) else []
    return chosen


def _choose_git_diff(survey: RepositorySurvey, selected: bool | None, interactive: bool) -> bool:
    """Return if `git diff` shall describe models. Git is not configured without consent."""
    if selected is not None or survey.root is None or not interactive:
        return bool(selected) and survey.root is not None
    if is_git_driver_set_up(survey.root, _models_from_git_root(survey)):
        return True
    return click.confirm("Shall `git diff` show what changed in models?", default=True)


def _models_from_git_root(survey: RepositorySurvey) -> list[str]:
    """Return the paths of the models relative to git's root."""
    below = f"{survey.below_root}/" if survey.below_root else ""
    return [f"{below}{model}" for model in survey.models]


def _write_files(
    survey: RepositorySurvey, promise: SuggestedRuntime, exported: Sequence[ExportScript], force: bool
) -> Iterator[str]:
    """Write the files; yield what remains to do."""
    existing = find_config(survey.folder)
    if existing is not None and existing == survey.folder / PYPROJECT:
        _print_action("kept", f"{existing.name}, which has `[tool.onnxgate]`")
    else:
        _write_file(survey.folder, CONFIG_NAME, generated_files.render_config(survey, promise, exported), force)
    if survey.root is None:
        yield "this is no git repository: no workflow and no hooks were written"
        return
    _write_file(survey.root, WORKFLOW, generated_files.render_workflow(survey), force)
    entry = generated_files.render_hooks(survey)
    path = survey.root / HOOKS_CONFIG
    if not path.exists():
        path.write_text(f"repos:\n{entry}", encoding="utf-8", newline="\n")
        _print_action("wrote", HOOKS_CONFIG)
        yield "enable the hooks: `pre-commit install --hook-type pre-commit --hook-type pre-push`"
    elif "onnxgate" in path.read_text(encoding="utf-8", errors="replace"):
        _print_action("kept", f"{HOOKS_CONFIG}, which has hooks of onnxgate")
    else:
        _print_action("kept", HOOKS_CONFIG)
        yield f"add to {HOOKS_CONFIG}, below `repos:`:\n{entry}"


def _write_file(folder: Path, name: str, text: str, force: bool) -> None:
    path = folder / name
    if path.exists() and not force:
        same = path.read_text(encoding="utf-8", errors="replace") == text
        _print_action("kept", f"{name}, which is the same" if same else f"{name}; `--force` writes it anew")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
    _print_action("wrote", name)


def _write_lock(survey: RepositorySurvey, options: CommonOptions) -> Iterator[str]:
    """Write the lock as `onnxgate lock` does; yield what remains to do if that failed."""
    arguments = ["--config", str(find_config(survey.folder)), *(["--offline"] if options.offline else [])]
    try:
        with lock.command.make_context("lock", arguments) as context:
            lock.command.invoke(context)
    except OnnxgateError as error:
        yield "\n".join(
            (
                f"write the lock: `onnxgate lock`; now it could not: {error.message}",
                *(f"  {problem}" for problem in getattr(error, "problems", ())),
                *([f"  hint: {error.hint}"] if error.hint else ()),
            )
        )


def _print_action(action: str, subject: str) -> None:
    click.echo(escape_log_line(f"{action:6} {subject}"))
