"""The HTML page in a real browser: no console messages, no requests, no horizontal scrolling, and both themes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from onnxgate.core.report import Drawing, DrawnNode, Report
from onnxgate.formats import html as html_page
from tests.harness.reports import chromium
from tests.harness.reports.hostile_reports import ATTACKS
from tests.harness.reports.sample_reports import finding, report, sample

EXECUTABLE = chromium.found()
pytestmark = [
    pytest.mark.surface,
    pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium on PATH, nor in ONNXGATE_TEST_CHROMIUM"),
]
WIDTHS = (390, 1280)
SCRIPTS = (
    "<script>window.attacked = 1</script>",
    '"><img src=x onerror="window.attacked=1">',
    "</style><script>window.attacked=1</script>",
    "</script><script>window.attacked=1</script>",
    "</title></svg><svg onload=window.attacked=1>",
    "' onfocus='window.attacked=1' autofocus='",
    "javascript:window.attacked=1",
    "<iframe src=https://example.com></iframe>",
    "<link rel=stylesheet href=https://example.com/x.css>",
    "<meta http-equiv=refresh content='0;url=https://example.com'>",
    "<base href=https://example.com>",
    "]]><script>window.attacked=1</script>",
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Browser]:
    """Start one browser for all tests."""
    assert EXECUTABLE is not None
    with chromium.browser(EXECUTABLE, tmp_path_factory.mktemp("profile")) as started:
        yield started


def show(page: chromium.Browser, folder: Path, shown: Report, *, width: int, theme: str = "light") -> str:
    """Open the report from a file and return its URL."""
    file = folder / "report.html"
    file.write_text(html_page.format(shown), encoding="utf-8", newline="\n")
    chromium.opened(page, file.as_uri(), width=width, theme=theme)
    return file.as_uri()


def complaints(page: chromium.Browser) -> list[object]:
    """Return all errors, warnings and policy violations that the page caused."""
    logged = [event["entry"] for event in page.named("Log.entryAdded")]
    return [*logged, *page.named("Runtime.consoleAPICalled"), *page.named("Runtime.exceptionThrown")]


def requests(page: chromium.Browser) -> list[str]:
    """Return all requested URLs."""
    return [event["request"]["url"] for event in page.named("Network.requestWillBeSent")]


def hostile() -> Report:
    """Return a report in which every string from a model is an attack or a long name without spaces."""
    attacks = (*SCRIPTS, *ATTACKS, "x" * 400, "/".join("deep" * 20 for _ in range(8)))
    actual = tuple(
        finding(f"{attack} `{attack}`", model=attack, node=attack, fix=attack, rule=attack) for attack in attacks
    )
    drawn = tuple(
        Drawing(model=attack, node=attack, nodes=(DrawnNode(name=attack, operator=attack, kind="failing"),), edges=())
        for attack in attacks
    )
    whole = sample()
    measured = tuple(
        replace(whole.measured[0], model=attack, output=attack, pair=attack, case=attack) for attack in attacks
    )
    cells = tuple(replace(whole.cells[0], model=attack) for attack in attacks)
    return replace(
        whole, findings=actual, drawings=drawn, measured=measured, cells=cells, remarks=attacks, scope="x" * 400
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("which", ["sample", "hostile"])
def test_page_logs_nothing_and_fits_the_window(
    page: chromium.Browser, tmp_path: Path, which: str, width: int, theme: str
) -> None:
    """The page logs nothing, requests only itself, and does not scroll horizontally."""
    address = show(page, tmp_path, sample() if which == "sample" else hostile(), width=width, theme=theme)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.evaluate("scrollTo(0, document.scrollingElement.scrollHeight)")

    assert [] == complaints(page)
    assert {address} == set(requests(page))
    assert page.evaluate("innerWidth") == width
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_hostile_strings_do_nothing(page: chromium.Browser, tmp_path: Path, width: int) -> None:
    """No injected script runs, and no injected element is in the document."""
    show(page, tmp_path, hostile(), width=width)
    page.evaluate("document.querySelectorAll('a[href^=\"#\"]').forEach(each => each.click())")

    assert page.evaluate("window.attacked === undefined") is True
    assert page.evaluate("document.querySelectorAll('img, iframe, link, base, script[src]').length") == 0
    assert page.evaluate("document.scripts.length") == 1
    assert page.evaluate("document.querySelectorAll('[onload], [onerror], [onfocus]').length") == 0


def test_both_themes_differ_and_the_button_turns_them(page: chromium.Browser, tmp_path: Path) -> None:
    """Light and dark theme have opposite contrast, and the button overrides the system's theme."""
    ground, ink = (f"getComputedStyle(document.body).{each}" for each in ("backgroundColor", "color"))
    seen = {}
    for theme in ("light", "dark"):
        show(page, tmp_path, sample(), width=1280, theme=theme)
        page.evaluate("try { localStorage.clear() } catch {}")
        show(page, tmp_path, sample(), width=1280, theme=theme)
        seen[theme] = tuple(sum(_numbers(page.evaluate(each))) for each in (ground, ink))
    page.evaluate("document.getElementById('theme').click()")  # from dark

    assert seen["light"][0] > 600 > 200 > seen["light"][1]
    assert seen["dark"][0] < 200 < 600 < seen["dark"][1]
    assert sum(_numbers(page.evaluate(ground))) == seen["light"][0]


def _numbers(color: str) -> list[int]:
    return [int(part) for part in color.removeprefix("rgb(").removesuffix(")").split(",")]


def test_the_filter_and_the_links(page: chromium.Browser, tmp_path: Path) -> None:
    """Search text and levels filter the findings; a link to a hidden finding resets the filter."""
    show(page, tmp_path, sample(), width=1280)
    shown = "[...document.querySelectorAll('.finding:not([hidden])')].map(each => each.id).join(' ')"

    page.evaluate("(s => { s.value = 'encoder 1.18'; s.dispatchEvent(new Event('input', {bubbles: true})) })(search)")
    assert page.evaluate(shown) == "finding-2"
    assert page.evaluate("document.querySelector('.controls output').textContent") == "1 of 7 shown"
    page.evaluate("(s => { s.value = ''; s.dispatchEvent(new Event('input', {bubbles: true})) })(search)")
    page.evaluate("document.querySelector('input[data-level=error]').click()")
    assert page.evaluate(shown) == "finding-4 finding-5 finding-6"
    page.evaluate("location.hash = 'finding-0'")
    page.evaluate("new Promise(done => setTimeout(done, 50))")
    assert page.evaluate(shown).startswith("finding-0 ")


def test_a_collapsed_finding_is_found(page: chromium.Browser, tmp_path: Path) -> None:
    """A link to a collapsed finding shows it, and a search includes collapsed findings."""
    many = tuple(finding(node=f"node_{number}", fingerprint=f"{number:016x}") for number in range(40))
    show(page, tmp_path, report(findings=many), width=1280)
    is_open = "document.querySelector('.more').open"
    collapsed = page.evaluate(is_open)
    page.evaluate("location.hash = 'finding-39'")
    page.evaluate("new Promise(done => setTimeout(done, 50))")
    linked = page.evaluate(is_open)
    page.evaluate("document.querySelector('.more').open = false")
    page.evaluate("(s => { s.value = 'node_39'; s.dispatchEvent(new Event('input', {bubbles: true})) })(search)")

    assert (collapsed, linked, page.evaluate(is_open)) == (False, True, True)


def test_without_its_script(page: chromium.Browser, tmp_path: Path) -> None:
    """Without JavaScript all content is readable, and controls that need it are hidden."""
    page.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        file = tmp_path / "report.html"
        file.write_text(html_page.format(sample()), encoding="utf-8")
        page.ask("Page.enable")
        page.events.clear()
        page.ask("Page.navigate", url=file.as_uri())
        while not page.named("Page.loadEventFired"):  # events arrive with responses, even errors
            with contextlib.suppress(AssertionError):
                page.ask("Page.getNavigationHistory")
        page.events.clear()
        document = page.ask("DOM.getDocument")["root"]["nodeId"]
        articles = page.ask("DOM.querySelectorAll", nodeId=document, selector=".finding:not([hidden])")["nodeIds"]
        hidden = page.ask("DOM.querySelectorAll", nodeId=document, selector="#theme[hidden], .controls[hidden]")
    finally:
        page.ask("Emulation.setScriptExecutionDisabled", value=False)

    assert len(articles) == 7
    assert len(hidden["nodeIds"]) == 2


def test_a_report_of_nothing(page: chromium.Browser, tmp_path: Path) -> None:
    """A report without runtimes or measurements is a valid page."""
    address = show(page, tmp_path, report(measured=(), cells=(), runtimes=()), width=390)

    assert [] == complaints(page)
    assert {address} == set(requests(page))
    assert page.evaluate("document.querySelector('h1').textContent").endswith("Pass")
