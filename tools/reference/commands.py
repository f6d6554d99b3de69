"""The page of commands, generated from their help."""

from __future__ import annotations

from collections.abc import Iterator

import click

from onnxgate import cli

INTRODUCTION = """
`onnxgate COMMAND --help` prints the same text.

| exit status | meaning |
|---|---|
| 0 | pass |
| 1 | fail |
| 2 | usage, config or lock error |
| 3 | undecided: something that was requested could not be checked |
| 130 | interrupted |

If several apply, the first of 130, 2, 1 and 3 is used.
"""


def page() -> str:
    """Return the page, with the commands in the order of `onnxgate --help`."""
    with click.Context(cli.group, info_name="onnxgate") as context:
        lines = ["# Commands", "", INTRODUCTION.strip(), ""]
        for name in cli.group.list_commands(context):
            command = cli.group.get_command(context, name)
            assert command is not None
            lines += _section(name, command, context)
    return "\n".join(lines).rstrip() + "\n"


def _section(name: str, command: click.Command, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    yield from (f"## {name}", "", "```console", f"$ onnxgate {name} {usage}", "```", "")
    for paragraph in (command.help or "").split("\n\n"):
        yield from (" ".join(paragraph.split()), "")
    if isinstance(command, click.Group):
        for below, subcommand in command.commands.items():
            yield from _section(f"{name} {below}", subcommand, parent)
        return
    yield from _table(command.params)


def _table(parameters: list[click.Parameter]) -> Iterator[str]:
    shown = [option for option in parameters if isinstance(option, click.Option) and not option.hidden]
    if not shown:
        return
    yield from ("| option | |", "|---|---|")
    yield from (f"| {_names(option)} | {(option.help or '').replace('|', chr(92) + '|')} |" for option in shown)
    yield ""


def _names(option: click.Option) -> str:
    has_value = not (option.is_flag or option.count)
    value = f" {option.make_metavar(click.Context(click.Command('x')))}" if has_value else ""
    return ", ".join(f"`{name}{value}`" for name in (*option.opts, *option.secondary_opts)).replace("|", "\\|")
