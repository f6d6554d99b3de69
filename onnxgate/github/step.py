"""Read and validate the inputs of `action.yml`, and run the command."""

from __future__ import annotations

import glob
import io
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import IO, Literal, TypeVar, get_args

from onnxgate.core.errors import ERROR_FILE_VARIABLE, UsageError
from onnxgate.core.escape import escape_log_line, escape_unprintable
from onnxgate.core.findings import ALL_STAGES
from onnxgate.core.subprocesses import start_program
from onnxgate.gate.sharding import plan
from onnxgate.github.protection import COMMAND_FILES, StepGuard

EXIT_UNDECIDED = 3
UPGRADE = "upgrade"
"""Command of the action that previews `onnxgate lock --upgrade`."""
COMMANDS = ("check", "lock", "export", "plan", "merge", UPGRADE)
REPORTING_COMMANDS = ("check", "merge")
"""Commands that write a report."""
FAIL_ON_COMMANDS = (*REPORTING_COMMANDS, "lock", UPGRADE)
"""Commands that have the option `--fail-on`."""
STAGES = tuple(stage.value for stage in ALL_STAGES)
FAIL_ON = ("error", "warning", "never")
CommentMode = Literal["always", "on-failure", "never"]
COMMENT_MODES: tuple[CommentMode, ...] = get_args(CommentMode)
INPUT_NAMES = (
    *("command", "paths", "config", "working-directory", "against", "stages", "shard", "plan"),
    *("fail-on", "annotations", "summary", "html", "junit", "sarif", "sarif-category", "comment", "cache", "args"),
)
INPUT_DEFAULTS = {
    "command": "check",
    "working-directory": ".",
    "fail-on": "error",
    "annotations": "true",
    "summary": "true",
    "html": "false",
    "junit": "false",
    "sarif": "false",
    "comment": "never",
    "cache": "true",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The inputs of the action; paths and globs are relative to `folder`."""

    command: str
    paths: tuple[str, ...]
    config: str
    folder: Path
    against: str
    stages: tuple[str, ...]
    shard: str
    plan: str
    fail_on: str
    annotations: bool
    summary: bool
    html: bool
    junit: bool
    sarif: bool
    sarif_category: str
    comment: CommentMode
    cache: bool
    args: tuple[str, ...]
    directory: str = "."  # the input `working-directory`


class ResultFiles:
    """Paths of the output files of one run."""

    def __init__(self, folder: Path, shard: str = "") -> None:
        self.folder = folder
        self.shard = shard
        # The name contains the shard, so that one folder can contain the reports of several shards.
        self.report = folder / (f"onnxgate-{shard_suffix(shard)}.json" if shard else "report.json")
        self.plan = folder / "plan.json"
        self.annotations = folder / "annotations.txt"  # workflow commands
        self.summary = folder / "summary.md"
        self.html = folder / "onnxgate.html"
        self.junit = folder / "onnxgate-junit.xml"
        self.sarif = folder / "onnxgate.sarif"
        self.comment = folder / "comment.md"
        self.proposal = folder / "proposal.json"  # the new lock and the preview of `upgrade`
        self.error = folder / "error.json"  # the error that ended the command


def shard_suffix(shard: str) -> str:
    """Return a shard in the form used in file names, such as `2-of-4` for `2/4`."""
    return shard.replace("/", "-of-")


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """Read and validate the inputs of the action, which are environment variables.

    Raises:
        UsageError: an input is invalid, or the event is not supported.
    """
    if environment.get("GITHUB_EVENT_NAME") == "pull_request_target":
        raise UsageError(
            "the action does not support `pull_request_target`: code from the pull request could access secrets",
            hint="use `on: pull_request`; a read-only token is enough",
        )
    raw = {
        name: environment.get(input_variable(name), "").strip() or INPUT_DEFAULTS.get(name, "") for name in INPUT_NAMES
    }
    command = _check_choice("command", raw["command"], COMMANDS)
    folder = _find_folder(Path(environment.get("GITHUB_WORKSPACE", ".")), raw["working-directory"], command)
    lines = [line.strip() for line in raw["paths"].splitlines()]
    return _check_combination(
        Inputs(
            command=command,
            paths=tuple(dict.fromkeys(path for line in lines if line for path in _expand_glob(line, folder))),
            config=_reject_option("config", raw["config"]),
            folder=folder,
            against=_parse_against(raw["against"]),
            stages=tuple(_check_choice("stages", name, STAGES) for name in raw["stages"].replace(",", " ").split()),
            shard=_parse_shard(raw["shard"]),
            plan=_reject_option("plan", raw["plan"]),
            fail_on=_check_choice("fail-on", raw["fail-on"], FAIL_ON),
            annotations=_parse_flag("annotations", raw["annotations"]),
            summary=_parse_flag("summary", raw["summary"]),
            html=_parse_flag("html", raw["html"]),
            junit=_parse_flag("junit", raw["junit"]),
            sarif=_parse_flag("sarif", raw["sarif"]),
            sarif_category=_parse_category(raw["sarif-category"]),
            comment=_check_choice("comment", raw["comment"], COMMENT_MODES),
            cache=_parse_flag("cache", raw["cache"]),
            args=_split_args(raw["args"]),
            directory=raw["working-directory"],
        )
    )


def _find_folder(workspace: Path, directory: str, command: str) -> Path:
    """Return the folder to run in. Only `merge`, which reads reports, can run in an empty workspace."""
    if command != "merge" and not any(workspace.iterdir()):
        raise UsageError(
            "the workspace is empty", hint="check out the repository with `actions/checkout` before this step"
        )
    if not (workspace / directory).is_dir():
        raise UsageError(f"input `working-directory`: folder `{directory}` does not exist")
    return workspace / directory


def input_variable(name: str) -> str:
    """Return the name of the environment variable in which `action.yml` passes an input."""
    return "ONNXGATE_INPUT_" + name.upper().replace("-", "_")


def _check_combination(inputs: Inputs) -> Inputs:
    for name, value, commands in (
        ("against", inputs.against, ("check",)),
        ("stages", inputs.stages, ("check",)),
        ("shard", inputs.shard, ("check",)),
        ("html", inputs.html, REPORTING_COMMANDS),
        ("junit", inputs.junit, REPORTING_COMMANDS),
        ("sarif", inputs.sarif, REPORTING_COMMANDS),
        ("comment", inputs.comment != "never", REPORTING_COMMANDS),
    ):
        if value and inputs.command not in commands:
            allowed = " and ".join(f"`{command}`" for command in commands)
            raise UsageError(f"input `{name}`: only valid for {allowed}, not for `{inputs.command}`")
    if inputs.plan and not inputs.shard:
        raise UsageError("input `plan`: requires `shard`", hint="set the input `shard`")
    if inputs.sarif_category and not inputs.sarif:
        raise UsageError("input `sarif-category`: requires `sarif`", hint="set the input `sarif` to `true`")
    for name, value in (("comment", inputs.comment != "never"), ("html", inputs.html), ("junit", inputs.junit)):
        if value and inputs.shard:
            raise UsageError(
                f"input `{name}`: a single shard has no verdict", hint=f"set `{name}` for the `merge` command instead"
            )
    if inputs.command == "merge" and not inputs.paths:
        raise UsageError("input `paths`: required for `merge`", hint="set `paths` to the JSON reports of all shards")
    return inputs


Choice = TypeVar("Choice", bound=str)


def _check_choice(name: str, value: str, allowed: tuple[Choice, ...]) -> Choice:
    for choice in allowed:
        if choice == value:
            return choice
    hint = "use one of " + ", ".join(f"`{choice}`" for choice in allowed)
    raise UsageError(f"input `{name}`: unknown value `{value}`", hint=hint)


def _parse_flag(name: str, value: str) -> bool:
    return _check_choice(name, value, ("true", "false")) == "true"


def _reject_option(name: str, value: str) -> str:
    if value.startswith("-"):
        raise UsageError(f"input `{name}`: `{value}` looks like an option", hint="pass options in `args`")
    return value


def _parse_against(text: str) -> str:
    if not text.isprintable() or " " in text:
        raise UsageError(f"input `against`: `{text}` is not a git revision")
    return _reject_option("against", text)


def _parse_category(text: str) -> str:
    if not text.isprintable():
        raise UsageError(f"input `sarif-category`: `{escape_unprintable(text)}` contains unprintable characters")
    return text


def _parse_shard(text: str) -> str:
    try:
        return "{}/{}".format(*plan.parse_shard(text)) if text else ""
    except UsageError as error:
        raise UsageError(
            error.message.replace("`--shard` is", "input `shard`:", 1).replace("`--shard`", "input `shard`"),
            hint=error.hint,
        ) from error


def _expand_glob(pattern: str, folder: Path) -> list[str]:
    if (folder / pattern).exists() or not glob.has_magic(pattern):
        return [pattern]
    # Before Python 3.13, `Path.glob` does not match files for a trailing `**`.
    paths = sorted(Path(path).as_posix() for path in glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
    if not paths:
        raise UsageError(
            f"input `paths`: no file matches `{pattern}`", hint="globs are resolved relative to `working-directory`"
        )
    # A glob also matches folders without models, which `check` refuses.
    expanded = {parent.as_posix() for path in paths for parent in PurePath(path).parents}
    return [path for path in paths if path not in expanded and _is_file_or_has_models(folder / path)]


def _is_file_or_has_models(path: Path) -> bool:
    return not path.is_dir() or any(path.rglob("*.onnx"))


def _split_args(text: str) -> tuple[str, ...]:
    try:
        args = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"input `args`: invalid quoting: {str(error).lower()}") from error
    if "--" in args:
        raise UsageError("input `args`: `--` is not supported", hint="pass files in the input `paths`")
    return args


def build_arguments(inputs: Inputs, results: ResultFiles) -> list[str]:
    """Return the command-line arguments. `--` precedes the files, so that no file name is parsed as an option."""
    option_values = {
        "--config": inputs.config,
        "--against": inputs.against,
        "--stage": ",".join(inputs.stages),
        "--shard": inputs.shard,
        "--plan": inputs.plan,
    }
    options = [f"{name}={value}" for name, value in option_values.items() if value]
    command = inputs.command
    outputs: list[str] = []
    if inputs.command in REPORTING_COMMANDS:  # `merge` writes the other formats of a shard
        files = {
            "json": (results.report, True),
            "github": (results.annotations, inputs.annotations and not inputs.shard),
            "summary": (results.summary, inputs.summary and not inputs.shard),
            "html": (results.html, inputs.html),
            "junit": (results.junit, inputs.junit),
            "sarif": (results.sarif, inputs.sarif),
            "comment": (results.comment, inputs.comment != "never"),
        }
        outputs = ["text", *(f"{name}={path}" for name, (path, is_written) in files.items() if is_written)]
    if inputs.command == UPGRADE:
        command = "lock"
        is_selective = any(word.startswith("--upgrade") for word in inputs.args)
        options += ["--preview"] if is_selective else ["--upgrade", "--preview"]
        outputs = ["text", f"json={results.proposal}", *([f"markdown={results.summary}"] if inputs.summary else [])]
    output_arguments = [argument for output in outputs for argument in ("--output", output)]
    paths = ["--", *inputs.paths] if inputs.paths else []
    if inputs.command in FAIL_ON_COMMANDS:
        options += ["--fail-on", inputs.fail_on]
    if inputs.command == "plan":  # all shards get the same plan, so it can depend on this machine's costs
        options.append("--measured")
    return [command, *options, *output_arguments, *inputs.args, *paths]


@dataclass(frozen=True, slots=True)
class CommandRun:
    """Result of running onnxgate; `answered` is its standard output in lines."""

    status: int
    answered: tuple[str, ...] = ()
    attacks: tuple[str, ...] = ()  # how code of the repository interfered with the step


def run_command(inputs: Inputs, results: ResultFiles, environment: Mapping[str, str]) -> CommandRun:
    """Run the command, and copy its output to the log.

    All processes that it started have ended. The command does not pass if code of the repository interfered with the
    step.
    """
    command = [sys.executable, "-I", "-X", "utf8", "-m", "onnxgate.github.protection"]
    command += build_arguments(inputs, results)
    guard = StepGuard(environment)
    safe = {name: value for name, value in environment.items() if name not in COMMAND_FILES}
    answered: list[str] = []
    with start_program(
        command,
        environment={**safe, "NO_COLOR": "1", ERROR_FILE_VARIABLE: str(results.error)},
        folder=inputs.folder,
        stderr=subprocess.PIPE if inputs.command == "plan" else subprocess.STDOUT,
        bound="nothing",
    ) as process:
        assert process.stdin is not None
        process.stdin.close()
        aside = threading.Thread(target=_copy_to_log, args=(process.stderr, []))
        aside.start()
        _copy_to_log(process.stdout, answered)
        aside.join()
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    attacks = tuple(guard.finish())
    return CommandRun(status or (EXIT_UNDECIDED if attacks else 0), tuple(answered), attacks)


def _copy_to_log(stream: IO[bytes] | None, copy: list[str]) -> None:
    if stream is None:
        return
    with io.TextIOWrapper(stream, "utf-8", "replace") as lines:
        for line in lines:
            text = line.rstrip("\n")
            copy.append(text)
            print(escape_log_line(text), flush=True)
