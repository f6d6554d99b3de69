"""The `onnxgate` command line. Each command is a module, which is imported only when the command is used."""

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
from onnxgate.core.text import find_similar

_GC_THRESHOLD = 100_000
"""Number of new objects that triggers a garbage collection (Python's default: 700). Modules and results live until the
process ends, so collecting them more often only costs time (5 % of the start-up)."""

COMMANDS = {
    "init": "Set up a repository: config, lock, workflow and hooks.",
    "check": "Check that models load, run and compute the same outputs on every locked runtime.",
    "matrix": "Show which releases of an engine can load the models.",
    "support": "Show which releases support an operator, or what a release supports.",
    "diff": "Compare two models.",
    "lock": "Pin exact releases for all targets in onnxgate.lock.",
    "export": "Re-export models from their sources.",
    "fix": "Repair models, and verify each repair before it is written.",
    "runtimes": "List, prepare or remove the environments of locked runtimes.",
    "explain": "Explain a rule, or the errors in a log.",
    "plan": "Divide a check among CI jobs.",
    "merge": "Merge the reports of CI jobs into one verdict.",
}
"""Commands with their descriptions in `onnxgate --help`. Each is the object `command` in `onnxgate/cli/<name>.py`."""
CI_COMMANDS = ("plan", "merge")
"""Commands listed under a separate heading in the help."""


class LazyGroup(click.Group):
    """Group of click commands that imports each command only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order in which the help lists them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or None if it does not exist."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"onnxgate.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. The error for an unknown name suggests a similar command."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = find_similar(args[0], COMMANDS)
            suggestion = f" Did you mean '{near}'?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{suggestion}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands in the help without importing them."""
        width = max(map(len, COMMANDS))
        for title, is_for_ci in (("Commands", False), ("CI", True)):
            with formatter.section(title):
                formatter.write_dl(
                    [(name.ljust(width), text) for name, text in COMMANDS.items() if (name in CI_COMMANDS) == is_for_ci]
                )


@click.command(
    "onnxgate",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit status: 0 pass; 1 fail; 2 usage, config or lock error; 3 undecided; 130 interrupted.",
)
@click.version_option(__version__, message="onnxgate %(version)s", help="Show the version.")
def group() -> None:
    """Check that ONNX models load, run and compute the same outputs on every runtime that a project supports."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the `onnxgate` command and exit with its status. All errors are handled here."""
    gc.set_threshold(_GC_THRESHOLD)
    with report_errors():
        status = _run_group(sys.argv[1:] if arguments is None else list(arguments))
        sys.stdout.flush()
    gc.freeze()  # skips the interpreter's search for cycles at exit
    sys.exit(status)


def _run_group(arguments: list[str]) -> int:
    """Run the command without click's error handling, which would exit with 1 for a broken pipe."""
    if "_ONNXGATE_COMPLETE" in os.environ:
        group.main(args=arguments, prog_name="onnxgate")  # a shell requests completions
    try:
        with group.make_context("onnxgate", arguments) as context:
            from onnxgate.core.subprocesses import deny_inspection  # not at the top: `--help` does not need it

            deny_inspection()  # the environment may contain secrets that programs of the repository must not read
            result = group.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    return result if isinstance(result, int) else 0
