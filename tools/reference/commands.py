"""The reference page of the commands, generated from their help."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping

import click

from onnxgate import cli

OptionKey = tuple[str, str]
CommonOptions = Mapping[OptionKey, click.Option]
MIN_COMMANDS = 2
"""Options shared by at least this many commands are described only once."""
EXIT_STATUS = "Exit status: 0 pass; 1 fail; 2 usage, config or lock error; 3 undecided."
"""A help paragraph that the page omits, because the introduction of the page explains it."""
INTRODUCTION = """
`onnxgate COMMAND --help` prints the same text.

| exit status | meaning |
|---|---|
| 0 | pass |
| 1 | fail |
| 2 | usage, config or lock error |
| 3 | undecided: something that was requested could not be checked |
| 130 | interrupted |

If several statuses apply, the first of 130, 2, 1 and 3 is returned.
"""


def page() -> str:
    """Return the page, with the commands in the order of `onnxgate --help`."""
    with click.Context(cli.group, info_name="onnxgate") as context:
        lines = ["# Commands", "", INTRODUCTION.strip(), ""]
        shared = _find_common_options(cli.group, context)
        lines += ["## Common options", ""]
        lines += _table(list(shared.values()))
        for name in cli.group.list_commands(context):
            command = cli.group.get_command(context, name)
            assert command is not None
            lines += _section(name, command, context, shared)
    return "\n".join(lines).rstrip() + "\n"


def _section(name: str, command: click.Command, parent: click.Context, shared: CommonOptions) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", "```console", f"$ onnxgate {name} {usage}", "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        if (text := " ".join(paragraph.split())) != EXIT_STATUS:
            yield from (text, "")
    if isinstance(command, click.Group):
        for below, subcommand in command.commands.items():
            yield from _section(f"{name} {below}", subcommand, parent, shared)
        return
    options = _list_options(command)
    yield from _table([option for option in options if _option_key(option) not in shared])
    if common := [f"`{max(option.opts, key=len)}`" for option in options if _option_key(option) in shared]:
        yield from (f"[Common options](#common-options): {', '.join(common)}.", "")


def _list_options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _option_key(option: click.Option) -> OptionKey:
    return _names(option), option.help or ""


def _find_common_options(group: click.Group, context: click.Context) -> CommonOptions:
    """Return the options that at least `MIN_COMMANDS` commands share with the same help text, one per name."""
    commands = [group.get_command(context, name) for name in group.list_commands(context)]
    leaves = [
        leaf
        for command in commands
        for leaf in (command.commands.values() if isinstance(command, click.Group) else filter(None, [command]))
    ]
    options = [option for command in leaves for option in _list_options(command)]
    counts = collections.Counter(map(_option_key, options))
    frequent = {
        _names(option): _option_key(option) for option in sorted(options, key=lambda it: counts[_option_key(it)])
    }
    return {
        _option_key(option): option
        for option in options
        if counts[_option_key(option)] >= MIN_COMMANDS and frequent[_names(option)] == _option_key(option)
    }


def _table(options: list[click.Option]) -> Iterator[str]:
    if not options:
        return
    yield from ("| option | |", "|---|---|")
    yield from (f"| {_names(option)} | {_describe(option).replace('|', chr(92) + '|')} |" for option in options)
    yield ""


def _describe(option: click.Option) -> str:
    default = f" (default: {option.default})" if option.show_default else ""
    return f"{(option.help or '').removesuffix('.')}{default}."


def _names(option: click.Option) -> str:
    has_value = not (option.is_flag or option.count)
    value = f" {option.make_metavar(click.Context(click.Command('x')))}" if has_value else ""
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts)).replace("|", "\\|")
