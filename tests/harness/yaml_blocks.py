"""YAML blocks in README.md and the documentation, completed to files that other programs can validate."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from tests.harness.repositories.checkout import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCE = re.compile(r"^ *```(?:ya?ml|\{code-block\} ya?ml\n(?::[^\n]*\n)+)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
WORKFLOW = """\
name: block
on: {push: {branches: [main]}}
permissions: {}
concurrency: {group: block, cancel-in-progress: true}
jobs:
  block:
    name: block
    runs-on: ubuntu-24.04
"""
KINDS = {
    "workflow": re.compile(r"^jobs:", re.MULTILINE),
    "job": re.compile(r"^steps:", re.MULTILINE),
    "steps": re.compile(r"\A- (?:uses|run|name):"),
    "hooks": re.compile(r"^repos:", re.MULTILINE),
    "gitlab": re.compile(r"^  script:", re.MULTILINE),
}


@dataclass(frozen=True, slots=True)
class YamlBlock:
    """One block; the kind is "" if no program is known that reads it."""

    page: str
    number: int
    kind: str
    text: str

    @property
    def name(self) -> str:
        """A unique name."""
        return f"{self.page.replace('/', '-')}-{self.number}"

    @property
    def workflow(self) -> str:
        """The text of a block for GitHub Actions, completed to a workflow."""
        if self.kind == "workflow":
            return self.text
        steps = f"steps:\n{textwrap.indent(self.text, '  ')}" if self.kind == "steps" else self.text
        return WORKFLOW + textwrap.indent(steps, "    ")


def read_yaml_blocks(*kinds: str) -> list[YamlBlock]:
    """Return the blocks of these kinds; without kinds, all blocks."""
    blocks = []
    for page in PAGES:
        for number, found in enumerate(FENCE.finditer(page.read_text(encoding="utf-8"))):
            text = textwrap.dedent(found[1])
            kind = next((kind for kind, pattern in KINDS.items() if pattern.search(text)), "")
            blocks.append(YamlBlock(page.relative_to(ROOT).as_posix(), number, kind, text))
    return [block for block in blocks if not kinds or block.kind in kinds]
