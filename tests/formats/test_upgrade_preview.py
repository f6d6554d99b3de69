"""The preview of an upgrade as text and Markdown: a real preview, hostile text, and size limits."""

from __future__ import annotations

import html
import re

import cmarkgfm
import jsonschema
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onnxgate.core.report import AddedRuntime, NotDone, Preview, UpgradeProposal
from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.formats import upgrade_preview
from onnxgate.formats.wording import HOME_URL
from tests.harness.github import workflow_commands
from tests.harness.reports.hostile_reports import FIGURES, FINDINGS, NOT_DONE, PATH, REPORTS, RUNTIME, STATES, TEXT
from tests.harness.reports.sample_reports import FOLDER, finding

slow = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=60)
OUR_ELEMENTS = {
    *("p", "strong", "table", "thead", "tbody", "tr", "th", "td", "ul", "li", "code", "br", "h3"),
    *("details", "summary", "a"),
}
RULE_LINK = f'<a href="{HOME_URL}/blob/main/docs/rules/'
MAX_DESCRIPTION_CHARACTERS = 65_536
MARGIN = 5_000
"""Characters that the action adds to the preview in the description of a pull request."""

ARRIVALS = st.builds(
    AddedRuntime,
    model=PATH,
    runtime=RUNTIME,
    state=STATES,
    breaks=st.lists(FINDINGS, max_size=2).map(tuple),
    outputs=st.lists(FIGURES, max_size=2).map(tuple),
    before=TEXT,
    unlike=st.just("") | TEXT,
)
PREVIEWS = st.builds(
    Preview,
    pins=st.lists(TEXT, max_size=2).map(tuple),
    arrivals=st.lists(ARRIVALS, max_size=3).map(tuple),
    others=st.lists(FINDINGS, max_size=1).map(tuple),
    repairs=st.lists(FINDINGS, max_size=2).map(tuple),
    remains=st.lists(FINDINGS, max_size=1).map(tuple),
    undecided=st.lists(NOT_DONE, max_size=2).map(tuple),
    after=REPORTS,
)


def sample() -> UpgradeProposal:
    """Return the proposal of a real upgrade from onnxruntime 1.17.3 to 1.18.1, which repairs and breaks a model."""
    return msgspec.json.decode((FOLDER / "preview.json").read_bytes(), type=UpgradeProposal)


def test_the_sample_as_markdown() -> None:
    """The output equals the golden file."""
    expected = (FOLDER / "preview.md").read_bytes().decode()

    assert expected == upgrade_preview.format_markdown(sample().preview)


def test_the_sample_as_text() -> None:
    """The output equals the golden file."""
    preview = sample().preview
    assert preview is not None
    expected = (FOLDER / "preview.text").read_bytes().decode()

    assert expected == upgrade_preview.format(preview)


def test_sample_conforms_to_the_schema() -> None:
    """The JSON output is valid for the published schema, and encoding preserves it."""
    document = (FOLDER / "preview.json").read_bytes()

    jsonschema.Draft202012Validator(build_schema(UpgradeProposal, "")).validate(msgspec.json.decode(document))
    assert document.decode() == encode_json(sample())


def test_nothing_to_upgrade() -> None:
    """Without changes, the page is one sentence."""
    assert (
        upgrade_preview.format_markdown(None)
        == "No changes: the lock already has the newest releases that the config allows.\n"
    )


@slow
@given(preview=PREVIEWS, command=TEXT)
def test_page_contains_only_our_markdown(preview: Preview, command: str) -> None:
    """As rendered by GitHub, the page has only expected elements, no other links or mentions, and complete tables."""
    page = upgrade_preview.format_markdown(preview, command)
    rendered = cmarkgfm.github_flavored_markdown_to_html(page, cmarkgfm.Options.CMARK_OPT_UNSAFE)
    outside_code = html.unescape(re.sub(r"<code>.*?</code>", "", rendered, flags=re.DOTALL))

    assert [] == list(workflow_commands.commands(page))
    assert page.replace("\n", "").isprintable()
    assert set() == set(re.findall(r"<(\w+)", rendered)) - OUR_ELEMENTS
    assert not re.search(r"@user|#12\b|https?://", outside_code.replace(RULE_LINK, ""))
    for table in re.findall(r"<table>(.*?)</table>", rendered, flags=re.DOTALL):
        rows = re.findall(r"<tr>(.*?)</tr>", table, flags=re.DOTALL)
        assert len({len(re.findall(r"<t[dh]\b", row)) for row in rows}) == 1


@pytest.mark.parametrize("character", ["x", "模", "|", "`", "<"])
def test_page_fits_into_a_description(character: str) -> None:
    """The page has room for GitHub's limit, whatever the preview contains, and counts what it leaves out."""
    preview = sample().preview
    assert preview is not None
    long = character * 5_000
    findings = tuple(finding(f"{long}{number}", rule=f"r{number}", fix=long, model=long) for number in range(300))
    gaps = tuple(
        NotDone(stage=long, model=long, runtime="", reason=f"{long}{number}", hint=long) for number in range(300)
    )
    arrivals = tuple(
        AddedRuntime(model=f"{number}{long}", runtime=f"onnxruntime 1.{minor}.{long}", state="fail", unlike=long)
        for number in range(100)
        for minor in range(20)
    )
    large = msgspec.structs.replace(
        preview,
        pins=(long,) * 300,
        arrivals=arrivals,
        others=findings,
        repairs=findings,
        remains=findings,
        undecided=gaps,
    )
    page = upgrade_preview.format_markdown(large, long)

    assert len(page) < MAX_DESCRIPTION_CHARACTERS - MARGIN
    assert page.count("prints all") == 6
