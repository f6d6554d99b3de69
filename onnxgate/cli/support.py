"""`onnxgate support`: shows which releases support an operator, and what a release supports."""

from __future__ import annotations

from functools import partial

import click

from onnxgate.cli.shared.options import (
    ANSWER_FORMATS,
    CommonOptions,
    common_options_without,
    name_formats,
    output_option,
)
from onnxgate.cli.shared.outputs import parse_outputs, write_answer
from onnxgate.commands import support
from onnxgate.core.errors import UsageError
from onnxgate.formats import support_answer

NEWEST = "newest"


@click.command("support")
@click.argument("operator", required=False)
@click.option(
    "--opset",
    is_flag=False,
    flag_value=NEWEST,
    metavar="[N]",
    help="Opset of ai.onnx in the model, or of the domain that OPERATOR names. Without N, show the newest opsets that "
    "all releases accept.",
)
@click.option(
    "--ir-version",
    type=click.IntRange(min=1),
    metavar="N",
    help="Show the releases that accept models with IR version N.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="[PARAMETER=]TYPE",
    help="Type of an input or output, such as `float16`, or `T2=int64` for a type parameter. Repeatable.",
)
@click.option(
    "--runtime",
    metavar="REQUIREMENT",
    help="Releases that the answer is about, such as 'onnxruntime>=1.18'.",
)
@click.option(
    "--diff", nargs=2, metavar="OLDER NEWER", help="Show the differences between two releases, such as `1.17.1 1.18.0`."
)
@click.option(
    "--engine", default="", metavar="NAME", help="Inference engine (default: the one in --runtime, or onnxruntime)."
)
@click.option(
    "--provider",
    default="CPUExecutionProvider",
    show_default=True,
    metavar="NAME",
    help="Execution provider whose kernels count.",
)
@output_option(name_formats(ANSWER_FORMATS))
@click.option("-q", "--quiet", is_flag=True, help="Print only the answer, without tables.")
@common_options_without("directory", "config", "offline", "jobs", "fail_on", "no_ignores", "quiet")
def command(
    operator: str | None,
    opset: str | None,
    ir_version: int | None,
    types: tuple[str, ...],
    runtime: str | None,
    diff: tuple[str, str] | None,
    engine: str,
    provider: str,
    outputs: tuple[str, ...],
    options: CommonOptions,
) -> int:
    """Show which releases support an operator, or what a release supports.

    OPERATOR is a name such as `Gelu`, or with its domain, `com.microsoft.Gelu`. The answer comes from tables of kernels
    and schemas; nothing is installed or run.

    Exit status: 0 answered, also if the answer is no; 2 usage error, such as an unknown name; 3 not known.
    """
    sinks = parse_outputs(outputs, ANSWER_FORMATS)
    question = support.Question(
        operator=operator,
        types=types,
        opset=None if opset in (None, NEWEST) else _parse_opset(opset),
        ir_version=ir_version,
        newest=opset == NEWEST,
        difference=diff,
        runtime=runtime,
        engine=engine,
        provider=provider,
    )
    answer = support.answer(question)
    write_answer(
        sinks,
        answer,
        partial(support_answer.format_text, answer, quiet=options.quiet, verbose=options.verbose),
        partial(support_answer.format_markdown, answer, quiet=options.quiet, verbose=options.verbose),
    )
    return 0


def _parse_opset(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"`--opset` must be a positive number, got `{text}`", hint="for example `--opset 20`")
    return int(text)
