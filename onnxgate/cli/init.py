"""`onnxgate init`: sets up a repository."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import click

from onnxgate.cli import lock
from onnxgate.cli.shared.hint_commands import set_command_folder
from onnxgate.cli.shared.options import CommonOptions, common_options_without
from onnxgate.cli.shared.terminal import print_wrapped
from onnxgate.commands.init import generated_files, git_driver
from onnxgate.commands.init.existing_files import align_hooks, align_step, find_checked_folders
from onnxgate.commands.init.export_scripts import ExportScript
from onnxgate.commands.init.generated_files import find_written_model
from onnxgate.commands.init.git_driver import is_git_driver_set_up, set_up_git_driver
from onnxgate.commands.init.repository_survey import RepositorySurvey, survey_repository
from onnxgate.commands.init.targets import (
    SuggestedTarget,
    describe_prediction,
    find_uncovered_runtimes,
    list_engines,
    name_target,
    predict_models,
    suggest_targets,
)
from onnxgate.core.errors import OnnxgateError, StorageError, UsageError
from onnxgate.core.escape import escape_log_line
from onnxgate.core.files import follow_links
from onnxgate.core.text import join_phrases, pluralize, quote_path
from onnxgate.project.config.globs import is_glob
from onnxgate.project.config.loader import CONFIG_NAME, PYPROJECT, find_config, load_config
from onnxgate.project.config.project import LOCK_NAME, Project
from onnxgate.project.engines import requirement_problem
from onnxgate.project.lock.index import UvIndex

WORKFLOW = ".github/workflows/onnxgate.yml"
HOOKS_CONFIG = ".pre-commit-config.yaml"
HOOKS_STEP = "install the hooks: `pre-commit install -t pre-commit -t pre-push`"
ACTION_WIDTH = 6
MAX_NAMED = 3
"""Maximum number of files or models to list in one line."""


@click.command("init")
@click.option(
    "--runtime",
    metavar="REQUIREMENT",
    help="Runtime to support, such as 'onnxruntime>=1.18' (default: the runtime that the repository deploys).",
)
@click.option("--no-lock", is_flag=True, help="Do not write the lock.")
@click.option("--no-workflow", is_flag=True, help="Do not write the GitHub Actions workflow.")
@click.option("--no-hooks", is_flag=True, help="Do not write the pre-commit hooks.")
@click.option("--force", is_flag=True, help="Overwrite an existing config and workflow.")
@click.option(
    "--git-diff/--no-git-diff",
    default=None,
    help="Set up `git diff` to show model changes as text (default: ask).",
)
@click.option("-y", "--yes", is_flag=True, help="Do not prompt (default when stdin is not a terminal).")
@common_options_without("config", "fail_on", "no_ignores", "quiet", "verbosity")
def command(
    runtime: str | None,
    no_lock: bool,
    no_workflow: bool,
    no_hooks: bool,
    force: bool,
    git_diff: bool | None,
    yes: bool,
    options: CommonOptions,
) -> None:
    """Write a config, a lock, a workflow and pre-commit hooks for this repository.

    onnxgate searches requirements files, pyproject.toml, setup.cfg, setup.py, lock files, conda's environment.yml,
    Dockerfiles and package.json for versions of ONNX Runtime, OpenVINO and tract. The config targets the declared
    releases, or the newest four minor releases of ONNX Runtime if no file declares any. Development dependencies, such
    as those in requirements-dev.txt, are used only if no other file declares a runtime. Existing files are kept.
    """
    if runtime is not None:
        _check_requirement(runtime)
    set_command_folder(options.start)
    survey = survey_repository(options.start)
    _require_models(survey)
    before = _read_committed_files(survey)
    interactive = not yes and sys.stdin.isatty()
    kept = _find_kept_config(survey, force)
    configured = None if kept is None else load_config(find_config(survey.folder) or survey.folder / CONFIG_NAME)
    targets, exported = [], []
    _print_models(survey, is_new=kept is None)
    if kept is None:
        _print_survey(survey)
        targets = _choose_targets(survey, runtime, options, interactive=interactive, use_index=not no_lock)
        for note in (note for target in targets for note in target.notes):
            _print_action("note", note)
        exported = _choose_exports(survey, interactive)
    describes_diffs = _choose_git_diff(survey, git_diff, interactive)
    if kept is None:
        steps = list(_write_config(survey, targets, exported, force))
    else:
        steps = []
        _print_action("kept", kept)
    if configured is not None:
        _print_uncovered_runtimes(survey, configured)
    if survey.root is not None:
        steps += [] if no_workflow else _write_workflow(survey, survey.root, force)
        steps += [] if no_hooks else _write_hooks(survey, survey.root)
        if describes_diffs:
            models = _models_from_git_root(survey)
            steps += set_up_git_driver(survey.root, models, _print_action, uses_lfs=survey.uses_lfs)
    elif not (no_workflow and no_hooks):
        _print_action("skip", "workflow and hooks: this folder is not in a git repository")
    has_lock = kept is not None and (survey.folder / LOCK_NAME).exists()
    lock_step = [] if has_lock else ["write the lock: `onnxgate lock`"]
    if survey.pointers:
        steps = [f"fetch the models: `{_lfs_command(survey)}`", *lock_step, *steps]
    else:
        steps += lock_step if no_lock else _write_lock(survey, options)
    steps += _suggest_settings(survey, exported) if kept is None else []
    steps.append("check the models: `onnxgate check`")
    if survey.root is not None and _read_committed_files(survey) != before:
        steps.append("commit the new files")
    _print_steps(steps)


def _print_steps(steps: Sequence[str]) -> None:
    """Print the steps. Lines to paste, which follow a blank line in a step, keep their columns."""
    click.echo("\nNext steps:")
    for step in steps:
        text, _, pasted = step.partition("\n\n")
        first, *rest = text.splitlines()
        print_wrapped([f"  - {first}", *(f"    {line}" for line in rest)])
        if pasted:
            click.echo("\n".join(("", *map(escape_log_line, pasted.splitlines()), "")))


def _find_kept_config(survey: RepositorySurvey, force: bool) -> str | None:
    """Return a note that the existing config is kept; None if `init` writes a config."""
    existing = find_config(survey.folder)
    if existing is not None and existing == survey.folder / PYPROJECT:
        return f"{existing.name} (contains `[tool.onnxgate]`)"
    if (survey.folder / CONFIG_NAME).is_file() and not force:
        return f"{CONFIG_NAME}; use `--force` to overwrite it"
    return None


def _read_committed_files(survey: RepositorySurvey) -> list[bytes | None]:
    """Return the current content of each file that `init` may write into the repository; None for missing files."""
    root = survey.root or survey.folder
    files = [survey.folder / CONFIG_NAME, survey.folder / LOCK_NAME]
    files += [root / name for name in (WORKFLOW, HOOKS_CONFIG, git_driver.ATTRIBUTES)]
    return [file.read_bytes() if file.is_file() else None for file in files]


def _suggest_settings(survey: RepositorySurvey, exported: Sequence[ExportScript]) -> Iterator[str]:
    """Yield suggestions for optional changes to the new config."""
    if survey.submodules:
        folders = join_phrases([f"`{folder}`" for folder in survey.submodules], MAX_NAMED)
        selected = [PurePosixPath(model).parts[0] for model in survey.models]
        selected = sorted({*selected, *survey.submodules})
        if len(selected) > MAX_NAMED + 1 or any(map(is_glob, selected)):
            selected = ["**/*.onnx"]
        setting = f"models = [{', '.join(map(generated_files.quote, selected))}]"
        yield (
            f"optional: to check the models in {folders}, set `{setting}` in {CONFIG_NAME}, run `onnxgate lock`, and "
            "add `submodules: true` to `actions/checkout` in the workflow"
        )
    for builder, script in {script.builder: script for script in survey.exports if script.builder}.items():
        setting = f"source = {generated_files.quote(generated_files.name_source_function(script))}"
        yield (
            f"optional: set `{setting}` in {CONFIG_NAME}, so that `check` compares the model with PyTorch, and add "
            f"this function to {builder.rpartition(':')[0]}:\n\n{generated_files.render_source_function(script)}"
        )
    for script in _scripts_without_guard(survey):
        yield f"optional: to compare the model with PyTorch, {generated_files.describe_needed_guard(script)}"
    if len(exported) < len(survey.exports):
        yield f"optional: let `check` export models from source; see the comments in {CONFIG_NAME}"


def _scripts_without_guard(survey: RepositorySurvey) -> list[ExportScript]:
    """Return one script for each file that exports a model when it is imported."""
    return [*{script.exporting_file: script for script in survey.exports if script.exporting_file}.values()]


def _require_models(survey: RepositorySurvey) -> None:
    if survey.models:
        return
    if survey.nested_configs:
        configs = join_phrases([f"`{config}`" for config in survey.nested_configs], MAX_NAMED)
        verb = "covers" if len(survey.nested_configs) == 1 else "cover"
        raise UsageError(
            f"{configs} already {verb} all models", hint="run `onnxgate check` in the folder of each config"
        )
    if survey.untracked:
        hint = f"run `git add {quote_path(survey.untracked[0])}`"
        raise UsageError("git does not track any `.onnx` file in this folder", hint=hint)
    for submodule in survey.submodules:
        hint = f"run `onnxgate init --directory {shlex.quote(submodule)}`"
        raise UsageError(f"all models are in the git submodule `{submodule}`", hint=hint)
    raise UsageError(
        "there is no `.onnx` file in this folder", hint="run `onnxgate init` in the folder that contains the models"
    )


def _print_models(survey: RepositorySurvey, *, is_new: bool) -> None:
    """Print the number of models. Models that a new config would skip are counted only if `is_new`."""
    notes = []
    if survey.uses_lfs or survey.pointers:
        notes.append(f"Git LFS, {len(survey.pointers)} not fetched" if survey.pointers else "Git LFS")
    if unreadable := len(survey.models) - len(survey.pointers) - len(survey.facts):
        notes.append(f"{unreadable} not readable")
    if is_new:
        notes += [f"{count} more in the git submodule `{folder}`" for folder, count in survey.submodules.items()]
    if is_new and survey.untracked:
        notes.append(f"{len(survey.untracked)} more not tracked by git")
    _print_action("found", pluralize(len(survey.models), "model") + (f" ({'; '.join(notes)})" if notes else ""))


def _print_survey(survey: RepositorySurvey) -> None:
    if survey.exports:
        paths = list(dict.fromkeys(export.path for export in survey.exports))
        _print_action("found", f"`torch.onnx.export` in {join_phrases(paths, MAX_NAMED)}")
    runtimes = survey.deployments.runtimes
    # A constraint that narrows several ranges occurs once for each.
    for place in dict.fromkeys(f"`{runtime.declaration}` in {runtime.file}:{runtime.line}" for runtime in runtimes):
        _print_action("found", place)
    for runtime in survey.deployments.ignored:
        _print_action("skip", f"{runtime.file}:{runtime.line}: `{runtime.declaration}` is a development dependency")
    for problem in survey.deployments.problems:
        _print_action("skip", problem)
    for config in survey.nested_configs:
        _print_action("found", f"{config}; its models are excluded here")
    if survey.parent_config:
        _print_action("found", f"{survey.parent_config}, which also matches these models")


def _print_uncovered_runtimes(survey: RepositorySurvey, configured: Project) -> None:
    """Print the deployed runtimes that the targets of the existing config do not cover."""
    targets = [target.runtime for target in configured.config.targets.values()]
    for runtime in find_uncovered_runtimes(survey.deployments.runtimes, targets):
        place = f"`{runtime.declaration}` in {runtime.file}:{runtime.line}"
        _print_action("note", f"{place} selects releases that no target in the config covers")


def _choose_targets(
    survey: RepositorySurvey, runtime: str | None, options: CommonOptions, *, interactive: bool, use_index: bool
) -> list[SuggestedTarget]:
    index = UvIndex(options.offline) if use_index else None
    if runtime is not None:
        return [_describe_target(runtime, survey, options, index)]
    deployed = list_engines(survey.deployments.runtimes)
    predictions = predict_models(survey.folder, [facts.path for facts in survey.facts], options.jobs, deployed)
    targets = suggest_targets(
        survey.deployments.runtimes, predictions, index, models=survey.models, pointers=survey.pointers
    )
    if not survey.deployments.runtimes:
        _print_missing_declaration(survey, targets[0].runtime)
    if not interactive or len(targets) > 1:
        return targets
    answer = click.prompt("Runtime to support", default=targets[0].runtime, value_proc=_check_requirement)
    if answer == targets[0].runtime:
        return targets
    return [_describe_target(answer, survey, options, index)]


def _describe_target(
    requirement: str, survey: RepositorySurvey, options: CommonOptions, index: UvIndex | None
) -> SuggestedTarget:
    """Return the target for a runtime that the user names."""
    (engine,) = list_engines((), [requirement])
    predictions = predict_models(survey.folder, [facts.path for facts in survey.facts], options.jobs, [engine])
    comments = describe_prediction(requirement, predictions, index, survey.pointers)
    return SuggestedTarget(name_target(engine), requirement, comments)


def _print_missing_declaration(survey: RepositorySurvey, runtime: str) -> None:
    other = "other " if survey.deployments.problems else ""
    engines = "ONNX Runtime, OpenVINO or tract"
    _print_action("note", f"no {other}supported file requires {engines}; the config targets `{runtime}`")
    if survey.mentions:
        files = join_phrases([f"`{file}`" for file in survey.mentions], MAX_NAMED)
        names = join_phrases([f"`{it}`" for it in sorted({it for found in survey.mentions.values() for it in found})])
        mention, are = ("mentions", "is") if len(survey.mentions) == 1 else ("mention", "are")
        _print_action("note", f"{files} {mention} {names} but {are} not read; if the target is wrong, set `--runtime`")


def _check_requirement(runtime: str) -> str:
    if requirement_problem(runtime):
        raise UsageError(f"`{runtime}` is not a valid requirement", hint="use a form such as `onnxruntime>=1.18,<2`")
    return runtime


def _choose_exports(survey: RepositorySurvey, interactive: bool) -> list[ExportScript]:
    """Ask for each export script whether `check` may run it, and return the accepted scripts."""
    chosen = []
    for script in survey.exports if interactive else ():
        model = find_written_model(survey, script)
        if model and (script.source or script.command):
            source = script.source or " ".join(script.command)
            print_wrapped([f"`onnxgate check` can export {model} with `{source}` and compare the result."])
            chosen += [script] if click.confirm("Enable this?", default=False) else []
    return chosen


def _choose_git_diff(survey: RepositorySurvey, selected: bool | None, interactive: bool) -> bool:
    """Return whether to set up `git diff` for models; if no option specifies it, ask the user."""
    if selected is not None or survey.root is None or not interactive:
        return bool(selected) and survey.root is not None
    if is_git_driver_set_up(survey.root, _models_from_git_root(survey)):
        return True
    return click.confirm("Show model changes as text in `git diff`?", default=True)


def _models_from_git_root(survey: RepositorySurvey) -> list[str]:
    return [_path_from_git_root(survey, model) for model in survey.models]


def _path_from_git_root(survey: RepositorySurvey, path: str) -> str:
    return f"{survey.below_root}/{path}" if survey.below_root else path


def _lfs_command(survey: RepositorySurvey) -> str:
    paths = [_path_from_git_root(survey, model) for model in survey.pointers]
    return f'git lfs pull --include "{",".join(paths) if len(paths) <= MAX_NAMED else "*.onnx"}"'


def _write_config(
    survey: RepositorySurvey, targets: Sequence[SuggestedTarget], exported: Sequence[ExportScript], force: bool
) -> Iterator[str]:
    _write_file(survey.folder, CONFIG_NAME, generated_files.render_config(survey, targets, exported), force)
    if survey.parent_config:
        folder = Path(survey.folder, survey.parent_config).resolve().parent
        pattern = generated_files.quote(survey.folder.relative_to(folder).as_posix())
        yield (
            f"add `exclude = [{pattern}]` to {survey.parent_config}; otherwise checks with that config include these "
            "models"
        )


def _write_workflow(survey: RepositorySurvey, root: Path, force: bool) -> Iterator[str]:
    path = root / WORKFLOW
    if problem := _describe_file_problem(path):
        _print_action("skip", f"{WORKFLOW}: {problem}")
        return
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    is_checked = survey.below_root in find_checked_folders(text)
    if text and survey.below_root and is_checked:
        _print_action("kept", f"{WORKFLOW} (contains this folder)")
    elif text and not is_checked and (survey.below_root or not force):  # the workflow of another project
        _print_action("kept", WORKFLOW)
        step = align_step(generated_files.render_workflow_step(survey), text)
        yield f"add this step to {WORKFLOW}, at the end of `steps:`:\n\n{step}"
        if not re.search(r"(?m)^[^#\n]*\bfetch-depth: *(?:\$|[\"']?(?:0|[2-9]|[1-9]\d+)\b)", text):
            yield f"set `fetch-depth: 2` for `actions/checkout` in {WORKFLOW}, to compare with the base"
    else:
        text = generated_files.render_workflow(survey)
        _write_file(root, WORKFLOW, text, force)
    for folder in survey.nested_folders:
        if _path_from_git_root(survey, folder) not in find_checked_folders(text):
            command = f"onnxgate init --directory {shlex.quote(folder)}"
            yield f"also check {folder} in the workflow: `{command}` prints the step to add"


def _write_hooks(survey: RepositorySurvey, root: Path) -> Iterator[str]:
    """Write `.pre-commit-config.yaml` unless it exists. An existing file would lose its comments and layout."""
    entry = generated_files.render_hooks(survey)
    path = root / HOOKS_CONFIG
    if problem := _describe_file_problem(path):
        _print_action("skip", f"{HOOKS_CONFIG}: {problem}")
        return
    if not path.exists():
        follow_links(path).write_text(f"repos:\n{entry}", encoding="utf-8", newline="\n")
        _print_action("wrote", HOOKS_CONFIG)
        yield HOOKS_STEP
        return
    text = path.read_text(encoding="utf-8", errors="replace")
    if survey.below_root in find_checked_folders(text):
        _print_action("kept", f"{HOOKS_CONFIG} (contains onnxgate hooks)")
    else:
        _print_action("kept", HOOKS_CONFIG)
        if re.search("(?m)^repos:", text):
            yield f"add these hooks to {HOOKS_CONFIG}, at the end of `repos:`:\n\n{align_hooks(entry, text)}"
        else:
            yield f"add these hooks to {HOOKS_CONFIG}:\n\nrepos:\n{entry}"
        yield HOOKS_STEP


def _describe_file_problem(path: Path) -> str:
    """Return the reason why a file cannot be written; "" if it is a regular file or does not exist."""
    existing = next(folder for folder in path.parents if folder.exists() or folder.is_symlink())
    if not existing.is_dir():
        return f"`{existing.name}` is not a directory"
    if path.is_file():
        return ""
    if path.is_dir():
        return "is a directory"
    if path.exists():
        return "not a regular file"
    return "broken symbolic link" if path.is_symlink() else ""


def _write_file(folder: Path, name: str, text: str, force: bool) -> None:
    path = folder / name
    if problem := _describe_file_problem(path):
        raise StorageError(f"`{name}` cannot be written: {problem}", hint=f"rename or remove `{name}`")
    if path.exists() and not force:
        same = path.read_text(encoding="utf-8", errors="replace") == text
        _print_action("kept", f"{name} (unchanged)" if same else f"{name}; use `--force` to overwrite it")
        return
    path = follow_links(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise StorageError(f"`{name}` cannot be written: {(error.strerror or str(error)).lower()}") from error
    _print_action("wrote", name)


def _write_lock(survey: RepositorySurvey, options: CommonOptions) -> Iterator[str]:
    """Write the lock as `onnxgate lock` does. If that fails, yield the command to run later and the error."""
    arguments = ["--config", str(find_config(survey.folder)), *(["--offline"] if options.offline else [])]
    try:
        with lock.command.make_context("lock", arguments) as context:
            lock.command.invoke(context)
    except OnnxgateError as error:
        problems = getattr(error, "problems", ())
        details = [*(f"  {problem}" for problem in problems), *([f"  hint: {error.hint}"] if error.hint else ())]
        yield "\n".join((f"write the lock: `onnxgate lock` (the first attempt failed: {error.message})", *details))


def _print_action(action: str, subject: str) -> None:
    print_wrapped([f"{action:{ACTION_WIDTH}} {subject}"], ACTION_WIDTH + 1)
