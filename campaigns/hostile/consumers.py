"""What consumers make of our formats: each output read as its reader reads it, as counts of what acts in it."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.parsers import expat

import cmarkgfm
import html5lib

from tests.harness.github import workflow_commands

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
ACTIVE = re.compile(
    r"^(?:on.*|href|src|srcset|srcdoc|style|class|id|action|formaction|xlink:href|content|http-equiv|target)$"
)
"""Attributes of HTML whose value is obeyed."""
SARIF = Path(__file__).parents[2] / "tests" / "data" / "sarif-2.1.0.json"

VERDICT = r"(?:pass|fail|undecided):"
FINDING = r"  (?:error|warning|note) "
LABEL = r" {11}(?:fix|node): | {4}(?:hint|fix): "
OWN_LINES = {
    "report": (
        VERDICT, FINDING, LABEL, r"(?:undecided|skipped|ignored|replay)$", r"changed since |no model changed since ",
        r" {11}to accept it, paste into the config:",
    ),
    "matrix": (VERDICT, r"(?:not verified|predictions that were wrong)$"),
    "diff": (
        r"(?:interface|stamps|metadata|operators|local functions|nodes|weights|files|and makes no difference)(?::|$)",
    ),
    "preview": (
        VERDICT, FINDING, LABEL, r"(?:would break|would be repaired|stays as it is|could not be found out)$",
        r"(?:would change in the lock|nothing would change in the lock)$", r"after the upgrade: |preview: ",
    ),
}  # fmt: skip
"""How lines begin that say something of their own in what a person reads: a verdict, a finding, what to do."""


def shown(kind: str) -> Callable[[str], Counter[object]]:
    """A terminal: what it obeys, and lines that say what only we may say."""
    own = [re.compile(pattern) for pattern in OWN_LINES[kind]]

    def read(text: str) -> Counter[object]:
        plain = COLOURS.sub("", text)
        found = logged(plain)
        found.update(("own line", each.pattern) for line in plain.split("\n") for each in own if each.match(line))
        return found

    return read


def logged(text: str) -> Counter[object]:
    """A log in which every line may say anything: nothing in it is obeyed."""
    found = obeyed(text)
    found.update(("command", each.name) for each in workflow_commands.commands(text))
    return found


def annotated(text: str) -> Counter[object]:
    """GitHub's runner: its commands with their properties, but for what these say."""
    found = obeyed(text)
    for each in workflow_commands.commands(text):
        found["command", each.name] += 1
        found.update(("property", each.name, name) for name in each.properties)
        if len(each.data.encode("utf-16-le", "replace")) > 2 * workflow_commands.MESSAGE_LIMIT:
            found["too long"] += 1
    return found


def obeyed(text: str) -> Counter[object]:
    """What a log must not hold, whatever else it is."""
    return Counter(("obeyed", each) for each in text if each != "\n" and not each.isprintable())


def page(text: str) -> Counter[object]:
    """Markdown as GitHub renders it: its elements, and what stands in text and is a mention, a reference or a link."""
    rendered = cmarkgfm.github_flavored_markdown_to_html(text, cmarkgfm.Options.CMARK_OPT_UNSAFE)
    found = markup(rendered, ignoring=frozenset({"code"}))
    found.update(obeyed(text))
    found.update(("command", each.name) for each in workflow_commands.commands(text))
    outside = html.unescape(re.sub(r"<(code|pre)\b.*?</\1>", "\0", rendered, flags=re.DOTALL))
    outside = re.sub(r"<[^>]*>", " ", outside)
    found.update(("live", kind) for kind, pattern in LIVE.items() for _ in pattern.findall(outside))
    return found


LIVE = {
    "mention": re.compile(r"(?<![\w`])@\w"),
    "reference": re.compile(r"(?<![\w&])(?:#|GH-)\d"),
    "link": re.compile(r"(?:https?|ftp)://|www\.\w", re.IGNORECASE),
    "address": re.compile(r"\w@\w+\.\w"),
    "formula": re.compile(r"\$\S"),
}
"""What GitHub makes something of beside Markdown's own elements."""


def markup(text: str, ignoring: frozenset[str] = frozenset({"code"})) -> Counter[object]:
    """HTML 5: elements with the names of their attributes, and the values that are obeyed."""
    tree = html5lib.HTMLParser(namespaceHTMLElements=False).parse(text)
    found: Counter[object] = Counter()
    for element in tree.iter():
        name = element.tag if isinstance(element.tag, str) else "comment"
        if name in ignoring:
            found.update(("attribute", name, key) for key in element.attrib)
            continue
        found["element", name, tuple(sorted(map(str, element.attrib)))] += 1
        values = ((str(key), value) for key, value in element.attrib.items() if ACTIVE.match(str(key).lower()))
        found.update(("value", name, key, _without_number(value)) for key, value in values)
        if name in ("script", "style"):
            found["text", name, element.text or ""] += 1
    return found


def _without_number(value: str) -> str:
    """Findings are numbered; which of them a link leads to may differ where their order does."""
    return re.sub(r"^(#?finding-)\d+$", r"\1N", value)


def junit(text: str) -> Counter[object]:
    """XML as expat reads it: elements with the names of their attributes."""
    found = logged(text)
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: found.update([("element", name, tuple(sorted(attributes)))])
    parser.CommentHandler = lambda data: found.update(["comment"])
    parser.ProcessingInstructionHandler = lambda target, data: found.update(["instruction"])
    parser.StartDoctypeDeclHandler = lambda *said: found.update(["doctype"])
    parser.Parse(text.encode(), True)
    return found


def data(text: str) -> Counter[object]:
    """JSON: nothing that a log obeys, and a text that a strict reader takes."""
    json.loads(text, parse_constant=_refuse)
    return logged(text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def sarif(text: str) -> Counter[object]:
    """SARIF: of the standard's schema, URIs that are no others, no links in messages."""
    found = data(text)
    log = json.loads(text)
    found.update(("schema", error.message[:200]) for error in _sarif_validator().iter_errors(log))
    for key, value in _pairs(log):
        if key == "uri" and not re.fullmatch(r"(?:file:///)?(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})*", value):
            found["uri", value[:200]] += 1
        if key == "text" and re.search(r"\[[^\]]*\]\([^)]*\)", value) and "`" not in value:
            found["link in a message"] += 1
    return found


def gitlab(text: str) -> Counter[object]:
    """GitLab: issues with fingerprints of their own, on files of the repository."""
    found = data(text)
    issues = json.loads(text)
    repeated = len(issues) - len({each["fingerprint"] for each in issues})
    found["fingerprint twice"] += repeated
    found["issue"] += len(issues)
    return +found


def diagram(text: str) -> Counter[object]:
    """Mermaid: lines of our own grammar alone."""
    label = r'"[A-Za-z0-9 /#;]*"'
    box = rf"  n\d+(?:\[{label}\]|\[/{label}/\]|\[\\{label}\\\]|\[\({label}\)\]|\({label}\))"
    own = re.compile(
        rf"```(?:mermaid)?|flowchart TB|{box}|  n\d+ --> n\d+|  classDef \w+ [\w:#,\- ]+|  class [n\d,]+ \w+"
    )
    found = obeyed(text)
    found.update(("line", line[:100]) for line in text.split("\n") if not own.fullmatch(line))
    return found


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            if isinstance(each, str):
                yield key, each
            else:
                yield from _pairs(each)
    elif isinstance(value, list):
        for each in value:
            yield from _pairs(each)


@cache
def _sarif_validator() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SARIF.read_text(encoding="utf-8")))
