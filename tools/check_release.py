"""Check that a tag, the package, the changelog, and all pages and workflows name the same release.

`python tools/check_release.py v0.1.0 [--notes FILE]` prints each disagreement, or writes the release notes to FILE.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
FILES = ("README.md", "docs/**/*.md", "examples/*.yml", ".github/**/*.yml", "fixtures/projects/**/*.y*ml")
VERSION = re.compile(r'^__version__ = "(?P<version>[^"]+)"', re.MULTILINE)
NAMED = re.compile(
    r"(?:onnxgate/onnxgate(?:/[\w./-]+)?@|raw\.githubusercontent\.com/onnxgate/onnxgate/|"
    r"github\.com/onnxgate/onnxgate\n\s+rev: )v(?P<release>\d[\w.]*)"
)
REQUIRED = re.compile(r'^required-version = "(?P<range>[^"]+)"', re.MULTILINE)
SECTION = re.compile(r"^## (?P<release>\S+) \((?P<date>[^)]+)\)\n(?P<notes>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
DATE = re.compile(r"\d{4}-\d\d-\d\d")


class Section(NamedTuple):
    """One release in the changelog. The date of the next release is "unreleased"."""

    release: str
    date: str
    notes: str


def newest_section(changelog: str) -> Section:
    """Return the first section of the changelog."""
    found = SECTION.search(changelog)
    return Section(found["release"], found["date"], found["notes"].strip() + "\n") if found else Section("", "", "")


def find_other_releases(root: Path, release: str) -> Iterator[str]:
    """Yield a problem for each place in pages, examples, workflows and hooks that names another release."""
    for path in sorted(path for pattern in FILES for path in root.glob(pattern)):
        text = path.read_text(encoding="utf-8")
        other = [found for found in NAMED.finditer(text) if found["release"] != release]
        excluding = [found for found in REQUIRED.finditer(text) if release not in SpecifierSet(found["range"])]
        for found in (*other, *excluding):
            line = text.count("\n", 0, found.end()) + 1
            yield f"{path.relative_to(root).as_posix()}:{line}: names {found[1]} instead of {release}"


def read_version(root: Path) -> str:
    """Return the version of the package, without importing it."""
    found = VERSION.search((root / "onnxgate" / "__init__.py").read_text(encoding="utf-8"))
    return found["version"] if found else ""


def find_problems(root: Path, tag: str) -> Iterator[str]:
    """Yield each reason why the checkout cannot be released with this tag."""
    version = read_version(root)
    if tag != f"v{version}":
        yield f"onnxgate/__init__.py: the version is {version}, but the tag is {tag}"
    section = newest_section((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    if section.release != version:
        yield f"CHANGELOG.md: the newest section is {section.release or 'missing'} instead of {version}"
    if not DATE.fullmatch(section.date):
        yield f"CHANGELOG.md: the newest section has the date `{section.date}` instead of YYYY-MM-DD"
    if not section.notes.strip():
        yield "CHANGELOG.md: the newest section is empty"
    yield from find_other_releases(root, version)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Print the problems and return 1, or write the release notes and return 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tag")
    parser.add_argument("--notes", type=Path)
    options = parser.parse_args(arguments)
    problems = list(find_problems(root, options.tag))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if options.notes and not problems:
        options.notes.write_text(newest_section((root / "CHANGELOG.md").read_text(encoding="utf-8")).notes, "utf-8")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
