"""The preview of an upgrade as text."""

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
    """Render changes of the lock, their effect on each model, and the verdict of `check` after them.

    `command` writes the lock.
    """
    paper = Terminal(color, width)
    lines: list[str] = []
    if not quiet:
        for section in (
            [paper.ink("would change in the lock" if preview.pins else "nothing would change in the lock", "heading")],
            *(paper.wrapped(pin, 2) for pin in preview.pins),
            [""],
            _render_findings("would break", preview.breaks, paper),
            _render_findings("would be repaired", preview.repairs, paper),
            _render_findings("stays as it is", preview.remains, paper),
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
    """Yield the state of each model on the runtimes that the upgrade adds."""
    models = sorted({arrival.model for arrival in preview.arrivals})
    runtimes = sorted({arrival.runtime for arrival in preview.arrivals}, key=runtime_sort_key)
    if not models:
        return
    states = {(it.model, it.runtime): text.STATE_WORDS.get(it.state, it.state) for it in preview.arrivals}
    columns = [Column("", "", [quote_name(truncate(model)) for model in models])]
    for runtime in runtimes:
        engine, _, release = runtime.partition(" ")
        columns.append(Column(engine, release, [states.get((model, runtime), "-") for model in models]))
    yield from paper.table(columns, text.STYLES)
    yield ""


def _render_outputs(preview: Preview, paper: Terminal) -> Iterator[str]:
    """Yield the changes of outputs; runtimes with equal changes share a line."""
    for model in sorted({arrival.model for arrival in preview.arrivals}):
        yield paper.ink(quote_name(truncate(model)), "heading")
        groups: dict[str, list[str]] = {}
        for arrival in preview.arrivals:
            for sentence in _describe_moves(arrival) if arrival.model == model else ():
                groups.setdefault(sentence, []).append(arrival.runtime)
        added = [arrival.runtime for arrival in preview.arrivals]
        for sentence, runtimes in groups.items():
            yield from paper.wrapped(f"{name_runtimes(runtimes, added)}: {sentence}", 2)
        yield ""


def _describe_moves(arrival: AddedRuntime) -> list[str]:
    if arrival.unlike:
        return [f"outputs were not compared: {arrival.unlike}"]
    moved = [
        f"{_describe_move(output)}, against {arrival.before}"
        for output in arrival.outputs
        if output.value != (None if output.metric in wording.RATIO_METRICS else 0)
    ]
    return moved or [f"gives the same outputs, bit for bit, as {arrival.before}"]


def _describe_move(row: Measured) -> str:
    output = f"`{truncate(row.output)}`"
    if row.value is None or row.bound is None:
        return f"{output} has no finite difference"
    if row.metric in wording.RATIO_METRICS:
        actual, needed = (wording.RATIO_METRICS[row.metric].format(value) for value in (row.value, row.bound))
        return f"{output} keeps {actual} ({needed} is needed)"
    if row.metric != "worst_abs":
        return f"{output} differs: {row.metric}"
    return f"{output} moves by up to {row.value:.2g} ({row.bound:.2g} is allowed)"


def _render_undecided(preview: Preview, paper: Terminal) -> Iterator[str]:
    gaps = wording.merge_gaps((*preview.undecided, *preview.after.undecided))
    if not gaps:
        return
    yield paper.ink("could not be found out", "heading")
    for gap in gaps:
        yield from paper.wrapped(f"{gap.about(preview.after)}: {gap.reason}", 2)
        if gap.hint:
            yield from paper.wrapped(gap.hint, 4, "hint: ")
    yield ""


def _render_tally(preview: Preview, command: str) -> str:
    is_open = bool(preview.arrivals and preview.after.undecided)
    unbroken = "what would break could not all be found out" if is_open else "nothing would break"
    parts = [
        f"{len(preview.breaks)} would break" if preview.breaks else unbroken,
        f"{len(preview.repairs)} would be repaired" if preview.repairs else "",
        f"{pluralize(len(preview.beyond), 'output')} would change by more than is allowed" if preview.beyond else "",
    ]
    write_hint = f"; `{escape_unprintable(command)}` writes it" if preview.pins else ""
    return f"preview: {', '.join(part for part in parts if part)}; nothing was written{write_hint}"
