"""The compatibility page in a real browser: answers, search, addresses, comparison, keyboard, phones and themes."""

from __future__ import annotations

import contextlib
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from onnxgate.support.answers.operator_answers import OperatorSupport, SupportSpan, TypeSupport, VersionSupport
from onnxgate.support.answers.queries import describe_operator, find_newest_versions
from onnxgate.support.limits import Limits, LimitTable
from onnxgate.support.operators import Table, TableSource, list_known_releases
from tests.harness.reports import chromium

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import generate_support_page as tool

EXECUTABLE = chromium.found()
pytestmark = [
    pytest.mark.surface,
    pytest.mark.skipif(EXECUTABLE is None, reason="no Chromium on PATH, nor in ONNXGATE_TEST_CHROMIUM"),
]
LABELS = {
    "kernel": "kernel",
    "converted": "supported",
    "function": "function body",
    "cast": "casts to float",
    "folded": "removed at load",
    "unknown": "not known",
    "none": "not supported",
}
ADDRESSES = ("", "#Gelu", "#Cast/21/float16", "#compare/1.17.1/1.18.0", "#export/1.18.0/1.32.0", "#NoSuchOperator")
WIDTHS = (360, 390, 1280)
READ_ANSWERS = """
async (addresses) => {
  const answers = [];
  document.documentElement.style.display = addresses.length > 99 ? "none" : "";  // many are read without drawing them
  for (const address of addresses) {
    const changed = new Promise((done) => addEventListener("hashchange", done, { once: true }));
    if (location.hash !== address) {
      location.hash = address;
      await changed;
    }
    answers.push({
      message: document.getElementById("message").hidden ? "" : document.getElementById("message").textContent,
      answers: [...document.querySelectorAll(".answer")].map((answer) => [
        answer.querySelector("h3")?.textContent ?? "",
        [...answer.querySelectorAll(".spans tr")].map((row) => [
          row.querySelector(".range").textContent,
          row.querySelector("td").textContent,
        ]),
      ]),
    });
  }
  return answers;
}
"""


class Page(NamedTuple):
    """A browser and the page's URL."""

    browser: chromium.Browser
    url: str
    answers: Mapping[str, Sequence[OperatorSupport]]  # by engine

    def open(self, address: str = "", *, width: int = 1280, theme: str = "light") -> None:
        """Reload the page at an address."""
        self.browser.ask("Page.navigate", url="about:blank")
        chromium.opened(self.browser, self.url + address, width=width, theme=theme)

    def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}
        for key in keys:
            text = {"text": "\r"} if key == "Enter" else {}
            event = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], **text}
            self.browser.ask("Input.dispatchKeyEvent", type="keyDown", **event)
            self.browser.ask("Input.dispatchKeyEvent", type="keyUp", **event)
        self.wait()

    def type(self, text: str) -> None:
        """Type text into the focused element."""
        self.browser.ask("Input.insertText", text=text)

    def wait(self) -> None:
        """Wait until the page has reacted to a change of its address."""
        self.browser.evaluate("new Promise((done) => setTimeout(done, 80))")

    def read(self, *addresses: str) -> Any:
        """Return messages and answers at addresses."""
        return self.browser.evaluate(f"({READ_ANSWERS})({json.dumps(addresses)})")

    def text(self, selector: str) -> str:
        """Return the visible text of an element."""
        return str(self.browser.evaluate(f"document.querySelector({json.dumps(selector)}).innerText"))

    def texts(self, selector: str) -> list[str]:
        """Return the text of all matching elements."""
        return list(
            self.browser.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(it => it.textContent)")
        )

    def hash(self) -> str:
        """Return the address in the page."""
        return str(self.browser.evaluate("location.hash"))

    def focused(self) -> str:
        """Return the id of the focused element, or its text."""
        return str(self.browser.evaluate("document.activeElement.id || document.activeElement.textContent"))


@pytest.fixture(scope="module")
def page(support_answers: dict[str, list[OperatorSupport]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Generate the page and start one browser for all tests."""
    assert EXECUTABLE is not None
    file = tmp_path_factory.mktemp("page") / "support.html"
    file.write_text(tool.render_page(support_answers), encoding="utf-8", newline="\n")
    with chromium.browser(EXECUTABLE, tmp_path_factory.mktemp("profile")) as started:
        yield Page(started, file.as_uri(), support_answers)


def shorten(value_type: str) -> str:
    """Return a type as the page spells it: `seq(float)` for `seq(tensor(float))`."""
    while "tensor(" in value_type.replace("sparse_tensor(", ""):
        start = value_type.index("tensor(")
        end = value_type.index(")", start)
        value_type = value_type[:start] + value_type[start + len("tensor(") : end] + value_type[end + 1 :]
    return value_type.replace(", ", ",")


def write_address(answer: OperatorSupport, version: VersionSupport) -> str:
    """Return the address of the answer about a version of an operator."""
    engine = "" if answer.engine == "onnxruntime" else f"{answer.engine}/"
    return f"#{engine}{tool.write_path(answer)}/{version.first_opset}"


def rows(spans: Sequence[SupportSpan]) -> list[list[str]]:
    """Return spans as the page shows them."""
    return [
        [
            span.since if span.since == span.until else f"{span.since}–{span.until}",
            LABELS[span.way] + (f": {span.reason.replace('`', '')}" if span.reason else ""),
        ]
        for span in spans
    ]


def test_answers_are_those_of_the_command(page: Page) -> None:
    """The page shows the same releases and reasons as `onnxgate support`, for each version of each operator."""
    expected = {
        write_address(answer, version): rows(version.spans)
        for answers in page.answers.values()
        for answer in answers
        for version in answer.versions
    }
    page.open()
    read = page.read(*expected)

    assert len(expected) > 800
    assert {address: [["", spans]] for address, spans in expected.items()} == {
        address: it["answers"] for address, it in zip(expected, read, strict=True)
    }
    assert {it["message"] for it in read} == {""}


def test_answers_for_types_are_those_of_the_command(page: Page) -> None:
    """The page shows the same releases and reasons as `onnxgate support`, for each type of a sample of operators."""
    expected: dict[str, dict[str, list[list[str]]]] = {}
    for answer in [answer for answers in page.answers.values() for answer in answers[::25]]:
        for version in answer.versions:
            for support in version.types:
                address = f"{write_address(answer, version)}/{shorten(support.type)}"
                expected.setdefault(address, {})[support.parameter] = rows(support.spans)
    page.open()
    read = page.read(*expected)

    assert len(expected) > 200
    for (address, by_parameter), it in zip(expected.items(), read, strict=True):
        shown = {name: spans for title, spans in it["answers"] for name in title.rpartition(" = ")[0].split(", ")}
        assert shown == by_parameter, address


@pytest.mark.parametrize(
    ("path", "opset"),
    [
        *(("Gelu", 21), ("Cast", 22), ("Add", 13), ("Add", 28), ("Relu", 17), ("Shape", 27), ("Softmax", 20)),
        *(("LayerNormalization", 21), ("GroupNormalization", 24), ("HardSwish", 21), ("CastLike", 18)),
        *(("ReduceMax", 27), ("MeanVarianceNormalization", 22), ("com.microsoft.Gelu", 1), ("Clip", 12)),
    ],
)
def test_answers_at_later_opsets_are_those_of_the_command(page: Page, path: str, opset: int) -> None:
    """The page also knows the opsets between two versions, which some releases do not accept yet."""
    domain, _, name = path.rpartition(".")
    answer = describe_operator(name, domain=domain or "ai.onnx", opset=opset)[0]
    page.open()
    (read,) = page.read(f"#{path}/{opset}")

    assert read["answers"] == [["", rows(answer.versions[0].spans)]]


@pytest.mark.parametrize(
    "address",
    [
        "#Gelu/20/float16",
        "#SequenceAt/11/seq(float)",
        "#com.microsoft.Gelu",
        "#compare/1.17.1/1.18.0",
        "#export/1.18.0/1.32.0",
        "#onnxruntime-web/Gelu/20",
        "#onnxruntime-web/compare",
        "#onnxruntime-web/export",
    ],
)
def test_shown_commands_work(page: Page, address: str) -> None:
    """Each view shows the command that answers the same question, and the command accepts it."""
    page.open(address)
    command = page.text("main > section:not([hidden]) .command code")
    done = subprocess.run([sys.executable, "-m", *shlex.split(command)], capture_output=True, text=True, check=False)

    assert command.startswith("onnxgate support ")
    assert (done.returncode, done.stderr) == (0, "")


def test_search_finds_operators_by_keyboard(page: Page) -> None:
    """The list of suggestions follows the ARIA pattern of a combobox, and Enter opens the selected operator."""
    page.open()
    page.browser.evaluate("document.getElementById('search-input').focus()")
    page.type("gel")
    options = page.texts("#search-list [role=option]")
    expanded = page.browser.evaluate("document.getElementById('search-input').getAttribute('aria-expanded')")
    page.press("ArrowDown", "ArrowDown")
    active = page.browser.evaluate(
        "document.getElementById(document.getElementById('search-input').getAttribute('aria-activedescendant'))"
        ".textContent"
    )
    page.press("Enter")

    assert options[:2] == ["Geluai.onnx", "Gelucom.microsoft"]
    assert (expanded, active) == ("true", "Gelucom.microsoft")
    assert (page.hash(), page.text("#operator h2"), page.focused()) == (
        "#com.microsoft.Gelu",
        "Gelu com.microsoft",
        "operator-name",
    )
    assert page.text("#announcement").startswith("Gelu: ")


def test_search_for_the_shown_operator_moves_the_focus_to_it(page: Page) -> None:
    """A search always ends at the heading of its answer, also if only the type is new."""
    page.open("#Gelu")
    page.browser.evaluate("document.getElementById('search-input').focus()")
    page.type("gelu 20 float16")
    page.press("Enter")

    assert (page.hash(), page.focused()) == ("#Gelu/20/float16", "operator-name")


def test_escape_closes_the_suggestions(page: Page) -> None:
    """Escape first closes the list and then clears the input."""
    page.open()
    page.browser.evaluate("document.getElementById('search-input').focus()")
    page.type("gelu")
    state = "[document.getElementById('search-list').hidden, document.getElementById('search-input').value]"
    seen = [page.browser.evaluate(state)]
    for _ in range(2):
        page.press("Escape")
        seen.append(page.browser.evaluate(state))

    assert seen == [[False, "gelu"], [True, "gelu"], [True, ""]]


@pytest.mark.parametrize(
    ("query", "address"),
    [
        ("cast 21 float16", "#Cast/21/float16"),
        ("atention", "#Attention"),
        ("lyaernormalization", "#LayerNormalization"),
        ("com.microsoft.gelu", "#com.microsoft.Gelu"),
        ("ai.onnx.Relu", "#Relu"),
        ("microsoft.matmuln", "#com.microsoft.MatMulNBits"),
        ("Cast tensor(float16)", "#Cast/28/float16"),
        ("cast 21 fp16", "#Cast/21/float16"),
        ("convolution", ""),
    ],
)
def test_search_accepts_near_spellings_opsets_and_types(page: Page, query: str, address: str) -> None:
    """Typing errors, domains, opsets and types lead to the operator; text that no name resembles does not."""
    page.open()
    page.browser.evaluate("document.getElementById('search-input').focus()")
    page.type(query)
    page.press("Enter")

    assert page.hash() == address
    assert page.browser.evaluate("document.getElementById('search-none').hidden") is bool(address)


def test_back_button_returns_to_the_previous_answer(page: Page) -> None:
    """Each answer is an entry of the history."""
    page.open("#Gelu")
    page.browser.evaluate(
        "(s => { s.value = 'float16'; s.dispatchEvent(new Event('change', {bubbles: true})) })"
        "(document.getElementById('choose-type'))"
    )
    page.wait()
    chosen = page.hash(), page.text(".answer h3"), page.browser.evaluate("document.title")
    page.browser.evaluate("history.back()")
    page.wait()

    assert chosen == ("#Gelu/20/float16", "T = float16", "Gelu 20 float16 – ONNX Runtime operator support by version")
    assert (page.hash(), page.texts(".answer h3")) == ("#Gelu", [])


def test_focus_stays_on_the_control_that_changed_the_answer(page: Page) -> None:
    """The controls are rendered again with the answer; a keyboard user does not lose the place."""
    page.open("#Gelu")
    page.browser.evaluate("document.getElementById('choose-type').focus()")
    page.browser.evaluate(
        "(s => { s.value = 'float'; s.dispatchEvent(new Event('change', {bubbles: true})) })(document.activeElement)"
    )
    page.wait()

    assert page.focused() == "choose-type"
    assert page.browser.evaluate("document.activeElement.value") == "float"


def test_all_controls_are_reached_in_order(page: Page) -> None:
    """Tab leads from the skip link to the views, the search, the opset and the type, with a visible focus."""
    page.open("#Cast/21")
    page.browser.evaluate("document.activeElement.blur()")
    reached, outlines = [], []
    for _ in range(10):
        page.press("Tab")
        reached.append(page.focused())
        outlines.append(page.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle"))

    assert reached == [
        *("Skip to content", "onnxgate", "Operators", "Compare releases", "Opset to export", "select-engine"),
        *("search-input", "choose-opset", "choose-type", "float"),
    ]
    assert set(outlines) == {"solid"}


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("#Gleu/20", "ONNX Runtime has no operator Gleu in any known release. Did you mean Gelu, com.microsoft.Gelu?"),
        *(
            (f"#{name}", f"ONNX Runtime has no operator {name} in any known release. All operators are listed below.")
            for name in ("constructor", "toString", "__proto__")
        ),
        ("#Xyzzy", "ONNX Runtime has no operator Xyzzy in any known release. All operators are listed below."),
        ("#Gelu/7", "Gelu does not exist in opset 7 of ai.onnx. It exists since opset 20."),
        ("#Gelu/99", "No known release accepts opset 99 of ai.onnx. The newest known opset is 28."),
        (
            "#com.microsoft.BiasGelu/99",
            "No known release accepts opset 99 of com.microsoft. The newest known opset is 1. For models with this "
            "opset of ai.onnx, run onnxgate support BiasGelu --opset 99.",
        ),
        (
            "#tract/ai.onnx.ml.Scaler/99",
            "No known release accepts opset 99 of ai.onnx.ml. The newest known opset is 5. For models with this "
            "opset of ai.onnx, run onnxgate support Scaler --opset 99 --engine tract.",
        ),
        ("#Gelu/20/flaot16", "Gelu 20 has no type flaot16. Did you mean float16, bfloat16?"),
        ("#Gelu/20/string", "Gelu 20 has no type string. Its types are listed below."),
        (
            "#compare/1.0.0/1.18.0",
            f"No support table for ONNX Runtime 1.0.0. Known releases: 1.16.0–{list_known_releases()[-1]}.",
        ),
        ("#%E0%A4%A", "ONNX Runtime has no operator %E0%A4%A in any known release. All operators are listed below."),
    ],
)
def test_unknown_addresses_are_explained(page: Page, address: str, message: str) -> None:
    """A mistyped or outdated link says what is wrong with it and offers what is near."""
    page.open()
    page.browser.evaluate(f"location.hash = {json.dumps(address)}")
    page.wait()

    assert page.text("#message") == message


@pytest.mark.parametrize("alias", ["fp16", "half", "Half", "tensor(fp16)", "FP16", "Float16", "Tensor(FLOAT16)"])
def test_types_may_have_the_names_that_the_command_accepts(page: Page, alias: str) -> None:
    """A link may use the name of a type in another library."""
    page.open()
    (expected, found) = page.read("#Gelu/20/float16", f"#Gelu/20/{alias}")

    assert found["answers"]
    assert expected == found


def test_nested_types_may_have_the_names_that_the_command_accepts(page: Page) -> None:
    """The names apply inside of sequences, too."""
    page.open()
    (expected, found) = page.read("#SequenceLength/11/seq(float)", "#SequenceLength/11/seq(fp32)")

    assert found["answers"]
    assert expected == found


def test_comparison_lists_the_differences(page: Page) -> None:
    """Added operators, versions and types are those that `describe_operator` states for the two releases."""
    page.open("#compare/1.17.1/1.18.0")
    figures = page.texts("#view-compare dl div")
    shown = {
        title.lstrip("+−± ").rstrip(" 0123456789"): {
            f"{name} {version}"
            for name, _, versions in (
                it.partition(" ") for it in page.texts(f"#view-compare details:nth-of-type({index}) .subject")
            )
            for version in versions.split()
        }
        for index, title in enumerate(page.texts("#view-compare summary"), 1)
    }
    expected: dict[str, set[str]] = {}
    for answer in page.answers["onnxruntime"]:
        ways = {
            version.first_opset: [way(version.spans, release) for release in ("1.17.1", "1.18.0")]
            for version in answer.versions
        }
        for version in answer.versions:
            before, after = ways[version.first_opset]
            if before == "none" and after != "none":
                title = (
                    "Versions now supported"
                    if any(it[0] != "none" for it in ways.values())
                    else "Operators now supported"
                )
                expected.setdefault(title, set()).add(f"{answer.operator} {version.version}")
            if before == "function" and after == "kernel":
                expected.setdefault("Supported in another way", set()).add(f"{answer.operator} {version.version}")

    assert figures == ["IR version9 → 10", "Opset of ai.onnx20 → 21", "Opset of ai.onnx.ml4 → 5"]
    assert {title: shown[title] for title in expected} == expected
    assert "Gelu 20" in shown["Supported in another way"]
    assert "IsInf 20" in shown["Changed types"]


def way(spans: Sequence[SupportSpan], release: str) -> str:
    """Return how a release supports something."""
    names = list_known_releases()
    index = names.index(release)
    return next(it.way for it in spans if names.index(it.since) <= index <= names.index(it.until))


@pytest.mark.parametrize(
    ("releases", "subject"), [("1.31.1/1.32.0", "CausalConvWithState 27"), ("1.26.0/1.27.0", "StringNormalizer 10")]
)
def test_comparison_separates_what_is_not_known(page: Page, releases: str, subject: str) -> None:
    """Support that is not known in one of the releases is not another way of support."""
    page.open(f"#compare/{releases}")
    sections = {
        section.partition(" ")[2]: rows
        for section, rows in page.browser.evaluate(
            "[...document.querySelectorAll('.changes')].map(it => [it.querySelector('h3').textContent,"
            " [...it.querySelectorAll('li')].map(row => row.textContent)])"
        )
    }
    unknown = next(rows for title, rows in sections.items() if title.startswith("Support not known in one release"))

    assert any(row.startswith(subject) and "not known" in row for row in unknown)
    assert not any("not " in row for title, rows in sections.items() if "another way" in title for row in rows)


def test_types_that_are_not_known_are_neither_gained_nor_lost(page: Page) -> None:
    """A type that is not known for one of the releases is listed separately."""
    page.open("#onnxruntime-web/compare/1.21.1/1.22.0")
    shown = {
        title.lstrip("±? ").rstrip(" 0123456789"): page.texts(f"#view-compare details:nth-of-type({index}) li")
        for index, title in enumerate(page.texts("#view-compare summary"), 1)
    }
    formats = ", ".join(f"float8{name}" for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"))

    assert f"Cast 19 21T1 ? bfloat16, {formats}T2 ? bfloat16, {formats}" in shown["Types not known in one release"]
    assert not any("float8" in row for row in shown.get("Changed types", []))


def test_comparison_can_be_changed_and_swapped(page: Page) -> None:
    """The selected releases are in the address, also in reverse order."""
    page.open("#compare/1.17.1/1.18.0")
    page.browser.evaluate("document.getElementById('compare-swap').click()")
    page.wait()

    assert page.hash() == "#compare/1.18.0/1.17.1"
    assert page.text("#compare-name") == "ONNX Runtime 1.18.0 → 1.17.1"
    assert any(title.startswith("− Versions no longer supported") for title in page.texts("#view-compare summary"))


def test_opset_to_export_is_that_of_the_command(page: Page) -> None:
    """The newest opset and IR version are those that all releases of the range accept."""
    releases = [release for release in list_known_releases() if release.startswith(("1.17", "1.18", "1.19"))]
    newest = find_newest_versions(releases)
    page.open("#export/1.17.0/1.19.2")

    assert page.texts("#view-export dl div")[:2] == [
        f"Opset{newest.opsets['ai.onnx']}",
        f"IR version{newest.ir_version}",
    ]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_page_fits_and_requests_nothing(page: Page, width: int, theme: str) -> None:
    """No view scrolls sideways, logs a message or requests anything but the page itself."""
    for address in ADDRESSES:
        page.open(address, width=width, theme=theme)
        logged = [
            it
            for name in ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
            for it in page.browser.named(name)
        ]
        requested = {event["request"]["url"] for event in page.browser.named("Network.requestWillBeSent")}

        assert logged == []
        assert requested == {page.url}
        assert page.browser.evaluate("document.scrollingElement.scrollWidth") <= width, address


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize(
    "address", [*ADDRESSES, "#tract/If", "#tract/compare", "#openvino", "#onnxruntime-web/compare/1.21.1/1.22.0"]
)
def test_words_are_not_split(page: Page, address: str, width: int) -> None:
    """Each word is on one line, but a long name of an operator may continue on the next line after `wbr`."""
    page.open(address, width=width)
    split = page.browser.evaluate(
        """
        (() => {
          const split = [];
          const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
          const range = document.createRange();
          while (walker.nextNode()) {
            const node = walker.currentNode;
            for (const word of node.parentElement.closest("[hidden], option") ? [] : node.data.matchAll(/[\\w.–]+/g)) {
              range.setStart(node, word.index);
              range.setEnd(node, word.index + word[0].length);
              if (range.getClientRects().length > 1) split.push(word[0]);
            }
          }
          return split;
        })()
        """
    )

    assert split == []


@pytest.mark.parametrize("width", WIDTHS)
def test_versions_follow_the_name_without_a_gap(page: Page, width: int) -> None:
    """In a comparison, the versions that changed are spaced as words are, although their links are wider on phones."""
    page.open("#tract/compare", width=width)
    subject = page.browser.evaluate(
        """
        (() => {
          const subjects = [...document.querySelectorAll(".subject")];
          const subject = subjects.find((it) => it.textContent.startsWith("Attention"));
          const range = document.createRange();
          const boxes = [subject.firstChild, ...subject.querySelectorAll("a")].map((node) => {
            range.selectNodeContents(node);
            return range.getBoundingClientRect();
          });
          return [subject.innerText, boxes.slice(1).map((box, index) => box.left - boxes[index].right)];
        })()
        """
    )

    assert subject[0] == "Attention 23 24 25"
    assert max(subject[1]) < 12


@pytest.mark.parametrize("address", ["", "#Cast", "#compare/1.17.1/1.18.0", "#export", "#openvino", "#Gleu"])
def test_targets_on_phones_can_be_touched(page: Page, address: str) -> None:
    """Controls and links outside of sentences are at least 24 pixels wide and high (WCAG 2.5.8)."""
    page.open(address, width=390)
    small = page.browser.evaluate(
        "[...document.querySelectorAll('a, button, select, input, summary')].filter(it => !it.closest('p, .skip'))"
        ".map(it => [it.textContent.slice(0, 30), it.getBoundingClientRect()])"
        ".filter(([, box]) => box.width && (box.height < 24 || box.width < 24))"
        ".map(([text, box]) => `${text}: ${box.width} x ${box.height}`)"
    )

    assert small == []


def test_commands_are_not_split_after_hyphens(page: Page) -> None:
    """Each word of a command is on one line of a phone."""
    page.open("#Gelu/20/float16", width=390)
    lines = page.browser.evaluate(
        "[...document.querySelectorAll('.command span')].map(it => it.getClientRects().length)"
    )

    assert page.text(".command code") == "onnxgate support Gelu --opset 20 --type float16"
    assert lines == [1] * 7


def test_both_themes_have_contrast(page: Page) -> None:
    """Text has a contrast of at least 4.5 to 1 in both themes, as WCAG 2.2 requires (success criterion 1.4.3)."""
    measure = """
    (() => {
      const parse = (color) => color.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map((part) => part / 255)
        .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
        .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
      const ground = (node) => {
        const color = parse(getComputedStyle(node).backgroundColor);
        return color.length === 4 && color[3] === 0 ? ground(node.parentElement) : color;
      };
      const poor = [];
      for (const node of document.querySelectorAll("body *")) {
        const isText = [...node.childNodes].some((it) => it.nodeType === 3 && it.data.trim());
        if (!isText || !node.getClientRects().length || node.closest(".unseen, .skip, option, optgroup")) continue;
        const [one, other] = [light(parse(getComputedStyle(node).color)), light(ground(node))].sort((a, b) => b - a);
        const contrast = (one + 0.05) / (other + 0.05);
        if (contrast < 4.5) poor.push([node.className, node.textContent, contrast]);
      }
      return poor;
    })()
    """
    for theme in ("light", "dark"):
        for address in ADDRESSES:
            page.open(address, theme=theme)
            assert page.browser.evaluate(measure) == [], (theme, address)


@pytest.mark.parametrize(
    ("ways", "verdict"),
    [
        ("kkkk", "Supported by all 4 known releases, 2025.1.0–2026.1.0."),
        ("xxxx", "Not supported by any of the 4 known releases."),
        ("uuuu", "Not known"),
        ("xxxu", "Not known for 1 of 4 known releases and not supported by the others."),
        ("xkkk", "Supported since 2025.2.0 by 3 of 4 known releases."),
        ("uukk", "Supported since 2026.0.0 by 2 of 4 known releases; not known for 2 older releases."),
        ("kukk", "Supported by 2025.1.0, 2026.0.0–2026.1.0 3 of 4 known releases; not known for 1 older release."),
        ("kkxx", "Supported by 2025.1.0–2025.2.0 and not by newer releases."),
        ("kkuu", "Supported by 2025.1.0–2025.2.0 and not known for newer releases."),
        ("kkux", "Supported by 2025.1.0–2025.2.0 and not known for some newer releases."),
        ("ukxx", "Supported by 2025.2.0 and not by newer releases; not known for 1 older release."),
    ],
)
def test_answer_names_what_is_not_known(
    page: Page, ways: str, verdict: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer does not count releases as refusing an operator if their support is not known."""
    releases = ("2025.1.0", "2025.2.0", "2026.0.0", "2026.1.0")
    names = {code: way for way, code in tool.WAY_CODES.items()}
    spans = tuple(SupportSpan(release, release, names[way]) for release, way in zip(releases, ways, strict=True))
    version = VersionSupport(13, 13, None, False, spans, ())
    monkeypatch.setattr(tool.operators, "list_known_releases", lambda engine: releases)
    file = tmp_path / "one.html"
    file.write_text(
        tool.render_page({"onnxruntime": [OperatorSupport("onnxruntime", "ai.onnx", "Mod", (version,))]}),
        encoding="utf-8",
        newline="\n",
    )
    shown = page._replace(url=file.as_uri())
    shown.open("#Mod")

    assert " ".join(shown.text(".verdict").split()) == verdict


@pytest.fixture
def two_engines(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Page:
    """Generate a page with a few operators of ONNX Runtime, and one of an engine without limits."""
    releases = ("2025.1.0", "2025.2.0", "2026.0.0")
    source = TableSource(release=releases[0], wheel="openvino-2025.1.0.whl", sha256="")
    table = Table(engine="openvino", platform="linux x86_64", sources=(source,), types=(), sets=(), operators={})
    limits = LimitTable("openvino", {release: Limits(None, {}) for release in releases})

    def replace(module: Any, name: str, value: Any) -> None:
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda engine: value if engine == "openvino" else original(engine))

    replace(tool.operators, "list_known_releases", releases)
    replace(tool.operators, "load_shipped_table", table)
    replace(tool.limits, "load_limit_table", limits)
    spans = (SupportSpan(releases[0], releases[0], "none", "refused"), SupportSpan(*releases[1:], "kernel"))
    types = (TypeSupport("T", "tensor(float16)", spans),)
    refused = tuple(
        TypeSupport(name, "tensor(float16)", (SupportSpan(releases[0], releases[-1], "none", f"`{name}` is refused"),))
        for name in ("T1", "T2")
    )
    answers = {
        "onnxruntime": [it for it in page.answers["onnxruntime"] if it.operator in ("Add", "Gelu")],
        "openvino": [
            OperatorSupport("openvino", "ai.onnx", "Gelu", (VersionSupport(20, 20, None, False, spans, types),)),
            OperatorSupport("openvino", "ai.onnx", "Mod", (VersionSupport(13, 13, None, False, spans, refused),)),
        ],
    }
    file = tmp_path / "engines.html"
    file.write_text(tool.render_page(answers), encoding="utf-8", newline="\n")
    return page._replace(url=file.as_uri())


def test_engine_can_be_chosen(two_engines: Page) -> None:
    """A choice of another engine keeps the operator, and its name is a part of the address."""
    page = two_engines
    page.open("#Gelu")
    page.browser.evaluate(
        "(s => { s.value = 'openvino'; s.dispatchEvent(new Event('change', {bubbles: true})) })"
        "(document.getElementById('select-engine'))"
    )
    page.wait()

    assert page.hash() == "#openvino/Gelu"
    assert page.text("h1") == "OpenVINO operator support by version"
    assert page.text("#lead") == (
        "Which of 3 releases, 2025.1.0–2026.0.0, run which operators, by opset and type. 2 of the 2 listed operators "
        "are supported by at least one release."
    )
    assert page.texts(".answer .range") == ["2025.1.0", "2025.2.0–2026.0.0"]
    assert page.texts("#sources li") == ["openvino-2025.1.0.whl"]
    assert page.text(".command code") == "onnxgate support Gelu --opset 20 --engine openvino"


@pytest.mark.parametrize(
    ("address", "selector", "text"),
    [
        (
            "#openvino/Gelu/22/float16",
            ".verdict",
            "Supported since 2025.2.0 by 2 of 3 known releases. Opset 22 uses version 20.",
        ),
        ("#openvino/Add", "#message", "OpenVINO has no operator Add in any known release."),
        ("#openvino/compare", "#compare-name", "OpenVINO 2025.2.0 → 2026.0.0"),
        ("#openvino/compare/2025.1.0/2026.0.0", "#view-compare .subject", "Gelu 20"),
        ("#openvino/export", "#view-export dd", "no limit"),
        ("#openvino", "#index-list li", "Gelu 20 2025.2.0"),
        ("#Add", "h1", "ONNX Runtime operator support by version"),
    ],
)
def test_each_view_works_for_another_engine(two_engines: Page, address: str, selector: str, text: str) -> None:
    """An engine without opset limits and with few operators has all views."""
    two_engines.open(address)

    assert " ".join(two_engines.text(selector).split()).startswith(text)
    assert two_engines.browser.named("Runtime.exceptionThrown") == []


def test_focus_returns_to_the_operator_of_another_engine(two_engines: Page) -> None:
    """Back in the list, the focus is on the operator that was shown."""
    two_engines.open("#openvino/Mod")
    for address in ("#openvino", "#openvino/Mod", "#openvino/ai.onnx"):
        two_engines.browser.evaluate(f"location.hash = {json.dumps(address)}")
        two_engines.wait()

    assert two_engines.focused() == "Mod"
    assert two_engines.texts("#index-list h3[id]") == ["ai.onnx 2 operators"]


def test_parameters_with_own_reasons_have_own_answers(two_engines: Page) -> None:
    """Parameters share an answer only if its text is true for each of them."""
    two_engines.open("#openvino/Mod/13/float16")

    assert two_engines.texts(".answer h3") == ["T1 = float16", "T2 = float16"]
    assert two_engines.texts(".spans td") == ["not supported: T1 is refused", "not supported: T2 is refused"]


def test_without_javascript_all_operators_are_listed(page: Page) -> None:
    """Readers without JavaScript, and search engines, get the list and a note, and no control that does nothing."""
    page.browser.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page.browser.events.clear()
        page.browser.ask("Page.navigate", url=page.url)
        while not page.browser.named("Page.loadEventFired"):  # events arrive with responses, even errors
            with contextlib.suppress(AssertionError):
                page.browser.ask("Page.getNavigationHistory")
        document = page.browser.ask("DOM.getDocument")["root"]["nodeId"]

        def count(selector: str) -> int:
            return len(page.browser.ask("DOM.querySelectorAll", nodeId=document, selector=selector)["nodeIds"])

        counts = [count("#index li"), count("noscript .note"), count("nav[hidden]"), count("#search[hidden]")]
    finally:
        page.browser.ask("Emulation.setScriptExecutionDisabled", value=False)

    assert counts == [len(page.answers["onnxruntime"]), 1, 1, 1]
