"""A repository migrated to Git LFS, and a clone of it without the content."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import need
from tests.harness.repositories.checkout import commit, git
from tests.harness.repositories.user_repository import Repository


def clone_of_pointers(repository: Repository, folder: Path, *patterns: str) -> Repository:
    """Create a clone in which no Git LFS content was fetched; its origin is also in `folder`."""
    need("git-lfs")
    origin, clone = folder / "origin.git", folder / "clone"
    git(repository.folder, "lfs", "install", "--local")
    git(repository.folder, "lfs", "track", *patterns)
    git(repository.folder, "add", "--renormalize", ".")
    commit(repository.folder)
    git(folder, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(repository.folder, "push", "--quiet", origin.as_uri(), "main")
    git(folder, "clone", "--quiet", origin.as_uri(), str(clone))
    git(clone, "lfs", "install", "--local", "--skip-smudge")
    return repository.at(clone)
