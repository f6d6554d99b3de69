"""What was found, what could not be done, what is ignored, and how to see it again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from onnxgate.formats import phrases
from onnxgate.formats.html_drawing import picture
from onnxgate.formats.html_marks import LEVELS, Anchors
from onnxgate.formats.html_markup import Child, Markup, code, joined, lines, prose, tag
from onnxgate.report import Finding, NotDone, Replay, Report, ReportedModel, ReportedRuntime


def findings(report: Report, anchors: Anchors) -> Markup | None:
    """Those that count, by model; each with its picture."""
    if not anchors.findings:
        return None
    numbers = {id(finding): index for index, finding in enumerate(anchors.findings)}
    return tag(
        "section",
        tag("h2", "Findings"),
        _controls(anchors.findings),
        lines(
            _group(subject, [(numbers[id(each)], each) for each in group], report, anchors)
            for subject, group in phrases.by_subject(anchors.findings)
        ),
        id="findings",
    )


def _controls(findings: Sequence[Finding]) -> Markup:
    """Shown by the script alone, which they need."""
    boxes = (
        tag("label", tag("input", type="checkbox", checked=True, data_level=level), f" {phrases.count(count, level)}")
        for level in phrases.LEVELS
        if (count := sum(finding.level == level for finding in findings))
    )
    search = tag("input", type="search", id="search", placeholder="model, rule, node, runtime", autocomplete="off")
    return tag(
        "form",
        tag("label", "Filter ", search),
        boxes,
        tag("output", class_="quiet", aria_live="polite"),
        class_="controls",
        hidden=True,
    )


def _group(subject: str, found: Sequence[tuple[int, Finding]], report: Report, anchors: Anchors) -> Markup:
    cards = lines(_finding(index, finding, report, anchors) for index, finding in found)
    return tag("section", tag("h3", code(phrases.short(subject))), cards, class_="group")


def _finding(index: int, finding: Finding, report: Report, anchors: Anchors) -> Markup:
    head = tag(
        "h4",
        tag("span", tag("span", LEVELS[finding.level], aria_hidden="true"), f" {finding.level}", class_="level"),
        " ",
        tag("a", code(finding.rule), href=f"#finding-{index}"),
    )
    return tag(
        "article",
        head,
        tag("p", prose(phrases.said(finding)), class_="message"),
        tag("p", tag("strong", "Fix "), prose(phrases.short(finding.fix, phrases.LONG)), class_="fix")
        if finding.fix
        else None,
        tag("dl", (tag("div", tag("dt", name), tag("dd", value)) for name, value in _facts(finding, report))),
        _drawing(index, finding, anchors),
        id=f"finding-{index}",
        class_=f"finding {finding.level}",
        data_level=finding.level,
    )


def _drawing(index: int, finding: Finding, anchors: Anchors) -> Markup | None:
    """Where its node stands in the model; drawn once, however many findings name it."""
    drawing = anchors.drawing_of(finding)
    if drawing is None:
        return None
    first = anchors.drawn_first(finding)
    return (
        picture(drawing) if first == index else tag("p", tag("a", "its node is drawn above", href=f"#finding-{first}"))
    )


def _aside(word: str, text: str) -> Markup | None:
    """A line that a word introduces; none where there is nothing to say."""
    if not text:
        return None
    return tag("p", tag("strong", f"{word} "), prose(phrases.short(text, phrases.LONG)), class_="fix")


def _facts(finding: Finding, report: Report) -> Iterator[tuple[str, Child]]:
    """What is known of a finding beside its message, by what it is called."""
    yield "at", code(phrases.short(phrases.place(finding.place)))
    if finding.node:
        yield "node", code(phrases.short(finding.node))
    if finding.runtimes:
        yield "runtimes", phrases.short(phrases.runtimes(finding.runtimes, report), phrases.LONG)
    if finding.works_since:
        yield "works since", finding.works_since
    if finding.works_until:
        yield "works until", finding.works_until
    yield "stage", finding.stage
    if finding.fingerprint:
        yield "fingerprint", code(finding.fingerprint)


def gaps(title: str, anchor: str, items: Sequence[NotDone], report: Report) -> Markup | None:
    """What was not done, each reason once."""
    if not items:
        return None
    return tag("section", tag("h2", title), tag("ul", lines(_gaps(items, report)), class_="gaps"), id=anchor)


def _gaps(items: Iterable[NotDone], report: Report) -> Iterator[Markup]:
    for gap in phrases.gaps(items):
        about, reason = gap.about(report), phrases.short(gap.reason, phrases.LONG)
        yield tag("li", tag("p", prose(about), class_="about"), tag("p", prose(reason)), _aside("Hint", gap.hint))


def ignored(report: Report) -> Markup | None:
    """What the config accepts, and why."""
    accepted = phrases.ignored(report)
    if not accepted:
        return None
    return tag("section", tag("h2", "Ignored"), tag("ul", lines(map(_accepted, accepted)), class_="gaps"), id="ignored")


def _accepted(finding: Finding) -> Markup:
    rule = joined((code(finding.rule), " in ", code(phrases.short(phrases.subject(finding)))))
    said = tag("p", prose(phrases.said(finding)))
    return tag("li", tag("p", rule, class_="about"), said, _aside("Reason", finding.ignored))


def replays(report: Report) -> Markup | None:
    """Commands that show findings again."""
    if not report.replays:
        return None
    where = joined(("in ", code(report.folder))) if report.folder else "in the repository's folder"
    return tag(
        "section",
        tag("h2", "Replay"),
        tag("p", "Each command shows again what was found when a model ran; type it ", where, class_="lead"),
        lines(map(_replay, report.replays)),
        id="replay",
    )


def _replay(replay: Replay) -> Markup:
    rules = joined((code(rule) for rule in replay.rules), ", ")
    command = tag("pre", code(replay.command), tabindex=0)
    return tag("div", tag("p", code(phrases.short(replay.model)), ": ", rules), command, class_="replay")


def inventory(report: Report) -> Markup:
    """Which files and which runtimes this is about, exactly."""
    return tag(
        "section",
        tag("h2", "Models and runtimes"),
        tag("details", tag("summary", phrases.count(len(report.models), "model")), _models(report.models)),
        tag("details", tag("summary", phrases.count(len(report.runtimes), "runtime")), _runtimes(report.runtimes)),
        id="inventory",
    )


def _models(models: Sequence[ReportedModel]) -> Markup:
    rows = ((code(phrases.short(model.path)), code(model.sha256 or "-")) for model in models)
    return _table(("model", "sha256"), rows)


def _runtimes(runtimes: Sequence[ReportedRuntime]) -> Markup:
    return _table(
        ("target", "runtime", "Python", "providers"),
        (
            (each.target, f"{each.engine} {each.version}", each.python or "its own", ", ".join(each.providers))
            for each in runtimes
        ),
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    body = lines(tag("tr", (tag("td", cell) for cell in row)) for row in rows)
    head = tag("thead", tag("tr", (tag("th", each, scope="col") for each in heads)))
    table = tag("table", head, tag("tbody", body), class_="figures")
    return tag("div", table, class_="scroll", tabindex=0, role="group", aria_label=heads[0])
