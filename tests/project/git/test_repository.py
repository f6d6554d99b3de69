"""How git is run: which repository and which settings it uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.project.git.repository import read_git_output, run_git
from tests.harness.repositories.checkout import commit, git

SETTINGS = """
[core]
repositoryformatversion = 1
bare = false
worktree = ..
[extensions]
partialClone = origin
[remote "origin"]
url = .
promisor = true
uploadpack = "touch started; false"
"""


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """Create a repository with a committed folder that looks like a bare repository; return the folder."""
    folder = tmp_path / "models"
    for name in ("objects", "refs/heads"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").touch()
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "config").write_text(SETTINGS)
    (folder / "m.onnx").write_bytes(b"model")
    commit(tmp_path)
    (folder / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
    return folder


def test_folder_that_looks_like_a_bare_repository(embedded: Path) -> None:
    """Committed files do not choose the repository, so that they cannot hide models or name programs to run."""
    tracked = read_git_output(embedded, "ls-files", "--", "m.onnx")
    content = run_git(embedded, ["cat-file", "blob", "HEAD:./m.onnx"])

    assert (tracked, content.stdout) == ("m.onnx\n", b"model")
    assert not list(embedded.rglob("started"))


def test_empty_git_folder_below_the_root(tmp_path: Path) -> None:
    """Git ignores a folder `.git` that is no repository, such as one that a container creates to mount a volume."""
    (tmp_path / "models" / ".git").mkdir(parents=True)
    (tmp_path / "models" / "m.onnx").write_bytes(b"model")
    commit(tmp_path)

    assert read_git_output(tmp_path / "models", "ls-files") == "m.onnx\n"


def test_bare_repository_outside_of_a_work_tree(tmp_path: Path) -> None:
    """A folder of an archive without `.git` is in no repository."""
    git(tmp_path, "init", "--quiet", "--bare")

    assert read_git_output(tmp_path, "rev-parse", "--git-dir") is None
