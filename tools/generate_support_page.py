"""Write the compatibility page, which shows the operators that releases support, as one HTML file.

Building the documentation writes the page, too.
"""

from __future__ import annotations

import argparse
import base64
import gc
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from pathlib import Path
from string import Template
from typing import Any

from onnxgate.core.text import join_phrases, pluralize
from onnxgate.support import limits, operators
from onnxgate.support.answers import queries
from onnxgate.support.answers.operator_answers import (
    SUPPORTED_WAYS,
    OperatorSupport,
    SupportSpan,
    SupportWay,
    VersionSupport,
)
from onnxgate.support.answers.type_names import TYPE_ALIASES

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = ROOT / "docs" / "_support"
PALETTE = ROOT / "onnxgate" / "formats" / "html" / "page.css"
"""The stylesheet of HTML reports. Its first rule defines the colors of both."""
SCRIPTS = ("data", "elements", "search", "operator", "compare", "export", "views")
"""Parts of the page's script in their order. They share one scope."""
MAX_SIZE_BYTES = 400_000
LONG_NAME = 18
"""Number of characters after which a name in the list may continue on the next line, between two words."""
TITLES = {
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-web": "ONNX Runtime Web",
    "openvino": "OpenVINO",
    "tract": "tract",
}
PROBED = (
    "Models with one node for each operator, version and type were loaded on the oldest and the newest release of each "
    "series (such as OpenVINO 2026 or tract 0.23), and on the releases between them if results differ "
    "({packages} official packages{platform}, CPU)."
)
"""Origin of the tables of all other engines, whose releases do not report their kernels."""
ORIGINS = {
    "onnxruntime": "Each release reported its kernels and operator schemas ({packages} official packages"
    "{platform}, CPU). Whether a release uses a function body or inserts casts follows from rules that are compared "
    "with models that were loaded on these releases.",
    "onnxruntime-web": "Each release has the kernels and operator schemas of the ONNX Runtime release with the same "
    "number, except kernels whose models with one node it refused ({packages} official packages, WebAssembly).",
    "tract": f"{PROBED} tract refuses many models although it supports each of their nodes.",
}
WAY_CODES: dict[SupportWay, str] = {
    "kernel": "k",
    "converted": "v",
    "function": "f",
    "cast": "c",
    "folded": "r",
    "unknown": "u",
    "none": "x",
}


@dataclass
class PageData:
    """Support of all operators by several engines, as the script of the page reads it.

    An operator is a list of versions, `[version, first opset, last opset or 0, spans, parameters]`. A parameter is
    `[name, [[types, spans]]]`. Reasons, spans, types and parameters are indices into lists of distinct ones, which all
    engines share.
    """

    _engines: list[dict[str, Any]] = field(default_factory=list)
    _types: dict[str, int] = field(default_factory=dict)
    _sets: dict[tuple[int, ...], int] = field(default_factory=dict)
    _reasons: dict[str, int] = field(default_factory=dict)
    _spans: dict[str, int] = field(default_factory=dict)
    _parameters: dict[tuple[str, tuple[tuple[int, int], ...]], int] = field(default_factory=dict)

    def add(self, engine: str, answers: Sequence[OperatorSupport]) -> None:
        """Add the support of all operators by an engine."""
        releases = operators.list_known_releases(engine)
        positions = {release: position for position, release in enumerate(releases)}
        domains: dict[str, dict[str, Any]] = {}
        for answer in answers:
            path = write_path(answer)
            domains.setdefault(answer.domain, {})[answer.operator] = [
                self._encode_version(path, version, positions) for version in answer.versions
            ]
        self._engines.append({**describe_engine(engine, answers), "operators": domains})

    def encode(self) -> str:
        """Return the data as JSON that can be put into an HTML element."""
        shared = {
            "types": self._types,
            "sets": self._sets,
            "reasons": self._reasons,
            "spans": self._spans,
            "parameters": self._parameters,
        }
        data = {
            **{name: list(values) for name, values in shared.items()},
            "aliases": TYPE_ALIASES,
            "supported": "".join(code for way, code in WAY_CODES.items() if way in SUPPORTED_WAYS),
            "engines": self._engines,
        }
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")

    def _encode_version(self, path: str, version: VersionSupport, positions: Mapping[str, int]) -> list[Any]:
        words = {f"`{path}({version.version})`": "$o", f"`{path}`": "$n", f"opset {version.first_opset} ": "opset $f "}
        parameters: dict[str, dict[int, list[str]]] = {}
        for support in version.types:
            typed = {**words, f"`{support.parameter}`": "$p", f"`{support.type}`": "$t"}
            groups = parameters.setdefault(support.parameter, {})
            groups.setdefault(self._encode_spans(support.spans, typed, positions), []).append(support.type)
        return [
            version.version,
            version.first_opset,
            version.last_opset or 0,
            self._encode_spans(version.spans, words, positions),
            [self._encode_parameter(name, groups) for name, groups in parameters.items()],
        ]

    def _encode_spans(
        self, spans: Sequence[SupportSpan], words: Mapping[str, str], positions: Mapping[str, int]
    ) -> int:
        """Return the index of spans, which are written as a number of releases, a way and a reason: `4x12,30k`.

        `words` are abbreviated in reasons, so that different operators and types share them.
        """
        parts = []
        for span in spans:
            count = positions[span.until] - positions[span.since] + 1
            reason = span.reason.replace("$", "$$")
            for word, short in words.items():
                reason = reason.replace(word, short)
            parts.append(f"{count}{WAY_CODES[span.way]}{_intern(self._reasons, reason) if reason else ''}")
        return _intern(self._spans, ",".join(parts))

    def _encode_parameter(self, name: str, groups: Mapping[int, Sequence[str]]) -> int:
        encoded = tuple((self._encode_set(members), spans) for spans, members in groups.items())
        return _intern(self._parameters, (name, encoded))

    def _encode_set(self, members: Sequence[str]) -> int:
        return _intern(self._sets, tuple(_intern(self._types, member) for member in members))


def _intern(indices: dict[Any, int], value: Any) -> int:
    return indices.setdefault(value, len(indices))


def describe_engine(engine: str, answers: Sequence[OperatorSupport]) -> dict[str, Any]:
    """Return what the page states about an engine and the support of its operators, and its releases."""
    table = operators.load_shipped_table(engine)
    releases = operators.list_known_releases(engine)
    supported = sum(any(version.is_supported for version in answer.versions) for answer in answers)
    platform = f" for {table.platform[:1].upper()}{table.platform[1:]}" if table.platform else ""
    return {
        "name": engine,
        "title": TITLES.get(engine, engine),
        "lead": f"Which of {len(releases)} releases, {releases[0]}–{releases[-1]}, run which operators, by opset and "
        f"type. {supported} of the {len(answers)} listed operators are supported by at least one release.",
        "basis": ORIGINS.get(engine, PROBED).format(packages=len(table.sources), platform=platform),
        "releases": releases,
        "sources": [source.wheel for source in table.sources],
        "limits": encode_limits(engine),
    }


def encode_limits(engine: str) -> dict[str, Any]:
    """Return the releases with known limits, and the limits that differ from those of the previous release.

    Limits are `[release, IR version, opsets, development opsets]`, in which the release is an index into the list of
    releases. An IR version of 0 is no limit.
    """
    rows = limits.load_limit_table(engine).releases
    encoded: list[list[Any]] = []
    for index, row in enumerate(rows.values()):
        values = [row.ir or 0, row.opsets, row.dev_opsets]
        if not encoded or encoded[-1][1:] != values:
            encoded.append([index, *values])
    return {"releases": list(rows), "rows": encoded}


def write_path(answer: OperatorSupport) -> str:
    """Return the name of an operator, after its domain unless that is the default one."""
    return answer.operator if answer.domain == "ai.onnx" else f"{answer.domain}.{answer.operator}"


def collect_answers() -> dict[str, list[OperatorSupport]]:
    """Return the support of each operator, sorted by domain and name, by each engine with a table."""
    engines = [engine for engine in limits.list_table_engines() if operators.list_known_releases(engine)]
    gc.disable()  # it would take a quarter of the time: the answers are many objects, all of which remain
    try:
        return {
            engine: [
                answer
                for domain, name in queries.list_operators(engine)
                for answer in queries.describe_operator(name, domain=domain, engine=engine)
            ]
            for engine in sorted(engines, key=lambda engine: (engine != "onnxruntime", engine))
        }
    finally:
        gc.enable()


def describe_newest(version: VersionSupport, oldest: str) -> str:
    """Return the first release since which all releases support a version of an operator, or why there is none."""
    since = ""
    for span in version.spans:
        since = (since or span.since) if span.is_supported else ""
    if since:
        return f"≤ {oldest}" if since == oldest else since
    if version.deprecated:
        return "deprecated"
    return "not known" if version.spans[-1].way == "unknown" else "not supported"


def render_index(answers: Sequence[OperatorSupport], oldest: str) -> str:
    """Return the list of operators with the first release that runs their newest version, as HTML."""
    sections = []
    for domain, group in groupby(answers, key=lambda answer: answer.domain):
        items = [_render_item(answer, oldest) for answer in group]
        count = pluralize(len(items), "operator")
        heading = f'<h3 id="{escape(domain)}">{escape(domain)} <span class="quiet">{count}</span></h3>'
        sections.append(f"<section>\n{heading}\n<ul>\n{chr(10).join(items)}\n</ul>\n</section>")
    return "\n".join(sections)


def _render_item(answer: OperatorSupport, oldest: str) -> str:
    name = write_path(answer)
    newest = answer.versions[-1]
    label = escape(answer.operator)
    if len(label) > LONG_NAME:
        label = re.sub("(?<=[a-z0-9])(?=[A-Z])", "<wbr>", label)
    link = f'<a href="#{escape(name)}">{label}</a>'
    since = describe_newest(newest, oldest)
    return f'<li id="{escape(name)}">{link} <span>{newest.version}</span> <span>{since}</span></li>'


def render_page(answers: Mapping[str, Sequence[OperatorSupport]]) -> str:
    """Return the page with the answers about each engine; the first engine is the one that the page opens with."""
    data = PageData()
    for engine, supports in answers.items():
        data.add(engine, supports)
    first = next(iter(answers))
    stated = describe_engine(first, answers[first])
    releases = stated["releases"]
    style = _read_palette() + (TEMPLATES / "page.css").read_text(encoding="utf-8")
    parts = ((TEMPLATES / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)
    script = "\n".join(('(() => {\n"use strict";\n', *parts, "})();\n"))
    policy = (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    return Template((TEMPLATES / "page.html").read_text(encoding="utf-8")).substitute(
        policy=policy,
        style=style,
        script=script,
        data=data.encode(),
        index=render_index(answers[first], releases[0]),
        sources="\n".join(f"<li>{escape(source)}</li>" for source in stated["sources"]),
        **{key: escape(stated[key]) for key in ("title", "lead", "basis")},
        others=_name_others([TITLES.get(engine, engine) for engine in list(answers)[1:]]),
        operators=len(answers[first]),
        oldest=releases[0],
        newest=releases[-1],
    )


def _name_others(titles: Sequence[str]) -> str:
    return f" Also for {join_phrases(titles)}." if titles else ""


def _read_palette() -> str:
    found = re.match(r":root \{\n.*?\n\}\n", PALETTE.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"{PALETTE} does not begin with the colors"
    return found[0]


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def write_page(path: Path) -> None:
    """Write the page to a file.

    Raises:
        ValueError: the page is larger than readers on phones should have to load.
    """
    data = render_page(collect_answers()).encode()
    if len(data) > MAX_SIZE_BYTES:
        raise ValueError(f"the compatibility page has {len(data):,} bytes; the limit is {MAX_SIZE_BYTES:,}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def main() -> None:
    """Write the page to the file on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, metavar="FILE", help="HTML file to write, such as build/support.html")
    write_page(parser.parse_args().file)


if __name__ == "__main__":
    main()
