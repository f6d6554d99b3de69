"""The tutorial works as written, and its commands print the output that the page shows."""

from __future__ import annotations

import difflib
import os
import re
import sys
from pathlib import Path

import pytest

from tests.harness.repositories.user_repository import Repository

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from refresh_outputs import Shell, normalize  # noqa: E402

pytestmark = [pytest.mark.index, pytest.mark.torch]

PAGE = ROOT / "docs" / "tutorial.md"
UPDATE = "ONNXGATE_UPDATE_TUTORIAL"
"""If this variable is set, the page is updated instead of compared."""
BLOCK = re.compile(r"^```(?P<head>\{code-block\} \w+|console)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
AT_THE_END = " (at the end)"
CHANGES_FOLDER = "git init --quiet classifier && cd classifier"


def write_file(folder: Path, caption: str, text: str, printed: str) -> None:
    """Write or extend a file; replace `<as printed>` by the first value that the last command printed for the key."""
    path = folder / caption.removesuffix(AT_THE_END)
    path.parent.mkdir(parents=True, exist_ok=True)
    for key in re.findall(r"^(\w+) = .*<as printed>", text, re.MULTILINE):
        value = re.findall(rf"^ *({key} = .*)$", printed, re.MULTILINE)[0]
        text = re.sub(rf"^{key} = .*<as printed>.*$", value, text, flags=re.MULTILINE)
    if caption.endswith(AT_THE_END):
        text = f"{path.read_text(encoding='utf-8')}\n{text}"
    path.write_text(text, encoding="utf-8")


def test_tutorial(command: Repository, toolchain: Path, tmp_path: Path) -> None:
    """Each command has the expected exit status, and the page shows its whole output."""
    folder = tmp_path / "classifier"
    folder.mkdir()
    path = f"{command.program.parent}:{toolchain.parent}:{os.environ['PATH']}"
    shell = Shell(folder, {**command.environment, "PATH": path, "VIRTUAL_ENV": str(toolchain.parent.parent)})
    printed = ""

    def follow(block: re.Match[str]) -> str:
        nonlocal printed
        if block["head"] != "console":
            caption, _, text = block["body"].partition("\n\n")
            write_file(folder, caption.removeprefix(":caption: "), text, printed)
            return block[0]
        parts = []
        for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
            line, _, shown = part.partition("\n")
            status, printed = shell.run("git init --quiet" if line == CHANGES_FOLDER else line)
            printed = "".join(f"{each.rstrip()}\n" for each in printed.strip("\n").splitlines())

            assert status == int("\nfail" in f"\n{printed}"), f"{line}\n{printed}"
            parts.append(f"$ {line}\n{shown if normalize(shown) == normalize(printed) else printed}")
        return f"```console\n{''.join(parts)}```"

    page = PAGE.read_text(encoding="utf-8")
    actual = BLOCK.sub(follow, page)

    if os.environ.get(UPDATE):
        PAGE.write_text(actual, encoding="utf-8")
    else:
        difference = difflib.unified_diff(page.splitlines(), actual.splitlines(), "page", "printed now", lineterm="")
        assert [] == list(difference), f"set {UPDATE}=1 to update the page"
