"""Parsers of the output formats. Each counts the elements that a consumer of the format executes or renders."""

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
"""HTML attributes whose values have an effect."""
SARIF = Path(__file__).parents[2] / "tests" / "data" / "sarif-2.1.0.json"

VERDICT = r"(?:pass|fail|undecided):"
FINDING = r"  (?:error|warning|note) "
LABEL = r" {11}(?:fix|node): | {4}(?:hint|fix): "
OWN_LINES = {
    "report": (
        VERDICT, FINDING, LABEL, r"(?:undecided|skipped|ignored|replay)$", r"changed since |no model changed since ",
        r" {11}to accept it, paste this into the config:",
    ),
    "matrix": (VERDICT, r"(?:not verified|predictions that were wrong)$"),
    "diff": (
        r"(?:interface|stamps|metadata|operators|local functions|nodes|weights|files|and makes no difference)(?::|$)",
    ),
    "preview": (
        VERDICT, FINDING, LABEL, r"(?:would break|would be repaired|stays as it is|could not be counts out)$",
        r"(?:would change in the lock|nothing would change in the lock)$", r"after the upgrade: |preview: ",
    ),
}  # fmt: skip
"""Beginnings of lines that only onnxgate may write in text output, such as a verdict, a finding or a fix."""


def shown(kind: str) -> Callable[[str], Counter[object]]:
    """Return a text reader that counts control characters, commands and lines that match OWN_LINES."""
    own = [re.compile(pattern) for pattern in OWN_LINES[kind]]

    def read(text: str) -> Counter[object]:
        plain = COLOURS.sub("", text)
        counts = logged(plain)
        counts.update(("own line", start.pattern) for line in plain.split("\n") for start in own if start.match(line))
        return counts

    return read


def logged(text: str) -> Counter[object]:
    """Count control characters and workflow commands in a log."""
    counts = obeyed(text)
    counts.update(("command", command.name) for command in workflow_commands.commands(text))
    return counts


def annotated(text: str) -> Counter[object]:
    """Count workflow commands with their properties, without their values."""
    counts = obeyed(text)
    for command in workflow_commands.commands(text):
        counts["command", command.name] += 1
        counts.update(("property", command.name, name) for name in command.properties)
        if len(command.data.encode("utf-16-le", "replace")) > 2 * workflow_commands.MESSAGE_LIMIT:
            counts["too long"] += 1
    return counts


def obeyed(text: str) -> Counter[object]:
    """Count characters that a terminal interprets."""
    return Counter(("obeyed", character) for character in text if character != "\n" and not character.isprintable())


def page(text: str) -> Counter[object]:
    """Count the elements of Markdown as GitHub renders it, and mentions, references and links in its text."""
    rendered = cmarkgfm.github_flavored_markdown_to_html(text, cmarkgfm.Options.CMARK_OPT_UNSAFE)
    counts = markup(rendered, ignoring=frozenset({"code"}))
    counts.update(obeyed(text))
    counts.update(("command", command.name) for command in workflow_commands.commands(text))
    outside = html.unescape(re.sub(r"<(code|pre)\b.*?</\1>", "\0", rendered, flags=re.DOTALL))
    outside = re.sub(r"<[^>]*>", " ", outside)
    counts.update(("live", kind) for kind, pattern in LIVE.items() for _ in pattern.findall(outside))
    return counts


LIVE = {
    "mention": re.compile(r"(?<![\w`])@\w"),
    "reference": re.compile(r"(?<![\w&])(?:#|GH-)\d"),
    "link": re.compile(r"(?:https?|ftp)://|www\.\w", re.IGNORECASE),
    "address": re.compile(r"\w@\w+\.\w"),
    "formula": re.compile(r"\$\S"),
}
"""Patterns that GitHub renders in addition to Markdown."""


def markup(text: str, ignoring: frozenset[str] = frozenset({"code"})) -> Counter[object]:
    """Count HTML 5 elements with the names of their attributes, and attribute values that have an effect."""
    tree = html5lib.HTMLParser(namespaceHTMLElements=False).parse(text)
    counts: Counter[object] = Counter()
    for element in tree.iter():
        name = element.tag if isinstance(element.tag, str) else "comment"
        if name in ignoring:
            counts.update(("attribute", name, key) for key in element.attrib)
            continue
        counts["element", name, tuple(sorted(map(str, element.attrib)))] += 1
        values = ((str(key), value) for key, value in element.attrib.items() if ACTIVE.match(str(key).lower()))
        counts.update(("value", name, key, _without_number(value)) for key, value in values)
        if name in ("script", "style"):
            counts["text", name, element.text or ""] += 1
    return counts


def _without_number(value: str) -> str:
    """Remove the number of a finding, because the order of findings may differ in the twin."""
    return re.sub(r"^(#?finding-)\d+$", r"\1N", value)


def junit(text: str) -> Counter[object]:
    """Count XML elements with the names of their attributes, as parsed by expat."""
    counts = logged(text)
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda name, attributes: counts.update([("element", name, tuple(sorted(attributes)))])
    parser.CommentHandler = lambda data: counts.update(["comment"])
    parser.ProcessingInstructionHandler = lambda target, data: counts.update(["instruction"])
    parser.StartDoctypeDeclHandler = lambda *arguments: counts.update(["doctype"])
    parser.Parse(text.encode(), True)
    return counts


def data(text: str) -> Counter[object]:
    """Count control characters and commands, and parse the text strictly as JSON."""
    json.loads(text, parse_constant=_refuse)
    return logged(text)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not valid JSON")


def sarif(text: str) -> Counter[object]:
    """Count violations of the schema of SARIF, invalid URIs, and links in messages."""
    counts = data(text)
    log = json.loads(text)
    counts.update(("schema", error.message[:200]) for error in _sarif_validator().iter_errors(log))
    for key, value in _pairs(log):
        if key == "uri" and not re.fullmatch(r"(?:file:///)?(?:[A-Za-z0-9._~/-]|%[0-9A-F]{2})*", value):
            counts["uri", value[:200]] += 1
        if key == "text" and re.search(r"\[[^\]]*\]\([^)]*\)", value) and "`" not in value:
            counts["link in a message"] += 1
    return counts


def gitlab(text: str) -> Counter[object]:
    """Count issues, and fingerprints that occur twice."""
    counts = data(text)
    issues = json.loads(text)
    repeated = len(issues) - len({issue["fingerprint"] for issue in issues})
    counts["fingerprint twice"] += repeated
    counts["issue"] += len(issues)
    return +counts


def diagram(text: str) -> Counter[object]:
    """Count lines that do not match the diagram syntax that onnxgate writes."""
    label = r'"[A-Za-z0-9 /#;]*"'
    box = rf"  n\d+(?:\[{label}\]|\[/{label}/\]|\[\\{label}\\\]|\[\({label}\)\]|\({label}\))"
    own = re.compile(
        rf"```(?:mermaid)?|flowchart TB|{box}|  n\d+ --> n\d+|  classDef \w+ [\w:#,\- ]+|  class [n\d,]+ \w+"
    )
    counts = obeyed(text)
    counts.update(("line", line[:100]) for line in text.split("\n") if not own.fullmatch(line))
    return counts


def _pairs(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, child in value.items():
            if isinstance(child, str):
                yield key, child
            else:
                yield from _pairs(child)
    elif isinstance(value, list):
        for child in value:
            yield from _pairs(child)


@cache
def _sarif_validator() -> Any:
    import jsonschema

    return jsonschema.Draft202012Validator(json.loads(SARIF.read_text(encoding="utf-8")))
