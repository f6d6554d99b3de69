"""Write the preview of a lock upgrade (`onnxgate lock --upgrade --preview`) as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onnxgate.core.escape import escape_unprintable, neutralize_commands, quote_name
from onnxgate.core.findings import name_runtimes, runtime_sort_key
from onnxgate.core.report import AddedRuntime, Finding, Measured, Preview
from onnxgate.core.text import pluralize, truncate
from onnxgate.formats import text, wording
from onnxgate.formats.text import Column, Terminal


def format(
    preview: Preview,
    command: str = "onnxgate lock --upgrade",
    *,
    color: bool = False,
    width: int = 0,
    quiet: bool = False,
) -> str:
    """Render the changes to the lock, their effect on each model, and the verdict of `check` after the upgrade.

    `command` is the command that writes the new lock.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            [paper.ink("changes to the lock" if preview.pins else "no changes to the lock", "heading")],
            *(paper.wrapped(pin, 2) for pin in preview.pins),
            [""],
            _render_findings("new findings", preview.breaks, paper),
            _render_findings("resolved findings", preview.repairs, paper),
            _render_findings("unchanged findings", preview.remains, paper),
            _render_table(preview, paper),
            _render_outputs(preview, paper),
            _render_undecided(preview, paper),
        ):
            lines += section
    lines += [
        f"after the upgrade: {text.render_verdict(preview.after, color=color)}",
        _render_tally(preview, command),
        "",
    ]
    return "\n".join(neutralize_commands(line) for line in lines)


def _render_findings(title: str, findings: Sequence[Finding], paper: Terminal) -> Iterator[str]:
    if not findings:
        return
    yield paper.ink(title, "heading")
    for finding in findings:
        level = paper.ink(finding.level, finding.level)
        subject = escape_unprintable(truncate(wording.finding_subject(finding)))
        yield f"  {level} {paper.ink(finding.rule, 'heading')} {subject}"
        yield from paper.wrapped(wording.render_message(finding), 4)
        if finding.fix:
            yield from paper.wrapped(finding.fix, 4, "fix: ")
    yield ""


def _render_table(preview: Preview, paper: Terminal) -> Iterator[str]:
    models = sorted({arrival.model for arrival in preview.arrivals})
    runtimes = sorted({arrival.runtime for arrival in preview.arrivals}, key=runtime_sort_key)
    if not models:
        return
    states = {(it.model, it.runtime): text.STATE_WORDS.get(it.state, it.state) for it in preview.arrivals}
    columns = [Column("", "", [quote_name(truncate(model)) for model in models])]
    for runtime in runtimes:
        engine, _, release = runtime.partition(" ")
        columns.append(Column(engine, release, [states.get((model, runtime), "–") for model in models]))
    yield from paper.table(columns, text.STYLES)
    yield ""


def _render_outputs(preview: Preview, paper: Terminal) -> Iterator[str]:
    for model in sorted({arrival.model for arrival in preview.arrivals}):
        yield paper.ink(quote_name(truncate(model)), "heading")
        groups: dict[str, list[str]] = {}
        for arrival in preview.arrivals:
            for sentence in _describe_differences(arrival) if arrival.model == model else ():
                groups.setdefault(sentence, []).append(arrival.runtime)
        added = [arrival.runtime for arrival in preview.arrivals]
        for sentence, runtimes in groups.items():
            yield from paper.wrapped(f"{name_runtimes(runtimes, added)}: {sentence}", 2)
        yield ""


def _describe_differences(arrival: AddedRuntime) -> list[str]:
    if arrival.unlike:
        return [f"outputs were not compared: {arrival.unlike}"]
    differences = [
        f"{_describe_difference(output)} (compared with {arrival.before})"
        for output in arrival.outputs
        if output.value != (None if output.metric in wording.RATIO_METRICS else 0)
    ]
    return differences or [f"outputs are bit-identical to {arrival.before}"]


def _describe_difference(row: Measured) -> str:
    output = f"`{truncate(row.output)}`"
    if row.value is None or row.bound is None:
        return f"{output}: the difference is not finite"
    if row.metric in wording.RATIO_METRICS:
        actual, needed = (wording.RATIO_METRICS[row.metric].format(value) for value in (row.value, row.bound))
        return f"{output}: {actual}, minimum {needed}"
    if row.metric != "worst_abs":
        return f"{output}: {row.metric} differs"
    return f"{output}: max difference {row.value:.2g}, tolerance {row.bound:.2g}"


def _render_undecided(preview: Preview, paper: Terminal) -> Iterator[str]:
    gaps = wording.merge_gaps((*preview.undecided, *preview.after.undecided))
    if not gaps:
        return
    yield paper.ink("undecided", "heading")
    for gap in gaps:
        yield from paper.wrapped(f"{gap.about(preview.after)}: {gap.reason}", 2)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""


def _render_tally(preview: Preview, command: str) -> str:
    is_incomplete = bool(preview.arrivals and preview.after.undecided)
    parts = [
        pluralize(len(preview.breaks), "new finding") if preview.breaks else "no new findings",
        f"{len(preview.repairs)} resolved" if preview.repairs else "",
        f"{pluralize(len(preview.beyond), 'output')} beyond tolerance" if preview.beyond else "",
        "some checks were undecided" if is_incomplete else "",
    ]
    write_hint = f"; run `{escape_unprintable(command)}` to upgrade" if preview.pins else ""
    return f"preview: {', '.join(part for part in parts if part)}; the lock was not changed{write_hint}"
