"""Links between pages work, and each page can be reached from the front page."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from onnxgate import __version__

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
FENCE = re.compile(r"^(?P<mark>```+)(?P<head>.*)\n(?P<body>(?:.*\n)*?)(?P=mark)$", re.MULTILINE)
CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
FILES = re.compile(r"(?:\{download\}`[^`]*<(?P<download>[^>]+)>`)|(?:^```\{literalinclude\} (?P<include>\S+)$)", re.M)
OWN = re.compile(r"https://github\.com/onnxgate/onnxgate(?:/blob/main/(?P<path>[\w./-]+))?(?:#(?P<anchor>[\w-]+))")

RAW = re.compile(r"https://raw\.githubusercontent\.com/onnxgate/onnxgate/(?P<tag>[^/\s]+)/(?P<path>[\w./-]+)")


class Link(NamedTuple):
    """A link of a page."""

    page: Path
    target: str

    @property
    def file(self) -> Path:
        """The linked file."""
        path = self.target.partition("#")[0]
        return (self.page.parent / path).resolve() if path else self.page

    @property
    def anchor(self) -> str:
        """The anchor of the linked heading, "" for none."""
        return self.target.partition("#")[2]

    @property
    def link_problem(self) -> str:
        """The reason why the link is broken; "" if it works."""
        if not self.file.is_file():
            return "file not found"
        if not self.file.is_relative_to(ROOT):
            return "outside of the repository"
        return "" if not self.anchor or self.anchor in anchors(self.file) else "heading not found"


def prose(text: str) -> str:
    """Return a page without code."""
    return CODE.sub("", FENCE.sub("", text))


def links(page: Path) -> Iterator[Link]:
    """Yield the links of a page, except for those to other sites."""
    text = page.read_text(encoding="utf-8")
    named = [found["target"] for found in LINK.finditer(prose(text))]
    named += [found["download"] or found["include"] for found in FILES.finditer(text)]
    return (Link(page, each) for each in named if not re.match(r"[a-z]+:", each))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as github.com and MyST build them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading).strip().lower() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def contents(page: Path) -> Iterator[Path]:
    """Yield the pages in the tables of contents of a page."""
    for fence in FENCE.finditer(page.read_text(encoding="utf-8")):
        for line in fence["body"].splitlines() if fence["head"] == "{toctree}" else ():
            if line.strip() and not line.startswith(":") and "://" not in line:
                name = re.sub(r"^.*<(.+)>$", r"\1", line.strip())
                yield (page.parent / f"{name}.md").resolve()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    """Each relative link leads to an existing file and heading."""
    assert {} == {link.target: link.link_problem for link in links(page) if link.link_problem}


def test_links_are_seen() -> None:
    """The search finds links of the README and included files of a page."""
    readme = {link.target for link in links(ROOT / "README.md")}
    forks = {link.target for link in links(DOCS / "guides" / "forks.md")}

    assert readme >= {"docs/tutorial.md", "examples/onnxgate.yml", "LICENSE"}
    assert forks >= {"../../examples/onnxgate.yml", "../../examples/onnxgate-comment.yml"}


def test_every_page_is_in_a_table_of_contents() -> None:
    """The navigation of the site contains exactly the existing pages."""
    reached, left = set[Path](), [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            left += contents(page) if page.is_file() else []

    assert {page for page in DOCS.rglob("*.md") if page.parent.name != "_figures"} == reached


def test_every_key_of_the_config_is_described() -> None:
    """Each config key has a description, which editors show."""
    schema = json.loads((DOCS / "reference" / "config.schema.json").read_text(encoding="utf-8"))
    keys = {
        f"{title}.{key}": entry for title, kind in schema["$defs"].items() for key, entry in kind["properties"].items()
    }

    assert "Target.runtime" in keys
    assert [] == [key for key, entry in keys.items() if not entry.get("description")]


def test_pages_name_files_of_this_release() -> None:
    """Links to files of a tag name this release and existing files."""
    named = [found for page in PAGES for found in RAW.finditer(page.read_text(encoding="utf-8"))]

    assert {f"v{__version__}"} == {each["tag"] for each in named}
    assert all((ROOT / each["path"]).is_file() for each in named)


def test_links_in_messages_work() -> None:
    """Links to this repository in the code, the action and the examples work."""
    places = [*ROOT.glob("onnxgate/**/*.py"), *ROOT.glob("*.yml"), *ROOT.glob("*/*.yml")]
    named = [found for path in places for found in OWN.finditer(path.read_text(encoding="utf-8"))]
    actual = [Link(ROOT / "README.md", f"{each['path'] or ''}#{each['anchor']}") for each in named]

    assert actual
    assert {} == {link.target: link.link_problem for link in actual if link.link_problem}
