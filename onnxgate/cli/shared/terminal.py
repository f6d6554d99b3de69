"""Printing of lines that are wrapped to the width of the terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import click

from onnxgate.cli.shared.hint_commands import append_command_folder
from onnxgate.cli.shared.outputs import terminal_width
from onnxgate.core.escape import escape_log_line

HANGING_INDENT = 2
MIN_WIDTH = 40


def print_wrapped(lines: Iterable[str], indent: int = HANGING_INDENT) -> None:
    """Print lines wrapped to the width of the terminal; words and paths are not broken.

    Continuation lines are indented by `indent` more than their first line.
    """
    width = terminal_width()
    for line in lines:
        escaped = escape_log_line(append_command_folder(line))
        hang = " " * (len(escaped) - len(escaped.lstrip()) + indent)
        wrapped = textwrap.wrap(
            escaped, max(width, MIN_WIDTH), subsequent_indent=hang, break_long_words=False, break_on_hyphens=False
        )
        click.echo("\n".join(wrapped) if width else escaped)
