"""`onnxgate explain`: prints the page of a rule, or explains the errors in a log."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from onnxgate import __version__, rules
from onnxgate.cli.shared.options import name_formats, output_option
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.core.errors import UsageError
from onnxgate.core.findings import Stage
from onnxgate.core.text import find_similar, join_quoted
from onnxgate.diagnostics.log_explanation import explain_log
from onnxgate.formats import explained_log
from onnxgate.rules.definition import FIRST_RELEASE

FORMATS = ("text", "json")


@click.command("explain")
@click.argument("rule", required=False)
@click.option(
    "--log",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Explain the errors in this log file, or in standard input if FILE is `-`.",
)
@output_option(f"the explained log as {name_formats(FORMATS)}")
def command(rule: str | None, log: Path | None, outputs: tuple[str, ...]) -> int:
    """Explain a rule, or the errors in a log.

    RULE is the name of a rule. If RULE is omitted, all rules are listed. With `--log`, onnxgate prints the cause, the
    fix and the affected releases of each known error. It knows errors of inference engines, exporters, onnx, pip, uv,
    numpy and protobuf.

    Exit status with `--log`: 3 if the log contains only unknown errors, otherwise 0.
    """
    if log is not None and rule is not None:
        raise UsageError("RULE and `--log` cannot be combined", hint="run `onnxgate explain --log FILE`")
    if log is not None:
        sinks = parse_outputs(outputs, FORMATS)
        with _open_log(log) as stream:
            explained = explain_log(stream, __version__)
        write_answer(sinks, explained, partial(explained_log.format_text, explained))
        return explained.exit
    if outputs:
        raise UsageError("`--output` requires `--log`")
    lines = _render_rule_list() if rule is None else _render_page(rule)
    click.echo("\n".join(lines))
    return 0


@contextmanager
def _open_log(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as error:
        raise UsageError(f"cannot read `{path}`: {error.strerror}", hint="use `-` to read standard input") from error


def _render_page(name: str) -> Iterator[str]:
    """Yield the lines of a rule's page: name, default level, stage and documentation."""
    if name not in rules.by_id:
        raise UsageError(f"unknown rule `{name}`", hint=_suggest_rules(name))
    rule = rules.by_id[name]
    yield click.style(rule.id, bold=True)
    since = "" if rule.since == FIRST_RELEASE else f", since {rule.since}"
    yield f"{rule.level.value} by default, stage {rule.stage.value}{since}"
    yield ""
    for line in rule.page.splitlines():
        yield click.style(line.lstrip("# "), bold=True) if line.startswith("#") else line


def _suggest_rules(name: str) -> str:
    """Return a hint that suggests the most similar rule, or all rules whose names contain `name` as a word."""
    if near := find_similar(name, rules.by_id):
        return f"did you mean `{near}`?"
    matching = [rule for rule in rules.by_id if f"-{name.strip('-')}-" in f"-{rule}-"]
    if matching:
        return f"rules with `{name}` in their names: {join_quoted(matching)}"
    return "run `onnxgate explain` to list all rules"


def _render_rule_list() -> Iterator[str]:
    width = max(map(len, rules.by_id), default=0)
    for stage in Stage:
        of_stage = [rule for rule in rules.ALL if rule.stage is stage]
        if of_stage:
            yield click.style(stage.value, bold=True)
            yield from (f"  {rule.id.ljust(width)}  {rule.level.value:7}  {rule.summary}" for rule in of_stage)
            yield ""
    yield "Run `onnxgate explain RULE` for details."
