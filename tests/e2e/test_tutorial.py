"""The tutorial, done as it is written: its files, its commands, and what it says that they print."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.repositories.user_repository import Repository

pytestmark = [pytest.mark.index, pytest.mark.torch]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(?P<head>\{code-block\} \w+|console)\n(?P<body>.*?)^```$", re.DOTALL | re.MULTILINE)
AT_THE_END = " (at the end)"
CHANGES_FOLDER = "git init --quiet classifier && cd classifier"


@dataclass(frozen=True)
class File:
    """What a captioned block has a file hold."""

    path: str
    text: str


@dataclass(frozen=True)
class Step:
    """One command, and lines that it prints."""

    command: str
    lines: tuple[str, ...]


def steps() -> Iterator[File | Step]:
    """All that the page has its reader do, in order."""
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["head"] != "console":
            caption, _, text = block["body"].partition("\n\n")
            yield File(caption.removeprefix(":caption: "), text)
            continue
        for part in re.split(r"^\$ ", block["body"], flags=re.MULTILINE)[1:]:
            command, *lines = part.splitlines()
            yield Step(command, tuple(line for line in lines if line.strip()))


def write(folder: Path, file: File, printed: str) -> None:
    """Make or lengthen a file; what is `as printed` is taken from what a command printed."""
    path = folder / file.path.removesuffix(AT_THE_END)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = file.text
    if "<as printed>" in text:
        text = text.replace("<as printed>", re.findall(r'sha256 = "([0-9a-f]{64})"', printed)[0])
    mode = "a" if file.path.endswith(AT_THE_END) else "w"
    with path.open(mode, encoding="utf-8") as stream:
        stream.write(f"\n{text}" if mode == "a" else text)


def test_tutorial(command: Repository, toolchain: Path, tmp_path: Path) -> None:
    """Each command ends as a reader expects, and prints what the page shows of it, in that order."""
    folder = tmp_path / "classifier"
    path = f"{command.program.parent}:{toolchain.parent}:{os.environ['PATH']}"
    environment = {**command.environment, "PATH": path, "VIRTUAL_ENV": str(toolchain.parent.parent)}
    folder.mkdir()
    printed, done = "", 0
    for step in steps():
        if isinstance(step, File):
            write(folder, step, printed)
            continue
        line = "git init --quiet" if step.command == CHANGES_FOLDER else step.command
        ran = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        printed = ran.stdout
        fails = any(each.startswith("fail:") for each in step.lines)

        assert ran.returncode == int(fails), f"{line}\n{ran.stdout}\n{ran.stderr}"
        rest = iter(printed.splitlines())
        assert [each for each in step.lines if each not in rest] == [], f"{line}\n{printed}"
        done += 1

    assert done == sum(each.startswith("$ ") for each in PAGE.read_text(encoding="utf-8").splitlines())
