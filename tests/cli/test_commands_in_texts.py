"""Commands and options that messages quote exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from onnxgate.cli import COMMANDS, group
from tests.conftest import ROOT

PACKAGE = ROOT / "onnxgate"
QUOTED = re.compile(rf"`((?:onnxgate )?(?:{'|'.join(COMMANDS)}) [^`\n]+|onnxgate [^`\n]+)`")
OPTION = re.compile(r"`(--[a-z][a-z-]*)(?:[ =][^`\n]*)?`")
OF_OTHER_PROGRAMS = frozenset({"--ours", "--theirs", "--no-ext-diff", "--format", "--prefix"})
"""Options of git, uv and npm in messages about these programs."""


def texts(path: Path) -> Iterator[str]:
    """Yield the string literals of a module; replacement fields of f-strings become `VALUE`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "VALUE" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def modules() -> list[Path]:
    """Return all modules of the package except the workers, whose texts do not name commands."""
    return sorted(path for path in PACKAGE.rglob("*.py") if "worker" not in path.relative_to(PACKAGE).parts)


def quoted_commands() -> dict[str, str]:
    """Return the commands in the texts, with the module that quotes each."""
    actual = {}
    for path in modules():
        for text in texts(path):
            for match in QUOTED.finditer(text):
                if "\\" not in match[1]:  # a regular expression is not a quoted command
                    actual.setdefault(match[1], path.relative_to(ROOT).as_posix())
    return actual


def find_problem(command: str) -> str:
    """Return the reason why click would reject a quoted command, or "". Option values are not checked."""
    words = shlex.split(command.partition(" > ")[0])
    words = words[1:] if words[0] == "onnxgate" else words
    context = click.Context(group)
    current: click.Command = group
    while words and isinstance(current, click.Group):
        if words[0].startswith("-"):
            break
        child = current.get_command(context, words[0])
        if child is None:
            return f"no command `{words[0]}`"
        current, words = child, words[1:]
    options = {
        name: option for option in current.get_params(context) for name in (*option.opts, *option.secondary_opts)
    }
    takes_arguments = any(isinstance(parameter, click.Argument) for parameter in current.params)
    while words:
        name, _, value = words.pop(0).partition("=")
        name = name.removesuffix("VALUE") or name  # a field that is empty or begins with a space
        if not name.startswith("-"):
            if not takes_arguments:
                return f"no argument `{name}`"
        elif name not in options:
            return f"no option `{name}`"
        elif words and not value and not words[0].startswith("-"):
            option = options[name]
            assert isinstance(option, click.Option)
            if not option.is_flag:
                words.pop(0)
    return ""


FOUND = quoted_commands()


def test_commands_are_found() -> None:
    """The search finds commands; with an empty result, all other tests would pass."""
    assert {"onnxgate lock", "onnxgate check --write-ignores", "onnxgate fix VALUE"} <= FOUND.keys()


@pytest.mark.parametrize("command", FOUND)
def test_quoted_commands_exist(command: str) -> None:
    """Each quoted command and each of its options exist."""
    assert find_problem(command) == "", f"{FOUND[command]} quotes `{command}`"


def test_quoted_options_exist() -> None:
    """Options that are quoted without a command exist."""
    context = click.Context(group)
    commands = [group, *(group.get_command(context, name) for name in COMMANDS)]
    commands += [child for parent in commands if isinstance(parent, click.Group) for child in parent.commands.values()]
    known = {
        name
        for command in commands
        if command is not None
        for option in command.get_params(context)
        for name in (*option.opts, *option.secondary_opts)
    }
    quoted = {
        match[1]: path.relative_to(ROOT).as_posix()
        for path in modules()
        if "catalogue" not in path.parts  # explains errors of other programs
        for text in texts(path)
        for match in OPTION.finditer(text)
    }

    assert len(quoted) > 10
    assert {name: path for name, path in quoted.items() if name not in known | OF_OTHER_PROGRAMS} == {}


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("onnxgate lok", "no command `lok`"),
        ("onnxgate lock --upgrad", "no option `--upgrad`"),
        ("onnxgate check --statik model.onnx", "no option `--statik`"),
        ("onnxgate runtimes prepar", "no command `prepar`"),
        ("onnxgate lock --upgrade onnxruntime=1.31.1", ""),
        ("check --stage file", ""),
    ],
)
def test_wrong_commands_are_noticed(command: str, problem: str) -> None:
    """`find_problem` reports commands and options that do not exist."""
    assert find_problem(command) == problem
