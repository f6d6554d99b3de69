"""The command `onnxgate`: one module per command, imported only when that command is used."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from onnxgate import __version__
from onnxgate.cli.shared.error_handling import report_errors

_GC_THRESHOLD = 100_000
"""Objects before a garbage collection, 700 by default: modules and results live until the end, and searching them for
cycles repeatedly takes a twentieth of the start-up."""

# Name and what `onnxgate --help` says of it, in the order of use; `onnxgate/cli/<name>.py` has it as `command`.
COMMANDS = {
    "init": "Look at the repository and write config, lock, workflow and hook entries.",
    "check": "Judge the models: do they load, run and agree on every locked runtime?",
    "matrix": "Say on which releases models load, from support data, or by really loading them.",
    "diff": "Say what changed between two models, in words.",
    "lock": "Resolve the targets to exact releases and write onnxgate.lock.",
    "export": "Export models again from their sources.",
    "fix": "Repair what can be proven safe, and show the proof before anything is written.",
    "plan": "Divide a check among jobs of a CI matrix.",
    "merge": "Make one verdict of the reports of all shards.",
    "runtimes": "List, prepare or remove the environments of locked runtimes.",
    "explain": "Say what a rule means, or what the errors in a log mean, and what to do about it.",
}


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in the order of use."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name, None if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"onnxgate.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first word names, or the nearest spelling."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            suggestion = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{suggestion}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(
    "onnxgate",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 pass; 1 the gate is closed; 2 usage, config or lock is wrong; 3 undecided; 130 interrupted.",
)
@click.version_option(__version__, message="onnxgate %(version)s", help="Say the version.")
def group() -> None:
    """The compatibility gate for ONNX models: they load, run and agree on every runtime that you promise."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command and exit with its status; every error ends here."""
    gc.set_threshold(_GC_THRESHOLD)
    with report_errors():
        status = _run_group(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    gc.freeze()  # what is left ends with the process: the interpreter need not search it for cycles before it exits
    sys.exit(status)


def _run_group(arguments: list[str]) -> int:
    """Run without click's own handling of errors, which would take a broken pipe for status 1."""
    if "_ONNXGATE_COMPLETE" in os.environ:
        group.main(args=arguments, prog_name="onnxgate")  # a shell requests completions
    try:
        with group.make_context("onnxgate", arguments) as context:
            result = group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0
