"""Write the output of `onnxgate matrix` as plain text or Markdown: a table, and one line for each model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from onnxgate.core.errors import ISSUE_TRACKER_URL
from onnxgate.core.escape import escape_markdown, markdown_code, neutralize_commands, quote_name
from onnxgate.core.findings import Stage
from onnxgate.core.matrix import (
    Entry,
    Matrix,
    MatrixModel,
    describe_scope,
    describe_working_range,
    list_reasons,
    name_releases,
    render_reason,
)
from onnxgate.core.report import Finding, NotDone
from onnxgate.core.text import LONG_LIMIT, SHORT_LIMIT, pluralize, truncate
from onnxgate.formats import text, wording
from onnxgate.formats.markdown import Page as MarkdownPage
from onnxgate.formats.markdown import render_heads, render_legend, render_words
from onnxgate.formats.table_columns import RuntimeColumn, join_columns, list_words
from onnxgate.formats.text import Terminal

WORD_WIDTH = 6
"""Width of the column with the verdicts (`ok`, `warn`, `FAIL` or `?`), in characters."""
MORE_REASONS_HINT = "`-v` lists all reasons and findings"
MIN_JOINED = 3
"""Minimum number of models with the same answer that share one paragraph."""
PLURALS = {
    "loads on ": " load on ",
    "does not load on ": " do not load on ",
    "could not be ": " could not be ",
    "": ": each ",
}
"""Beginning of a sentence about one model -> words that replace it in a sentence about several models."""


class OtherFinding(msgspec.Struct, frozen=True):
    """A finding that the sentence about a model does not state."""

    level: str
    text: str  # the message, number of similar findings and rule
    fix: str


class ModelAnswer(msgspec.Struct, frozen=True):
    """What the output of `onnxgate matrix` states about models."""

    models: tuple[str, ...]  # paths
    word: str  # a word of STYLES: ok, warn, FAIL, ?
    sentence: str  # continues the name of the model
    advice: tuple[tuple[str, str], ...] = ()  # label ("fix: ", "hint: ") and text
    others: tuple[OtherFinding, ...] = ()
    reasons: tuple[str, ...] = ()  # all reasons, if they are requested
    is_shortened: bool = False  # reasons or findings are omitted

    @property
    def common_sentence(self) -> str:
        """The sentence with the number of models as its subject."""
        beginning = next(it for it in PLURALS if self.sentence.startswith(it))
        return f"{len(self.models)} models{PLURALS[beginning]}{self.sentence.removeprefix(beginning)}"


def answer_matrix(matrix: Matrix, *, required: bool = False, verbose: bool = False) -> list[ModelAnswer]:
    """Return what the output states about the models, including all errors and warnings.

    Models with the same answer are joined if there are at least `MIN_JOINED` of them. With `verbose`, all reasons and
    findings are listed.
    """
    findings: dict[str, list[Finding]] = {}
    for finding in wording.list_active_findings(matrix):
        findings.setdefault(finding.model, []).append(finding)
    gaps: dict[str, list[NotDone]] = {}
    for gap in matrix.undecided:
        gaps.setdefault(gap.model, []).append(gap)
    answers: dict[ModelAnswer, list[ModelAnswer]] = {}
    for model in matrix.models:
        own = findings.get(model.path, []), gaps.get(model.path, [])
        answer = _answer(model, *own, required=required, verbose=verbose)
        answers.setdefault(msgspec.structs.replace(answer, models=()), []).append(answer)
    order = {model.path: index for index, model in enumerate(matrix.models)}
    joined = []
    for alike in answers.values():
        if len(alike) < MIN_JOINED:
            joined += alike
        else:
            joined.append(msgspec.structs.replace(alike[0], models=tuple(it.models[0] for it in alike)))
    return sorted(joined, key=lambda answer: order[answer.models[0]])


def _answer(
    model: MatrixModel, findings: Sequence[Finding], gaps: Sequence[NotDone], *, required: bool, verbose: bool
) -> ModelAnswer:
    levels = {finding.level for finding in findings}
    working = describe_working_range(model, required=required)
    rules = {span.reason.rule for span in list_reasons(model)}
    faults = [it for it in findings if it.stage == Stage.FILE.value and it.rule in rules and it.level == "error"]
    file_gaps = [gap for gap in gaps if gap.stage == Stage.FILE.value]
    unstated: Sequence[NotDone] = ()
    if faults and not model.on("loads"):  # a fault of the file explains more than the releases that it affects
        sentence, stated, unstated = wording.render_message(faults[0]), faults[:1], gaps
    elif file_gaps:
        sentence, stated = file_gaps[0].reason, []
    else:
        sentence = working.sentence
        stated = [
            finding
            for finding in findings
            if any(
                (it.rule, it.node) == (finding.rule, finding.node) and it.message in finding.message
                for it in working.named
            )
        ]
    others = [finding for finding in findings if finding not in stated]
    if (errors := sum(it.level == "error" for it in others)) and not any(it.level == "error" for it in stated):
        sentence = f"has {pluralize(errors, 'error')}, listed below; {sentence}"
    omits_reasons = bool(stated) and working.omitted > 0 and sentence.endswith(working.sentence)
    if omits_reasons:  # the sentence counts these, and the list of reasons contains them
        kinds = {(finding.rule, finding.fix) for finding in stated}
        others = [finding for finding in others if (finding.rule, finding.fix) not in kinds]
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in others:
        groups.setdefault((finding.level, finding.rule, finding.fix, finding.message if verbose else ""), []).append(
            finding
        )
    fixes = [("fix: ", finding.fix) for finding in stated]
    for gap in gaps:
        fixes += [("undecided: ", gap.reason if gap in unstated else ""), ("hint: ", gap.hint)]
    named = ", ".join(dict.fromkeys(finding.rule for finding in stated))
    return ModelAnswer(
        (model.path,),
        "FAIL" if "error" in levels else "?" if gaps else "warn" if levels else "ok",
        f"{truncate(sentence, LONG_LIMIT)}{f' [{named}]' if named else ''}",
        tuple(dict.fromkeys((label, advice) for label, advice in fixes if advice)),
        tuple(map(_summarize_findings, groups.values())),
        tuple(_list_reason_lines(model)) if verbose else (),
        is_shortened=omits_reasons or len(groups) < len(others),
    )


def _summarize_findings(findings: Sequence[Finding]) -> OtherFinding:
    """Return the first of the findings, which have the same rule and fix, with the number of the others."""
    first, others = findings[0], len(findings) - 1
    more = f", and {others} more" if others else ""
    text = f"{wording.render_message_with_node(first)}{more} [{truncate(first.rule)}]"
    return OtherFinding(first.level, text, truncate(first.fix, LONG_LIMIT))


def entry_word(entry: Entry) -> str:
    """Return the word that the table shows for a model on one runtime: `ok`, `likely`, `FAIL` or `?`."""
    if entry.state == "loads":
        return "ok" if entry.observed == "loads" else "likely"
    return "FAIL" if entry.state == "refused" else "?"


def matrix_columns(matrix: Matrix) -> list[RuntimeColumn]:
    """Return the columns of the table of models by runtime.

    As with a config, an error of the file stage is shown as `FAIL` for each runtime that it is about.
    """
    faults = [it for it in matrix.findings if it.stage == Stage.FILE.value and it.level == "error"]
    faulty = {(it.model, runtime) for it in faults for runtime in it.runtimes or _runtime_names(matrix)}

    def word(model: MatrixModel, entry: Entry) -> str:
        return "FAIL" if (model.path, entry.runtime) in faulty else entry_word(entry)

    cells = {
        name: [word(model, model.runtimes[index]) for model in matrix.models]
        for index, name in enumerate(_runtime_names(matrix))
    }
    return join_columns(_runtime_names(matrix), cells)


def _runtime_names(matrix: Matrix) -> list[str]:
    return [entry.runtime for entry in matrix.models[0].runtimes] if matrix.models else []


REPORT_REQUEST = (
    f"report wrong predictions at {ISSUE_TRACKER_URL}, and attach the model, or a small model with the affected nodes"
)


def list_wrong_predictions(matrix: Matrix) -> list[tuple[str, str, str]]:
    """Return the wrong predictions: path of the model, affected releases, and what a run showed instead."""
    wrong: dict[tuple[str, str], list[str]] = {}
    for path, entry in ((model.path, entry) for model in matrix.models for entry in model.runtimes):
        if not entry.contradicted:
            continue
        if entry.observed == "loads":
            reason = f" ({truncate(render_reason(entry.reasons[0]))})" if entry.reasons else ""
            problem = f"the model loads, although it was predicted not to load{reason}"
        else:
            outcome = "was refused" if entry.observed == "refused" else "crashed the runtime"
            problem = f"the model was predicted to load, but it {outcome}: {truncate(entry.error)}"
        wrong.setdefault((path, problem), []).append(entry.runtime)
    known = _runtime_names(matrix)
    return [(path, name_releases(runtimes, known), problem) for (path, problem), runtimes in wrong.items()]


def list_unverified(matrix: Matrix) -> dict[str, str]:
    """Return the runtimes whose predictions could not be verified: reason -> names of the runtimes, as text."""
    unverified: dict[str, set[str]] = {}
    for entry in matrix.entries:
        if entry.observed in ("unavailable", "timed-out"):
            unverified.setdefault(truncate(entry.error, SHORT_LIMIT), set()).add(entry.runtime)
    known = _runtime_names(matrix)
    return {reason: name_releases(sorted(runtimes, key=known.index), known) for reason, runtimes in unverified.items()}


def render_verdict(matrix: Matrix) -> str:
    """Return the last line, such as `pass: 1 model checked against 46 releases up to 1.31.1; predicted, not run`.

    It states the verdict for all models.
    """
    extent = wording.describe_releases(len(matrix.models), _runtime_names(matrix))
    return wording.render_summary(matrix, extent, scope=describe_scope(matrix.models))


def format_text(
    matrix: Matrix,
    *,
    has_table: bool = True,
    required: bool = False,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
    verbose: bool = False,
    elapsed_s: float | None = None,
    details: str = MORE_REASONS_HINT,
) -> str:
    """Render the table, a line for each model, the wrong predictions, the remarks and the verdict as plain text.

    `width` is the terminal width; with 0, lines are not wrapped. With `quiet`, render only the last line; with
    `verbose`, render all reasons. `details` is a hint how to show omitted reasons.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet and matrix.models:
        lines += _render_table(matrix, paper) if has_table else []
        lines += [*_render_answers(answer_matrix(matrix, required=required, verbose=verbose), paper, details), ""]
        lines += _render_verification(matrix, paper)
        lines += [paper.ink("notes", "heading")] if matrix.remarks else []
        for remark in matrix.remarks:
            lines += paper.wrapped(remark, 2)
        lines += [""] if matrix.remarks else []
    verdict = f"{render_verdict(matrix)}{text.format_elapsed(elapsed_s)}"
    first, *others = paper.wrapped(verdict, 0, own=True)
    lines += [paper.ink(matrix.verdict, matrix.verdict) + first.removeprefix(matrix.verdict), *others, ""]
    return "\n".join(neutralize_commands(line) for line in lines)


def _render_table(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    columns = matrix_columns(matrix)
    yield from (*text.render_table([model.path for model in matrix.models], columns, paper), "")
    yield from text.render_legend(list_words(columns), paper)


def _render_answers(answers: Sequence[ModelAnswer], paper: Terminal, details: str) -> Iterator[str]:
    for answer in answers:
        label = answer.word.ljust(WORD_WIDTH)
        first, *others = map(truncate, answer.models)
        line = answer.common_sentence if others else f"{first}: {answer.sentence}"
        yield from paper.wrapped(line, 0, label, label_style=text.STYLES[answer.word])
        if others:
            names = ", ".join(quote_name(name) for name in (first, *others))
            indent = " " * WORD_WIDTH  # a label, so that all lines of the list have the same indent
            yield from paper.wrapped(names, 0, indent, style="quiet")
        for kind, advice in answer.advice:
            yield from paper.wrapped(truncate(advice, LONG_LIMIT), WORD_WIDTH, kind)
        for finding in answer.others:
            yield from paper.wrapped(finding.text, WORD_WIDTH, f"{finding.level}: ", label_style=finding.level)
            yield from paper.wrapped(finding.fix, WORD_WIDTH, "fix: ") if finding.fix else ()
        for line in answer.reasons:
            yield from paper.wrapped(line, WORD_WIDTH, style="quiet")
    if any(answer.is_shortened and not answer.reasons for answer in answers):
        yield from ("", *paper.wrapped(details, 0, "hint: "))


def _list_reason_lines(model: MatrixModel) -> Iterator[str]:
    known = [entry.runtime for entry in model.runtimes]
    for span in list_reasons(model):
        newest = span.runtimes[-1].rpartition(" ")[2]
        detail = f" ({newest} {span.reason.detail})" if span.reason.detail else ""
        reason = truncate(f"{render_reason(span.reason)}{detail}", LONG_LIMIT)
        yield f"{name_releases(span.runtimes, known)}: {reason}"


def _render_verification(matrix: Matrix, paper: Terminal) -> Iterator[str]:
    unverified, wrong = list_unverified(matrix), list_wrong_predictions(matrix)
    yield from [paper.ink("not verified", "heading")] if unverified else []
    for reason, runtimes in unverified.items():
        yield from paper.wrapped(reason, 2, f"{runtimes}: ")
    yield from [""] if unverified else []
    yield from [paper.ink("wrong predictions", "error")] if wrong else []
    for path, releases, problem in wrong:
        yield from paper.wrapped(f"{truncate(path)} on {releases}: {problem}", 2, "- ")
    yield from [*paper.wrapped(REPORT_REQUEST, 2), ""] if wrong else []


TABLE_PAGE = MarkdownPage()


def format_markdown(matrix: Matrix, *, has_table: bool = True, required: bool = False) -> str:
    """Render the output of `onnxgate matrix` as Markdown, without a heading."""
    lines = [f"**{escape_markdown(render_verdict(matrix))}**", ""]
    if matrix.models:
        wrong, unverified = list_wrong_predictions(matrix), list_unverified(matrix)
        lines += ["### ⚠️ Wrong predictions", ""] if wrong else []
        for path, releases, problem in wrong:
            subject = f"{markdown_code(truncate(path))} on {escape_markdown(releases)}"
            lines.append(f"- {subject}: {escape_markdown(problem)}")
        lines += ["", f"Please {REPORT_REQUEST}.", ""] if wrong else []
        lines += [*_render_markdown_table(matrix), ""] if has_table else []
        for answer in answer_matrix(matrix, required=required):
            lines += _render_markdown_answer(answer)
        lines += ["", "### Not verified", ""] if unverified else []
        lines += [
            f"- {escape_markdown(runtimes)}: {escape_markdown(reason)}" for reason, runtimes in unverified.items()
        ]
        lines += ["", "### Notes", ""] if matrix.remarks else []
        lines += [f"- {escape_markdown(truncate(remark, LONG_LIMIT))}" for remark in matrix.remarks]
    return "\n".join(neutralize_commands(line) for line in lines) + "\n"


def _render_markdown_answer(answer: ModelAnswer) -> Iterator[str]:
    word = f"**{answer.word}**" if answer.word == "FAIL" else answer.word
    first, *others = (markdown_code(truncate(model)) for model in answer.models)
    if others:
        yield f"- {word} {escape_markdown(answer.common_sentence)}"
        yield f"  - {', '.join((first, *others))}"
    else:
        yield f"- {word} {first}: {escape_markdown(answer.sentence)}"
    yield from (f"  - {kind}{escape_markdown(truncate(advice, LONG_LIMIT))}" for kind, advice in answer.advice)
    for finding in answer.others:
        yield f"  - {finding.level}: {escape_markdown(finding.text)}"
        if finding.fix:
            yield f"    - fix: {escape_markdown(finding.fix)}"


def _render_markdown_table(matrix: Matrix) -> Iterator[str]:
    columns = matrix_columns(matrix)
    yield from render_heads(columns, TABLE_PAGE)
    for index, model in enumerate(matrix.models):
        yield render_words(model.path, [column.cells[index] for column in columns])
    yield ""
    yield from render_legend(list_words(columns))
