"""Files of a revision: links, submodules, Git LFS pointers, digests and renames."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from onnxgate.core.files import sha256_of
from onnxgate.model.reading.file_format import LfsPointer
from onnxgate.project.git.revisions import (
    MissingAtRevisionError,
    NewFile,
    Revision,
    Tree,
    compute_blob_id,
    find_moved,
    find_same_name,
    find_similar,
    resolve_revision,
)
from tests.harness.repositories.checkout import commit, git

NAMES = ("a.onnx", "deep/Größe 模型.onnx", "deep/a b\tc.onnx", "*.onnx")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a repository with a few files."""
    folder = tmp_path / "repository"
    for index, name in enumerate(NAMES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(bytes([index]) * 5000)
    commit(folder)
    return folder


def tree(root: Path) -> Tree:
    """Return the tree of the last commit."""
    return Tree(resolve_revision(root, "HEAD"))


def pointer(content: bytes) -> bytes:
    """Return the Git LFS pointer for `content`."""
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


def newcomer(root: Path, name: str) -> NewFile:
    """Return a file of the working tree."""
    return NewFile(name, root / name, sha256_of(root / name))


def test_every_name(root: Path) -> None:
    """File names are listed as in the file system, and each file is identical to its committed version."""
    listed = tree(root)

    assert sorted(listed.entries) == sorted(NAMES)
    assert [listed.is_same(name, root / name) for name in NAMES] == [True] * 4
    assert not listed.is_same(NAMES[0], root / NAMES[1])
    assert listed.digest(NAMES[1]) == (sha256_of(root / NAMES[1]), 5000)


@pytest.mark.parametrize("digits", [40, 64])
def test_blob_id(root: Path, tmp_path: Path, digits: int) -> None:
    """The blob ID equals git's own, in SHA-1 and SHA-256 repositories."""
    folder = tmp_path / "other"
    git(tmp_path, "init", "--quiet", f"--object-format={'sha1' if digits == 40 else 'sha256'}", str(folder))

    assert compute_blob_id(root / NAMES[0], digits) == git(folder, "hash-object", str(root / NAMES[0]))


def test_links(root: Path) -> None:
    """A link inside the tree resolves to its file; a link that leaves the tree, points to itself or is broken resolves
    to "".
    """
    for name, target in {"deep/link": "../a.onnx", "out": "/etc/hostname", "self": "self", "lost": "deep/gone"}.items():
        (root / name).symlink_to(target)
    commit(root)
    listed = tree(root)

    assert [listed.file(name) for name in ("deep/link", "out", "self", "lost", "deep")] == ["a.onnx", "", "", "", ""]
    assert listed.file("a.onnx") == "a.onnx"


def test_links_to_folders(root: Path) -> None:
    """Files behind links to folders are found under their real names, also through several links."""
    for name, target in {"current": "deep", "deep/up": "..", "loop": "loop/x", "out": "/etc"}.items():
        (root / name).symlink_to(target)
    commit(root)
    listed = tree(root)

    assert listed.file("current/a b\tc.onnx") == "deep/a b\tc.onnx"
    assert listed.file("current/up/a.onnx") == "a.onnx"
    assert [listed.file(name) for name in ("loop/a.onnx", "out/hostname", "current/gone", "current")] == [""] * 4


def test_pointers(root: Path) -> None:
    """Git LFS pointers are distinguished from small files, and represent their content although it is not fetched."""
    content = b"far away" * 1000
    (root / "far.onnx").write_bytes(pointer(content))
    (root / "small.txt").write_bytes(b"version of mine")
    (root / "empty").touch()
    commit(root)
    listed = tree(root)

    assert listed.pointer("far.onnx") == LfsPointer(hashlib.sha256(content).hexdigest(), len(content))
    assert [listed.pointer(name) for name in ("small.txt", "empty", "a.onnx")] == [None, None, None]
    assert listed.digest("far.onnx") == (hashlib.sha256(content).hexdigest(), len(content))
    assert (listed.text("small.txt"), listed.text("nowhere"), listed.text("deep")) == ("version of mine", None, None)


def test_revision_that_is_not_here(root: Path) -> None:
    """A revision that is missing in the clone is an error and not an empty tree."""
    with pytest.raises(MissingAtRevisionError, match="cannot list the files at `gone`: "):
        _ = Tree(Revision(root, "gone", "d" * 40)).entries


def test_same_content_elsewhere(root: Path) -> None:
    """Moved files are matched by content, in git or in Git LFS; among several candidates the one with the same name is
    chosen.
    """
    (root / "far.onnx").write_bytes(pointer(b"far" * 999))
    (root / "twin.onnx").write_bytes(b"\0" * 5000)
    commit(root)
    gone = ["a.onnx", "far.onnx", "twin.onnx"]
    (root / "new").mkdir()
    for name, content in {
        "new/twin.onnx": b"\0" * 5000,
        "new/b.onnx": b"\0" * 5000,
        "new/c.onnx": b"far" * 999,
    }.items():
        (root / name).write_bytes(content)
    new = [newcomer(root, name) for name in ("new/twin.onnx", "new/b.onnx", "new/c.onnx")]

    assert find_moved(tree(root), gone, new, lambda each, path: False) == {
        "new/twin.onnx": "twin.onnx",
        "new/b.onnx": "a.onnx",
        "new/c.onnx": "far.onnx",
    }
    assert find_moved(tree(root), gone, new[:1], lambda each, path: path == "a.onnx") == {"new/twin.onnx": "a.onnx"}


def test_same_name_elsewhere() -> None:
    """Files are matched by name only if the name is unique on both sides."""
    new = [NewFile(path, Path(), "") for path in ("n/a.onnx", "n/b.onnx", "m/b.onnx", "n/c.onnx", "n/d.onnx")]

    assert find_same_name(["a.onnx", "b.onnx", "o/c.onnx", "p/c.onnx"], new) == {"n/a.onnx": "a.onnx"}


def test_likeness(root: Path) -> None:
    """Similarity is git's own and uses the index; pointers are excluded because they all look alike."""
    content = bytes(range(256)) * 40
    (root / "like.onnx").write_bytes(content)
    extension = b"ext-0-clean sha256:" + b"c" * 64 + b"\n"  # two thirds of a pointer, identical in all of them
    (root / "far.onnx").write_bytes(pointer(b"far" * 999) + extension)
    commit(root)
    (root / "like.onnx").unlink()
    (root / "far.onnx").unlink()
    (root / "new.onnx").write_bytes(content + b"more")
    (root / "newer.onnx").write_bytes(pointer(b"another" * 999) + extension)
    git(root, "add", "--all")
    similar = find_similar(
        Tree(resolve_revision(root, "HEAD")),
        ["like.onnx", "far.onnx"],
        ["new.onnx", "newer.onnx"],
    )

    assert {path: before for path, (before, _) in similar.items()} == {"new.onnx": "like.onnx"}
    assert 90 <= similar["new.onnx"][1] < 100
