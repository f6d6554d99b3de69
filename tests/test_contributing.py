"""The worked examples of CONTRIBUTING.md work as printed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
EXAMPLES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
FILE_BLOCK = re.compile(r"^`([^`\n]+)`:\n\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONSOLE_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPIED = ("onnxgate", "tests", "tools", "fixtures/rules", "fixtures/texts", "pyproject.toml", "README.md")
IGNORED = shutil.ignore_patterns("__pycache__")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a copy of the repository without its history."""
    for name in COPIED:
        target = tmp_path / "checkout" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=IGNORED)
        else:
            shutil.copy(ROOT / name, target)
    return tmp_path / "checkout"


def write_file(path: Path, language: str, content: str) -> None:
    """Write a file of an example, or insert the lines that a `diff` adds after the preceding context line."""
    if language != "diff":
        assert not path.exists(), f"{path} exists already"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        return
    lines = path.read_text(encoding="utf-8").split("\n")
    place = 0
    for change in content.splitlines():
        if change.startswith("+"):
            lines.insert(place, change[1:])
            place += 1
        else:
            assert lines.count(change[1:]) == 1, f"{path.name} does not have `{change[1:]}` exactly once"
            place = lines.index(change[1:]) + 1
    path.write_text("\n".join(lines), encoding="utf-8")


def run_command(command: str, checkout: Path) -> tuple[int, str]:
    """Run a command of an example as in an activated environment with an editable install."""
    programs = checkout.parent / "programs"
    programs.mkdir(exist_ok=True)
    for name, options in (("python", ""), ("onnxgate", " -m onnxgate")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{options} "$@"\n')
        (programs / name).chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "PYTEST_", "CI"))}
    variables = {"PATH": f"{programs}{os.pathsep}{kept['PATH']}", "PYTHONPATH": str(checkout), "NO_COLOR": "1"}
    variables["ONNXGATE_CACHE_DIR"] = str(checkout.parent / "cache")
    result = subprocess.run(
        ["sh", "-c", command], cwd=checkout, env={**kept, **variables}, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout + result.stderr


@pytest.mark.skipif(os.name == "nt", reason="the commands are for a POSIX shell")
@pytest.mark.parametrize("title", EXAMPLES)
def test_example(title: str, checkout: Path) -> None:
    """The extension works as written, and its commands print the lines that the page shows."""
    for name, language, content in FILE_BLOCK.findall(EXAMPLES[title]):
        write_file(checkout / name, language, content)
    for block in CONSOLE_BLOCK.findall(EXAMPLES[title]):
        for step in block.removeprefix("$ ").split("\n$ "):
            command, *expected = step.strip().splitlines()
            status, output = run_command(command, checkout)
            folded = " ".join(output.split())

            assert [line for line in expected if line not in folded] == [], output
            assert status == 0 or command.startswith("onnxgate check"), output


def test_every_extension_has_an_example() -> None:
    """Each of the five kinds of extensions has an example with commands that use it."""
    assert ["A rule", "An engine", "A format", "An exporter", "An error message"] == list(EXAMPLES)
    assert all(FILE_BLOCK.search(text) and CONSOLE_BLOCK.search(text) for text in EXAMPLES.values())


def test_set_up_is_the_command_of_the_readme() -> None:
    """CI runs the README's command, so both pages must show the same one."""
    [command] = re.findall(r"^python3\.11 -m venv .+$", PAGE, re.MULTILINE)

    assert command in (ROOT / "README.md").read_text(encoding="utf-8")


def test_named_sessions_exist() -> None:
    """The page names only nox sessions that exist."""
    named = {name for names in re.findall(r"nox -s ((?:[a-z]+ ?)+)", PAGE) for name in names.split()}
    sessions = set(
        re.findall(r"@nox\.session\ndef (\w+)\(", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE)
    )

    assert set() == named - sessions


def test_hooks_have_the_versions_of_the_lint_session() -> None:
    """The hooks and CI use the same linter versions, so CI accepts what the hooks accept."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook for repository in config["repos"] for hook in repository["hooks"]]
    used = {requirement for hook in hooks for requirement in hook.get("additional_dependencies", ())}
    group = re.search(r"^lint = \[(.+)\]$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)

    assert group is not None
    assert used <= set(re.findall(r'"([^"]+)"', group[1]))


def test_issue_form_requires_diagnostic_details() -> None:
    """The form requires the version, facts about the model and verbose output, which are needed to reproduce a bug."""
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8"))
    required = {field["id"] for field in form["body"] if field.get("validations", {}).get("required")}

    assert required >= {"version", "model", "output"}
