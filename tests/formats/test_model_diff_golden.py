"""Every format of a sample model difference matches its golden file, and hostile text is not interpreted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import cmarkgfm
import jsonschema
import msgspec
import pytest
from msgspec import structs

from onnxgate.core.report_json import build_schema, encode_json
from onnxgate.formats import model_diff
from onnxgate.formats.model_diff import MAX_LINES, render_headline
from onnxgate.model.diff.result import Difference, NodeChange, Verdict, WeightChange
from tests.harness.reports.hostile_reports import ATTACKS
from tests.harness.reports.sample_diffs import sample
from tests.harness.reports.sample_reports import FOLDER

FORMATS = {"json": encode_json, "text": model_diff.format_text, "md": model_diff.format_markdown}


@pytest.mark.parametrize(("name", "format_"), FORMATS.items(), ids=FORMATS)
def test_the_sample(name: str, format_: Callable[[Difference], str]) -> None:
    """The output equals the golden file."""
    expected = (FOLDER / f"diff.{name}").read_bytes().decode()

    assert expected == format_(sample())


def test_colour_changes_no_character() -> None:
    """Without its escape sequences, colored output equals plain output."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", model_diff.format_text(sample(), color=True))

    assert model_diff.format_text(sample()) == plain


def test_a_narrow_terminal() -> None:
    """Lines are wrapped between words, and no word is lost."""
    narrow = model_diff.format_text(sample(), width=60)

    assert narrow.split() == model_diff.format_text(sample()).split()
    assert max(map(len, narrow.splitlines())) < max(map(len, model_diff.format_text(sample()).splitlines()))


def test_quiet_is_one_sentence() -> None:
    """With `--quiet` only the verdict is printed."""
    assert model_diff.format_text(sample(), quiet=True).count("\n") == 1


def test_sample_conforms_to_the_schema() -> None:
    """The JSON output is valid for the published schema."""
    jsonschema.Draft202012Validator(build_schema(Difference, "")).validate(json.loads(encode_json(sample())))


def many(number: int) -> Difference:
    """Return a difference with so many added nodes and weights."""
    nodes = (NodeChange(change="added", operator="Relu", name=f"r{i}", position=i) for i in range(number))
    weights = (WeightChange(change="added", name=f"w{i}", type="float", shape=(9,)) for i in range(number))
    return msgspec.structs.replace(sample(), nodes=tuple(nodes), weights=tuple(weights))


def test_long_lists_are_cut() -> None:
    """Long lists are truncated with a count, `-v` shows all, and a single line is never replaced by a count."""
    text = model_diff.format_text(many(50))

    assert text.count("and 30 more (use `-v` to show all)") == 2
    assert "  added: 50 `Relu`\n" in text
    assert "`r19`" in text
    assert "`r20`" not in text
    assert "`r49`" in model_diff.format_text(many(50), verbose=True)
    assert "more; `-v`" not in model_diff.format_text(many(MAX_LINES + 1))


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        ("identical", "identical: the files are byte-identical"),
        ("same", "equivalent except for version fields, metadata and node names"),
        ("undecided", "undecided: 1 weight could not be compared; the rest is equivalent except for"),
    ],
)
def test_headlines(verdict: Verdict, expected: str) -> None:
    """The headline names what is identical, and what differs without an effect."""
    actual = msgspec.structs.replace(
        sample(), verdict=verdict, harmless=("node names",), functions=(), files=(), weights=()
    )
    unread = (WeightChange(change="unreadable", name="w", text="cannot be compared: it is missing"),)
    actual = msgspec.structs.replace(actual, weights=unread if verdict == "undecided" else ())

    assert render_headline(actual).startswith(expected)


def hostile(text: str) -> Difference:
    """Return the sample with every string from a model replaced."""

    def replaced(value: object, key: str = "") -> object:
        match value:
            case dict():
                return {name: replaced(each, name) for name, each in value.items()}
            case list():
                return [replaced(each, key) for each in value]
            case str() if key not in ("change", "verdict", "role", "kind", "onnxgate"):
                return text
            case _:
                return value

    return msgspec.convert(replaced(json.loads(encode_json(sample()))), Difference)


@pytest.mark.parametrize("text", ATTACKS)
def test_hostile_strings(text: str) -> None:
    """No output contains workflow commands, escape sequences, or injected markup."""
    actual = hostile(text)
    for written in (model_diff.format_text(actual), model_diff.format_markdown(actual), encode_json(actual)):
        assert not re.search(r"(?m)^\s*::|##\[", written)
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", written)
    html = cmarkgfm.github_flavored_markdown_to_html(model_diff.format_markdown(actual))

    assert not re.search(r"<(a|img|script|table|h[1-6])\b", html)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [(7717, 15939, "+107 %"), (100, 10_000, "+9,900 %"), (1000, 1010, "+1 %"), (1000, 4, "-100 %")],
)
def test_growth_is_not_in_scientific_notation(old: int, new: int, message: str) -> None:
    """Large growth is not printed in scientific notation."""
    grown = structs.replace(
        sample(),
        old=structs.replace(sample().old, size_bytes=old),
        new=structs.replace(sample().new, size_bytes=new),
    )

    assert f"{old:,} → {new:,} bytes ({message})" in model_diff.format_text(grown)


def test_nearly_complete_change_is_shown_as_1() -> None:
    """A weight that changed by nearly its norm is shown as 1."""
    weight = WeightChange(
        change="changed", name="w", type="float", was_type="float", elements=9, total=9, relative=0.997
    )

    assert "relative L2 change 1, 9 of 9 elements changed" in model_diff.format_text(
        structs.replace(sample(), weights=(weight,))
    )


def test_weights_without_a_distance_come_first() -> None:
    """Weights without a distance, such as those with NaN or another shape, are listed and not only counted."""
    moved = [
        WeightChange(change="changed", name=f"w{n}", type="float", was_type="float", elements=1, total=9, relative=0.1)
        for n in range(40)
    ]
    broken = WeightChange(change="changed", name="broken", elements=1, total=9, text="1 element is, or was, NaN")
    output = model_diff.format_text(structs.replace(sample(), weights=(*moved, broken))).partition("\nweights")[2]

    assert "`broken`" in output.splitlines()[1]
