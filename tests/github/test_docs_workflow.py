"""The workflow that publishes the documentation: its script, with a `gh` that does nothing."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.repositories.checkout import NOBODY, ROOT, git

WORKFLOW: dict[Any, Any] = yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text(encoding="utf-8"))
JOBS: dict[str, Any] = WORKFLOW["jobs"]

pytestmark = pytest.mark.skipif(os.name == "nt" or shutil.which("bash") is None, reason="the runner's shell is bash")


def publish(site: Path, remote: Path, tools: Path) -> None:
    """Run the step that pushes the built documentation, as the runner does."""
    script = next(step["run"] for step in JOBS["publish"]["steps"] if step.get("name") == "Push the branch")
    search = f"{tools}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **NOBODY, "PATH": search, "REMOTE": str(remote), "GITHUB_SHA": "0" * 40}
    command = ["bash", "--noprofile", "--norc", "-e", "-c", script]
    subprocess.run(command, cwd=site, env=environment, check=True, capture_output=True)


def test_published_branch_contains_only_the_newest_build(tmp_path: Path) -> None:
    """Pages that were removed or renamed are not published any longer, and the branch does not grow."""
    remote, tools = tmp_path / "remote.git", tmp_path / "bin"
    git(tmp_path, "init", "--quiet", "--bare", str(remote))
    tools.mkdir()
    (tools / "gh").symlink_to(shutil.which("true") or "")
    for name in ("old.html", "support.html"):
        site = tmp_path / name.partition(".")[0]
        (site / "_static").mkdir(parents=True)
        (site / "_static" / "page.css").write_text("", encoding="utf-8")
        (site / name).write_text(name, encoding="utf-8")
        publish(site, remote, tools)

    published = git(remote, "ls-tree", "-r", "--name-only", "gh-pages").splitlines()
    assert [".nojekyll", "_static/page.css", "support.html"] == published
    assert "1" == git(remote, "rev-list", "--count", "gh-pages")


def test_only_the_job_without_packages_can_write() -> None:
    """The build runs installed packages, so it must not have a token that can push."""
    assert {"contents": "read"} == JOBS["build"]["permissions"]
    assert not any("setup-python" in step.get("uses", "") for step in JOBS["publish"]["steps"])


def test_each_source_of_a_page_starts_the_workflow() -> None:
    """A page includes files, and the build needs its session and packages; a change must not leave a page outdated."""
    patterns = WORKFLOW[True]["push"]["paths"]  # YAML reads `on` as true
    sources = {"noxfile.py", "pyproject.toml", "docs/conf.py", "onnxgate/__init__.py", "tools/generate_reference.py"}
    for page in (ROOT / "docs").rglob("*.md"):
        for name in re.findall(r"\{(?:literal)?include\} (\S+)", page.read_text(encoding="utf-8")):
            sources.add((page.parent / name).resolve().relative_to(ROOT).as_posix())

    assert "examples/onnxgate-upgrade.yml" in sources
    assert {it for it in sources if not any(fnmatch.fnmatchcase(it, pattern) for pattern in patterns)} == set()
