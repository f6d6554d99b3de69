"""The script `tools/generate_support_page.py`: data, size and content of the compatibility page without a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onnxgate.support import operators
from onnxgate.support.answers import queries
from onnxgate.support.answers.operator_answers import OperatorSupport, SupportSpan, TypeSupport, VersionSupport
from onnxgate.support.answers.queries import describe_operator, list_operators
from onnxgate.support.answers.release_answers import match_nodes

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import generate_support_page as tool

ROOT = Path(__file__).resolve().parents[2]
FLOAT, HALF, DOUBLE = "tensor(float)", "tensor(float16)", "tensor(double)"
RELEASES = operators.list_known_releases()
PUBLISHED = "https://onnxgate.github.io/onnxgate/support.html"


def supported(since: str = RELEASES[0], reason: str = "") -> tuple[SupportSpan, ...]:
    """Return support by a kernel since a release."""
    first = RELEASES.index(since)
    kernel = SupportSpan(since, RELEASES[-1], "kernel")
    return (SupportSpan(RELEASES[0], RELEASES[first - 1], "none", reason), kernel) if first else (kernel,)


def operator(name: str, *types: TypeSupport, domain: str = "ai.onnx", since: str = RELEASES[0]) -> OperatorSupport:
    """Return an operator with one version."""
    version = VersionSupport(
        version=7, first_opset=7, last_opset=None, deprecated=False, spans=supported(since), types=types
    )
    return OperatorSupport("onnxruntime", domain, name, (version,))


def data(page: str) -> Any:
    """Return the data in a page."""
    found = re.search(r'<script type="application/json" id="support-data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


@pytest.fixture(scope="module")
def whole(support_answers: dict[str, list[OperatorSupport]]) -> str:
    """Return the page with all tables."""
    return tool.render_page(support_answers)


def test_equal_reasons_of_different_operators_are_shared() -> None:
    """Reasons do not contain names and types of their operator, so that they are stored once."""
    reasons = (
        (name, value_type, f"there is no kernel for `{name}(7)` with `T` = `{value_type}`")
        for name in ("Add", "Sub")
        for value_type in (HALF, DOUBLE)
    )
    by_type = [
        (name, TypeSupport("T", value_type, supported(RELEASES[3], reason))) for name, value_type, reason in reasons
    ]
    page = tool.render_page(
        {"onnxruntime": [operator(name, *(it for of, it in by_type if of == name)) for name in ("Add", "Sub")]}
    )

    encoded = data(page)
    assert encoded["reasons"] == ["there is no kernel for $o with $p = $t"]
    assert encoded["spans"] == [f"3x0,{len(RELEASES) - 3}k", f"{len(RELEASES)}k"]
    assert encoded["parameters"] == [["T", [[0, 0]]]]
    assert encoded["engines"][0]["operators"] == {"ai.onnx": {"Add": [[7, 7, 0, 1, [0]]], "Sub": [[7, 7, 0, 1, [0]]]}}


def test_limits_are_stored_only_where_they_change() -> None:
    """The first release with new limits has a row; the releases after it have the same limits."""
    encoded = tool.encode_limits("onnxruntime")
    rows = {encoded["releases"][row[0]]: row[1:] for row in encoded["rows"]}

    assert rows["1.18.0"][0] == 10
    assert rows["1.18.0"][1]["ai.onnx"] == 21
    assert "1.18.1" not in rows
    assert rows["1.28.0"][2] == {"ai.onnx": 27}


def test_index_lists_the_first_release_of_the_newest_version() -> None:
    """Without JavaScript, readers and search engines find each operator and the release that added it."""
    answers = [operator("Add"), operator("Gelu", since=RELEASES[5]), operator("Gelu", domain="com.microsoft")]
    index = tool.render_index(answers, RELEASES[0])

    assert re.findall("<h3.*</h3>|<li.*</li>", index) == [
        '<h3 id="ai.onnx">ai.onnx <span class="quiet">2 operators</span></h3>',
        f'<li id="Add"><a href="#Add">Add</a> <span>7</span> <span>≤ {RELEASES[0]}</span></li>',
        f'<li id="Gelu"><a href="#Gelu">Gelu</a> <span>7</span> <span>{RELEASES[5]}</span></li>',
        '<h3 id="com.microsoft">com.microsoft <span class="quiet">1 operator</span></h3>',
        '<li id="com.microsoft.Gelu"><a href="#com.microsoft.Gelu">Gelu</a> <span>7</span> '
        f"<span>≤ {RELEASES[0]}</span></li>",
    ]


def test_names_in_tables_cannot_end_the_script() -> None:
    """Text of the tables is escaped in HTML and in the data."""
    page = tool.render_page({"onnxruntime": [operator("</script><script>alert(1)</script>")]})

    assert page.count("</script>") == 2
    assert "<script>alert" not in page


def test_page_needs_nothing_from_elsewhere() -> None:
    """The page has no reference to another file but the link to the documentation, and forbids requests."""
    page = tool.render_page({"onnxruntime": [operator("Add")]})
    policy = re.search(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)

    assert set(re.findall(r'(?:src|href)="([^"#]+)', page)) == {"index.html", PUBLISHED}
    assert re.findall(r"https?://|@import|url\(|<link.*?>|<img|<iframe", page) == [
        f'<link rel="canonical" href="{PUBLISHED}">'
    ]
    assert policy
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+'; base-uri 'none'; form-action 'none'",
        policy[1],
    )


def test_page_names_its_topic_for_search_engines() -> None:
    """Title, heading and description contain what people search for, and headings do not skip a level."""
    page = tool.render_page(
        {"onnxruntime": [operator("Gelu")], "openvino": [], "tract": []}  # the other engines need no operators here
    )
    described = re.search(r'<meta name="description" content="(.*?)">', page)
    levels = [int(level) for level in re.findall(r"<h(\d)", page.partition("<script")[0])]

    assert f"<title>ONNX Runtime operator support by version ({RELEASES[0]}–{RELEASES[-1]}) – onnxgate</title>" in page
    assert "<h1>ONNX Runtime operator support by version</h1>" in page
    assert described
    assert described[1].startswith("Which ONNX Runtime version supports which ONNX operator, opset and type?")
    assert described[1].endswith("Also for OpenVINO and tract.")
    assert levels.count(1) == 1
    assert all(level <= before + 1 for before, level in pairwise(levels))


def test_long_names_continue_between_words() -> None:
    """A long name in the list may be split before a capital letter; search and links have the whole name."""
    index = tool.render_index([operator("MeanVarianceNormalization"), operator("LayerNormalization")], RELEASES[0])

    assert re.findall("<a .*?</a>", index) == [
        '<a href="#MeanVarianceNormalization">Mean<wbr>Variance<wbr>Normalization</a>',
        '<a href="#LayerNormalization">LayerNormalization</a>',
    ]


def test_origin_of_other_engines_names_the_releases_that_loaded_models() -> None:
    """The footer does not claim more than the harvest does, which skips releases in a series."""
    engine = tool.describe_engine("tract", [])

    assert (
        "on the oldest and the newest release of each series (such as OpenVINO 2026 or tract 0.23)" in engine["basis"]
    )
    assert engine["basis"].endswith("CPU). tract refuses many models although it supports each of their nodes.")


def test_number_of_supported_operators_is_stated() -> None:
    """A list with operators that an engine does not implement does not suggest that it does."""
    never = (SupportSpan(RELEASES[0], RELEASES[-1], "none"),)
    refused = OperatorSupport("onnxruntime", "ai.onnx", "Sub", (VersionSupport(7, 7, None, False, never, ()),))
    engine = tool.describe_engine("onnxruntime", [operator("Add"), operator("Gelu", since=RELEASES[5]), refused])

    assert engine["lead"] == (
        f"Which of {len(RELEASES)} releases, {RELEASES[0]}–{RELEASES[-1]}, run which operators, by opset and type. "
        "2 of the 3 listed operators are supported by at least one release."
    )


def test_tool_describes_its_use(tmp_path: Path) -> None:
    """`--help` does not write a file with this name."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "generate_support_page.py", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("usage: generate_support_page.py [-h] FILE\n")
    assert list(tmp_path.iterdir()) == []


def test_too_large_page_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documentation cannot be built with a page that exceeds the limit."""
    monkeypatch.setattr(tool, "collect_answers", lambda: {"onnxruntime": [operator("Add")]})
    monkeypatch.setattr(tool, "MAX_SIZE_BYTES", 1000)

    with pytest.raises(ValueError, match="the limit is 1,000"):
        tool.write_page(tmp_path / "support.html")
    assert not (tmp_path / "support.html").exists()


@pytest.mark.full
def test_whole_page_is_small_and_complete(whole: str) -> None:
    """The page with all tables has each operator, and is below 400 KB."""
    engine = data(whole)["engines"][0]
    operators_of_page = {(domain, name) for domain, names in engine["operators"].items() for name in names}

    assert len(whole.encode()) < 400_000
    assert operators_of_page == set(list_operators())


@pytest.mark.full
@pytest.mark.parametrize("engine", ["onnxruntime", "onnxruntime-web"])
def test_answers_that_releases_share_are_those_of_each_release(
    engine: str, support_answers: dict[str, list[OperatorSupport]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Releases with the same operator share an answer only if no rule of the matching distinguishes these releases.

    If this fails, a new rule depends on the release: `support/answers/release_answers` has to know its operators.
    """
    monkeypatch.setattr(queries, "match_nodes", lambda release, nodes: (match_nodes(release, nodes)[0], False))

    assert [
        answer
        for domain, name in list_operators(engine)
        for answer in describe_operator(name, domain=domain, engine=engine)
    ] == support_answers[engine]


def test_page_is_deterministic() -> None:
    """The same tables yield the same bytes, although the order of sets differs between processes."""
    code = (
        "import hashlib, generate_support_page as tool; "
        "from onnxgate.support.answers.queries import describe_operator; "
        "answers = [describe_operator(name)[0] for name in ('Add', 'Cast', 'Gelu')]; "
        "print(hashlib.sha256(tool.render_page({'onnxruntime': answers}).encode()).hexdigest())"
    )
    pages = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tools")))},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(pages) == 1


def test_data_of_an_operator_is_the_answer() -> None:
    """The spans in the data, with names and types filled in, are those of `describe_operator`."""
    answer = describe_operator("Cast", domain="ai.onnx")[0]
    encoded = data(tool.render_page({"onnxruntime": [answer]}))
    version = next(it for it in answer.versions if it.version == 21)
    row = next(it for it in encoded["engines"][0]["operators"]["ai.onnx"]["Cast"] if it[0] == 21)
    actual = {
        (parameter, encoded["types"][index]): encoded["spans"][spans]
        for parameter, groups in (encoded["parameters"][index] for index in row[4])
        for types, spans in groups
        for index in encoded["sets"][types]
    }

    assert {key: "".join(re.findall("[a-z]", spans)) for key, spans in actual.items()} == {
        (it.parameter, it.type): "".join(tool.WAY_CODES[span.way] for span in it.spans) for it in version.types
    }


def test_page_states_what_limits_support() -> None:
    """The page has the conditions of the answers, also for releases that support an operator."""
    answers = {
        "openvino": list(describe_operator("SequenceInsert", engine="openvino")),
        "tract": list(describe_operator("If", engine="tract")),
    }
    encoded = data(tool.render_page(answers))

    assert "only in a `Loop`" in encoded["reasons"]
    assert "tract refuses many models with control flow, so they have no prediction" in encoded["reasons"]
