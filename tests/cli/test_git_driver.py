"""`onnxgate init --git-diff` changes git attributes and settings and keeps all other lines."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from onnxgate.commands.init.git_driver import add_driver
from tests.cli.test_diff import git
from tests.cli.test_init import init, save

ATTRIBUTES = ".gitattributes"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"*.onnx diff=onnx\n"),
        (b"*.png binary", b"*.png binary\n*.onnx diff=onnx\n"),
        (b"*.png binary\r\n", b"*.png binary\r\n*.onnx diff=onnx\r\n"),
        (
            b"*.onnx filter=lfs diff=lfs merge=lfs -text\n",
            b"*.onnx filter=lfs diff=onnx merge=lfs -text\n",
        ),
        (
            b"# models\r\n*.onnx filter=lfs diff=lfs merge=lfs -text\r\n*.bin -diff\r\n",
            b"# models\r\n*.onnx filter=lfs diff=onnx merge=lfs -text\r\n*.bin -diff\r\n",
        ),
        (b"*.onnx binary\n", b"*.onnx binary diff=onnx\n"),
        (b"*.onnx -diff -text", b"*.onnx diff=onnx -text"),
        (b"*.onnx !diff\n", b"*.onnx diff=onnx\n"),
        (b"*.onnx -text\n*.onnx diff=lfs\n", b"*.onnx -text\n*.onnx diff=onnx\n"),
        (b'"*.onnx"\t-text  \n', b'"*.onnx"\t-text diff=onnx  \n'),
        (b"my.onnx diff=lfs\n*.onnxtxt diff\n", b"my.onnx diff=lfs\n*.onnxtxt diff\n*.onnx diff=onnx\n"),
        (b"*.onnx nodiff=1\n", b"*.onnx nodiff=1 diff=onnx\n"),
        (b"# \xff\xfe\n*.onnx\tdiff\n", b"# \xff\xfe\n*.onnx\tdiff=onnx\n"),
    ],
)
def test_attributes(before: bytes, after: bytes) -> None:
    """The attribute is added or replaced once; a second run changes nothing."""
    assert add_driver(before) == after
    assert add_driver(after) == after


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with one model."""
    folder = tmp_path / "repository"
    save(folder / "models/net.onnx")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    return folder


def attribute(folder: Path, path: str = "models/net.onnx") -> str:
    """Return the diff driver that git uses for a file."""
    return git(folder, "check-attr", "diff", "--", path).strip().rpartition(" ")[2]


def setting(folder: Path, name: str) -> str:
    """Return a local git setting."""
    return git(folder, "config", "--local", "--default", "", "--get", name).strip()


def test_both_are_written(installed: Path, repository: Path) -> None:
    """The attribute and the setting are written and reported; a second run keeps both."""
    (repository / ATTRIBUTES).write_text("*.onnx filter=lfs diff=lfs merge=lfs -text\n*.png binary\n", encoding="utf-8")
    first = init(installed, repository, "--git-diff")
    written = (repository / ATTRIBUTES).read_text(encoding="utf-8")
    second = init(installed, repository, "--git-diff")

    assert (first.returncode, first.stderr) == (0, "")
    assert "wrote  .gitattributes: `diff=onnx` for `*.onnx`\n" in first.stdout
    assert "set    diff.onnx.textconv in the git config of this clone only" in first.stdout
    assert written == "*.onnx filter=lfs diff=onnx merge=lfs -text\n*.png binary\n"
    assert attribute(repository) == "onnx"
    assert setting(repository, "diff.onnx.textconv").endswith("diff --textconv")
    assert setting(repository, "diff.onnx.cachetextconv") == "false"  # disabled for Git LFS
    assert "kept   .gitattributes (already contains `*.onnx diff=onnx`)\n" in second.stdout
    assert "kept   git setting diff.onnx.textconv (unchanged)\n" in second.stdout
    assert (repository / ATTRIBUTES).read_text(encoding="utf-8") == written


def test_written_driver_works(installed: Path, repository: Path) -> None:
    """`git diff` shows the changed opset."""
    init(installed, repository, "--git-diff")
    save(repository / "models/net.onnx", opset=17)

    assert setting(repository, "diff.onnx.cachetextconv") == "true"
    assert "\n-opset ai.onnx 18\n+opset ai.onnx 17\n" in git(repository, "diff", "models")


def test_nobodys_git_is_changed_unasked(installed: Path, repository: Path) -> None:
    """Without a terminal, git settings are changed only with `--git-diff`."""
    for arguments in ((), ("--no-git-diff",), ("--yes",)):
        init(installed, repository, *arguments)

        assert not (repository / ATTRIBUTES).exists()
        assert setting(repository, "diff.onnx.textconv") == ""


def test_existing_driver_is_kept(installed: Path, repository: Path) -> None:
    """An existing driver is kept, and the output shows the command that replaces it."""
    git(repository, "config", "diff.onnx.textconv", "netron-text")
    done = init(installed, repository, "--git-diff")

    assert setting(repository, "diff.onnx.textconv") == "netron-text"
    assert "kept   git setting diff.onnx.textconv (`netron-text`)\n" in done.stdout
    assert "  - to use onnxgate for `git diff`: `git config diff.onnx.textconv '" in done.stdout


def test_a_later_line_is_outdone(installed: Path, repository: Path) -> None:
    """If a later line overrides the attribute, another line is added at the end."""
    (repository / ATTRIBUTES).write_text("*.onnx diff=lfs\nmodels/** diff=lfs\n", encoding="utf-8")
    init(installed, repository, "--git-diff")

    assert attribute(repository) == "onnx"
    assert (repository / ATTRIBUTES).read_text(encoding="utf-8").startswith("*.onnx diff=onnx\nmodels/** diff=lfs\n")


def test_attributes_of_subfolders_are_not_modified(installed: Path, repository: Path) -> None:
    """A `.gitattributes` file of a subfolder and a linked one are not modified; the output names the line to add."""
    (repository / "models" / ATTRIBUTES).write_text("*.onnx diff=lfs\n", encoding="utf-8")
    done = init(installed, repository, "--git-diff")
    (repository / ATTRIBUTES).unlink()
    (repository / ATTRIBUTES).symlink_to("elsewhere")
    linked = init(installed, repository, "--git-diff")

    assert (
        "another .gitattributes overrides the `diff` attribute of models/net.onnx: add `diff=onnx` to that file"
        in done.stdout
    )
    assert (repository / "models" / ATTRIBUTES).read_text(encoding="utf-8") == "*.onnx diff=lfs\n"
    assert "kept   .gitattributes (not a regular file)\n" in linked.stdout
    assert not (repository / "elsewhere").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="no terminals of this kind there")
@pytest.mark.parametrize(("answer", "expected"), [("", "onnx"), ("n", "unspecified")])
def test_init_prompts_on_a_terminal(installed: Path, repository: Path, answer: str, expected: str) -> None:
    """`init` asks on a terminal, unless the driver is already set up; a config that exists needs no answers."""
    import pty

    for times, answers in ((1, ["", answer]), (0 if expected == "onnx" else 1, [answer])):
        ours, theirs = pty.openpty()
        os.write(ours, "".join(f"{line}\n" for line in answers).encode())
        words = [str(installed), "init", "--no-lock"]
        done = subprocess.run(words, cwd=repository, stdin=theirs, capture_output=True, text=True, check=False)
        os.close(theirs)
        os.close(ours)

        assert (done.returncode, done.stdout.count("Show model changes as text in `git diff`?")) == (
            0,
            times,
        )
        assert attribute(repository) == expected
