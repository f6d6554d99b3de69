"""The page of commands, generated from their click definitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from onnxgate import cli

INTRODUCTION = """
`onnxgate COMMAND --help` shows the same text.

| exit status | meaning |
|---|---|
| 0 | pass |
| 1 | fail |
| 2 | error in the usage, the config or the lock |
| 3 | undecided: something that was requested could not be checked |
| 130 | interrupted |

If several apply: 130, then 2, then 1, then 3.
"""


def page() -> str:
    """Return the page: each command in the order of use, and common options once at the end."""
    with click.Context(cli.group, info_name="onnxgate") as context:
        names = cli.group.list_commands(context)
        commands = {name: cli.group.get_command(context, name) for name in names}
        known = {name: command for name, command in commands.items() if command is not None}
        common = _common(list(known.values()))
        lines = ["# Commands", "", INTRODUCTION.strip(), ""]
        for name, command in known.items():
            lines += _section(name, command, context, common)
        first = known["check"]
        lines += ["## Common options", "", "All commands but `explain` take these, and those of `runtimes`.", ""]
        lines += _table([each for each in first.params if _key(each) in common])
    return "\n".join(lines).rstrip() + "\n"


def _key(parameter: click.Parameter) -> tuple[str, ...]:
    """Return the identity of an option: `--output` with other formats is another option."""
    return (type(parameter).__name__, *parameter.opts, getattr(parameter, "help", None) or "")


def _common(commands: list[click.Command]) -> set[tuple[str, ...]]:
    """Return the options that most commands have."""
    counted = Counter(_key(each) for one in commands for each in one.params if isinstance(each, click.Option))
    return {key for key, count in counted.items() if 2 * count > len(commands)}


def _section(name: str, command: click.Command, parent: click.Context, common: set[tuple[str, ...]]) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", "```console", f"$ onnxgate {name} {usage}", "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    if isinstance(command, click.Group):
        for below, each in command.commands.items():
            yield from _section(f"{name} {below}", each, parent, common)
        return
    own = [each for each in command.params if isinstance(each, click.Option) and _key(each) not in common]
    yield from _table(own)


def _table(options: list[click.Parameter]) -> Iterator[str]:
    shown = [each for each in options if isinstance(each, click.Option) and not each.hidden]
    if not shown:
        return
    yield from ("| option | |", "|---|---|")
    yield from (f"| {_names(option)} | {(option.help or '').replace('|', chr(92) + '|')} |" for option in shown)
    yield ""


def _names(option: click.Option) -> str:
    value = "" if option.is_flag else f" {option.make_metavar(click.Context(click.Command('x')))}"
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts)).replace("|", "\\|")
