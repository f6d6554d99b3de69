"""The inputs of `action.yml`, read from the environment, each one checked, and the arguments made of them."""

from __future__ import annotations

import glob
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from onnxgate.errors import UsageError
from onnxgate.findings import ALL_STAGES

COMMANDS = ("check", "lock", "export", "plan", "merge")
REPORTING = ("check", "merge")
"""These leave a report."""
STAGES = tuple(stage.value for stage in ALL_STAGES)
FAIL_ON = ("error", "warning", "never")
NAMES = (
    *("command", "paths", "config", "working-directory", "against", "stages", "shard", "fail-on"),
    *("summary", "sarif", "comment", "cache", "args"),
)
DEFAULTS = {
    "command": "check",
    "working-directory": ".",
    "fail-on": "error",
    "summary": "true",
    "sarif": "false",
    "comment": "false",
    "cache": "true",
}


@dataclass(frozen=True, slots=True)
class Inputs:
    """The action's inputs; `folder` is what paths and globs are relative to."""

    command: str
    paths: tuple[str, ...]
    config: str
    folder: Path
    against: str
    stages: tuple[str, ...]
    shard: str
    fail_on: str
    summary: bool
    sarif: bool
    comment: bool
    cache: bool
    args: tuple[str, ...]
    directory: str = "."  # `working-directory` as it was given


@dataclass(frozen=True, slots=True)
class Results:
    """Where one run leaves what the next steps need."""

    folder: Path
    shard: str = ""

    @property
    def report(self) -> Path:
        """The JSON report; those of several shards can lie in one folder."""
        return self.folder / (f"onnxgate-{part(self.shard)}.json" if self.shard else "report.json")

    @property
    def annotations(self) -> Path:
        """Workflow commands."""
        return self.folder / "annotations.txt"

    @property
    def summary(self) -> Path:
        """The job summary."""
        return self.folder / "summary.md"

    @property
    def sarif(self) -> Path:
        """What code scanning reads."""
        return self.folder / "onnxgate.sarif"

    @property
    def comment(self) -> Path:
        """What is said on the pull request."""
        return self.folder / "comment.md"


def part(shard: str) -> str:
    """`2-of-4` of `2/4`, and of what `onnxgate plan` writes behind it."""
    return shard.partition("@")[0].replace("/", "-of-")


def read_inputs(environment: Mapping[str, str]) -> Inputs:
    """The inputs of the action.

    Raises: UsageError.
    """
    _refuse_pull_request_target(environment)
    given = {name: environment.get(variable(name), "").strip() or DEFAULTS.get(name, "") for name in NAMES}
    command = _one_of("command", given["command"], COMMANDS)
    folder = _folder(Path(environment.get("GITHUB_WORKSPACE", ".")), given["working-directory"])
    return _agreeing(
        Inputs(
            command=command,
            paths=_paths(given["paths"], folder),
            config=_no_option("config", given["config"]),
            folder=folder,
            against=_against(given["against"]),
            stages=tuple(_one_of("stages", name, STAGES) for name in given["stages"].replace(",", " ").split()),
            shard=_shard(given["shard"]),
            fail_on=_one_of("fail-on", given["fail-on"], FAIL_ON),
            summary=_flag("summary", given["summary"]),
            sarif=_flag("sarif", given["sarif"]),
            comment=_flag("comment", given["comment"]),
            cache=_flag("cache", given["cache"]),
            args=_args(given["args"]),
            directory=given["working-directory"],
        )
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


def _agreeing(inputs: Inputs) -> Inputs:
    """Inputs that mean something together."""
    for name, given, commands in (
        ("against", inputs.against, ("check",)),
        ("stages", inputs.stages, ("check",)),
        ("shard", inputs.shard, ("check",)),
        ("sarif", inputs.sarif, REPORTING),
        ("comment", inputs.comment, REPORTING),
    ):
        if given and inputs.command not in commands:
            meant = " and ".join(f"`{each}`" for each in commands)
            raise UsageError(f"input `{name}`: is for {meant} alone, not for `{inputs.command}`")
    if inputs.comment and inputs.shard:
        raise UsageError(
            "input `comment`: one shard has no verdict to comment on", hint="comment where the shards are merged"
        )
    if inputs.command == "merge" and not inputs.paths:
        raise UsageError("input `paths`: names no report to merge", hint="give the JSON reports of all shards")
    return inputs


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise UsageError(f"input `{name}`: unknown value `{value}`", hint=_choices(allowed))
    return value


def _choices(allowed: tuple[str, ...]) -> str:
    return "use one of " + ", ".join(f"`{value}`" for value in allowed)


def _flag(name: str, value: str) -> bool:
    return _one_of(name, value, ("true", "false")) == "true"


def _no_option(name: str, value: str) -> str:
    if value.startswith("-"):
        raise UsageError(f"input `{name}`: `{value}` begins like an option", hint="options belong in `args`")
    return value


def _against(text: str) -> str:
    if not text.isprintable() or " " in text:
        raise UsageError(f"input `against`: `{text}` is no git revision")
    return _no_option("against", text)


def _shard(text: str) -> str:
    if not text:
        return ""
    from onnxgate import shards

    try:
        return str(shards.parse(text))
    except UsageError as error:
        raise UsageError(error.message.replace("`--shard` is", "input `shard`:", 1), hint=error.hint) from error


def _folder(workspace: Path, name: str) -> Path:
    folder = workspace / name
    if not folder.is_dir():
        raise UsageError(f"input `working-directory`: `{name}` is no folder of this checkout")
    return folder


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
    given = {"--config": inputs.config, "--against": inputs.against, "--stage": ",".join(inputs.stages)}
    options = [f"{name}={value}" for name, value in (*given.items(), ("--shard", inputs.shard)) if value]
    outputs = _outputs(inputs, results) if inputs.command in REPORTING else []
    paths = ["--", *inputs.paths] if inputs.paths else []
    return [inputs.command, *options, "--fail-on", inputs.fail_on, *outputs, *inputs.args, *paths]


def _outputs(inputs: Inputs, results: Results) -> list[str]:
    """What is written, and where; of a shard nothing that its merge says again."""
    files = {
        "json": results.report,
        "github": None if inputs.shard else results.annotations,
        "summary": results.summary if inputs.summary and not inputs.shard else None,
        "sarif": results.sarif if inputs.sarif else None,
        "comment": results.comment if inputs.comment else None,
    }
    named = [f"{name}={path}" for name, path in files.items() if path is not None]
    return [word for output in ("text", *named) for word in ("--output", output)]
