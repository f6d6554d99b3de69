"""The inputs of `action.yml`, read from the environment, each one checked, and the arguments made of them."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgate.errors import UsageError
from onnxgate.findings import ALL_STAGES

COMMANDS = ("check", "lock", "export")
LATER = ("plan", "merge")
STAGES = tuple(stage.value for stage in ALL_STAGES)
FAIL_ON = ("error", "warning", "never")
NAMES = ("command", "paths", "config", "working-directory", "stages", "fail-on", "summary", "args")


@dataclass(frozen=True, slots=True)
class Inputs:
    """The action's inputs; `folder` is what paths and globs are relative to."""

    command: str
    paths: tuple[str, ...]
    config: str
    folder: Path
    stages: tuple[str, ...]
    fail_on: str
    summary: bool
    args: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Results:
    """Where one run of `check` leaves what the next steps need."""

    report: Path
    annotations: Path
    summary: Path


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """The inputs of the action.

    Raises: UsageError.
    """
    _refuse_pull_request_target(environment)
    given = {name: environment.get(variable(name), "").strip() for name in NAMES}
    command = _command(given["command"] or "check")
    folder = _folder(Path(environment.get("GITHUB_WORKSPACE", ".")), given["working-directory"])
    return Inputs(
        command=command,
        paths=_paths(given["paths"], folder),
        config=given["config"],
        folder=folder,
        stages=_stages(given["stages"], command),
        fail_on=_one_of("fail-on", given["fail-on"] or "error", FAIL_ON),
        summary=_one_of("summary", given["summary"] or "true", ("true", "false")) == "true",
        args=_args(given["args"]),
    )


def variable(name: str) -> str:
    """The environment variable that `action.yml` passes an input in."""
    return "ONNXGATE_INPUT_" + name.upper().replace("-", "_")


def _refuse_pull_request_target(environment: Mapping[str, str]) -> None:
    if environment.get("GITHUB_EVENT_NAME") == "pull_request_target":
        raise UsageError(
            "the action refuses `pull_request_target`: it runs the pull request's own code, with secrets at hand",
            hint="use `on: pull_request`; a read-only token is enough",
        )


def _command(name: str) -> str:
    if name in LATER:
        raise UsageError(f"input `command`: `{name}` is not available in this release", hint=_choices(COMMANDS))
    return _one_of("command", name, COMMANDS)


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"input `{name}`: unknown value `{value}`", hint=_choices(allowed))
    return value


def _choices(allowed: tuple[str, ...]) -> str:
    return "use one of " + ", ".join(f"`{value}`" for value in allowed)


def _folder(workspace: Path, name: str) -> Path:
    folder = workspace / name
    if not folder.is_dir():
        raise UsageError(f"input `working-directory`: `{name}` is no folder of this checkout")
    return folder


def _stages(text: str, command: str) -> tuple[str, ...]:
    stages = tuple(_one_of("stages", name, STAGES) for name in text.replace(",", " ").split())
    if stages and command != "check":
        raise UsageError(f"input `stages`: is for the command `check` alone, not for `{command}`")
    return stages


def _paths(text: str, folder: Path) -> tuple[str, ...]:
    lines = [line.strip() for line in text.splitlines()]
    return tuple(dict.fromkeys(path for line in lines if line for path in _expanded(line, folder)))


def _expanded(pattern: str, folder: Path) -> list[str]:
    if (folder / pattern).exists() or not glob.has_magic(pattern):
        return [pattern]
    # `Path.glob` finds no file for a trailing `**` before Python 3.13.
    found = sorted(Path(path).as_posix() for path in glob.glob(pattern, root_dir=folder, recursive=True))  # noqa: PTH207
    if not found:
        raise UsageError(
            f"input `paths`: nothing matches `{pattern}`", hint="globs are relative to `working-directory`"
        )
    return found


def _args(text: str) -> tuple[str, ...]:
    try:
        args = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"input `args`: cannot be split into words: {str(error).lower()}") from error
    if "--" in args:
        raise UsageError("input `args`: holds `--`", hint="give files in the input `paths`")
    return args


def arguments(inputs: Inputs, results: Results) -> list[str]:
    """What the command is called with; files stand behind `--`, so that no name is read as an option."""
    config = ["--config", inputs.config] if inputs.config else []
    check = _check_options(inputs, results) if inputs.command == "check" else []
    paths = ["--", *inputs.paths] if inputs.paths else []
    return [inputs.command, *config, "--fail-on", inputs.fail_on, *check, *inputs.args, *paths]


def _check_options(inputs: Inputs, results: Results) -> list[str]:
    stages = ["--stage", ",".join(inputs.stages)] if inputs.stages else []
    formats = {"json": results.report, "github": results.annotations}
    if inputs.summary:
        formats["summary"] = results.summary
    outputs = [word for name, path in formats.items() for word in ("--output", f"{name}={path}")]
    return [*stages, "--output", "text", *outputs]
