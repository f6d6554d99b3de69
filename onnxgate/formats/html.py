"""The report as one file for a browser: nothing is fetched, and no string of a model acts in it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

from onnxgate.formats import html_figures, html_findings, html_overview, phrases
from onnxgate.formats.html_marks import VERDICTS, anchors
from onnxgate.formats.html_markup import Markup, escaped, joined, lines, tag
from onnxgate.report import Report

TITLES = {
    "changes": "Changes",
    "matrix": "Matrix",
    "findings": "Findings",
    "undecided": "Undecided",
    "skipped": "Skipped",
    "agreement": "Agreement",
    "ignored": "Ignored",
    "replay": "Replay",
    "inventory": "Inventory",
}


def format(report: Report) -> str:
    """A page in HTML 5 that works without its script, in light and dark, on paper and on a phone."""
    parts = {name: part for name, part in _parts(report) if part is not None}
    style, script = _asset("html.css"), _asset("html.js")
    body = lines(
        tag("a", "To the findings", href="#main", class_="skip"),
        html_overview.banner(report),
        _navigation(parts),
        tag("main", lines(parts.values()), id="main"),
        tag("footer", f"onnxgate {report.onnxgate}"),
        tag("script", Markup(script)),
    )
    page = tag("html", _head(report, style, script), tag("body", body), lang="en")
    return f"<!doctype html>\n{page}\n"


def _parts(report: Report) -> Iterator[tuple[str, Markup | None]]:
    places = anchors(report)
    yield "changes", html_overview.changed(report)
    yield "matrix", html_overview.matrix(report, places)
    yield "findings", html_findings.findings(report, places)
    yield "undecided", html_findings.gaps("Could not be decided", "undecided", report.undecided, report)
    yield "skipped", html_findings.gaps("Skipped", "skipped", report.skipped, report)
    yield "agreement", html_figures.section(report)
    yield "ignored", html_findings.ignored(report)
    yield "replay", html_findings.replays(report)
    yield "inventory", html_findings.inventory(report)


def _navigation(parts: dict[str, Markup]) -> Markup:
    links = (tag("a", TITLES[name], href=f"#{name}") for name in parts)
    return tag("nav", joined(links, "\n"), aria_label="sections")


def _head(report: Report, style: str, script: str) -> Markup:
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = f"{VERDICTS[report.verdict][1]}: {phrases.count(len(report.models), 'model')} - onnxgate"
    return tag(
        "head",
        lines(
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="color-scheme", content="light dark"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", escaped(title)),
            tag("style", Markup(style)),
        ),
    )


def _asset(name: str) -> str:
    from importlib.resources import files

    text = files("onnxgate.formats").joinpath(name).read_text(encoding="utf-8")
    return f"\n{text.replace(chr(13), '')}"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
