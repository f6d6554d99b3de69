"""Git repositories created from the files of this checkout, committed or not, as a user would clone them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
NOBODY = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "nobody",
    "GIT_AUTHOR_EMAIL": "nobody@example.org",
    "GIT_COMMITTER_NAME": "nobody",
    "GIT_COMMITTER_EMAIL": "nobody@example.org",
}


def git(folder: Path, *arguments: str) -> str:
    """Run git and return its output."""
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, **NOBODY}
    ).stdout.strip()


def commit(folder: Path) -> str:
    """Commit all files of a folder, creating the repository if needed; return the new revision."""
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "--message=all")
    return git(folder, "rev-parse", "HEAD")


def copy_tree(source: Path, target: Path, without: Sequence[str] = ()) -> Path:
    """Copy the files below a folder of this checkout that git tracks or would add, except those in some folders."""
    others = [f":!{name}" for name in without]
    names = git(source, "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", *others).split("\0")
    for name in (name for name in names if (source / name).is_file()):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source / name, target / name, follow_symlinks=False)
    return target
