"""Digests that are known without reading the files, from earlier runs or from Git LFS."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from pathlib import Path

import pytest

from onnxgate.core import files
from onnxgate.core.cache_entries import add_checksum
from onnxgate.gate.static_cache import FileDigestCache
from onnxgate.model.reading.file_format import LfsPointer
from onnxgate.project.git.repository import find_lfs_contents
from tests.harness.repositories.checkout import git

SIZE_BYTES = 2 * 2**20
CONTENT = bytes(range(256)) * (SIZE_BYTES // 256)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{SHA256}\nsize {SIZE_BYTES}\n"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="there is no git")


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clear the known digests."""
    monkeypatch.setattr(files, "_digests", {})


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create a repository with one `.bin` file in Git LFS, and a filter that simulates LFS."""
    folder = tmp_path / "repository"
    folder.mkdir()
    (tmp_path / "pointer").write_text(POINTER)
    git(folder, "init", "--quiet")
    git(folder, "config", "filter.lfs.clean", f"cat > {tmp_path / 'ran'}; cat {tmp_path / 'pointer'}")
    (folder / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    make(folder / "a.bin")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=all")
    return folder


def make(path: Path, content: bytes = CONTENT) -> Path:
    """Write a file with modification times of an hour ago."""
    path.write_bytes(content)
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))
    return path


def test_index_proves_lfs_content(checkout: Path) -> None:
    """The index proves the content of an unmodified LFS file without running a filter."""
    (checkout.parent / "ran").unlink()

    lfs_contents = find_lfs_contents(checkout, [checkout / "a.bin"])

    assert lfs_contents == {checkout / "a.bin": LfsPointer(SHA256, SIZE_BYTES)}
    assert not (checkout.parent / "ran").exists()


@pytest.mark.parametrize(
    "what",
    [
        *("edited", "touched", "assumed", "skipped", "untracked", "not lfs", "link", "no git"),
        *("extended", "same tick"),
    ],
)
def test_unproven_files_have_no_digest(checkout: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No digest is known for files that the index does not prove unmodified."""
    file = checkout / "a.bin"
    match what:
        case "edited":
            make(file, CONTENT[:-1] + b"!")
        case "touched":
            os.utime(file)
        case "assumed":
            git(checkout, "update-index", "--assume-unchanged", "a.bin")
            make(file, CONTENT[:-1] + b"!")
        case "skipped":
            git(checkout, "update-index", "--skip-worktree", "a.bin")
            make(file, CONTENT[:-1] + b"!")
        case "untracked":
            file = make(checkout / "b.bin")
        case "not lfs":
            (checkout / ".gitattributes").write_text("")
        case "link":
            file = checkout / "link.bin"
            file.symlink_to("a.bin")
        case "extended":
            (checkout.parent / "pointer").write_text(POINTER.replace("oid", f"ext-0-foo sha256:{'0' * 64}\noid"))
            git(checkout, "add", "--renormalize", "a.bin")
        case "same tick":  # same timestamp as the index, on a file system with coarse resolution
            modified_ns = file.stat().st_mtime_ns
            os.utime(checkout / ".git" / "index", ns=(modified_ns, modified_ns))
        case _:
            monkeypatch.setenv("PATH", "")

    assert find_lfs_contents(checkout, [file]) == {}


def test_digests_are_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Digests of earlier runs are reused, except for files that were touched since or changed very recently."""
    same, touched, just = (make(tmp_path / name) for name in ("same", "touched", "just"))
    files.remember_digests({files.file_identity(file.stat()): SHA256 for file in (same, touched)})
    files.sha256_of(just)
    FileDigestCache(tmp_path / "kept").keep([same, touched, just])
    os.utime(touched)
    monkeypatch.setattr(files, "_digests", {})

    FileDigestCache(tmp_path / "kept").recall([same, touched, just], tmp_path)
    assert files.known_digest(same.stat()) == SHA256
    assert files.known_digest(touched.stat()) is None
    assert files.known_digest(just.stat()) is None  # it may change again within the same timestamp


def test_fresh_cache_hashes_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fresh cache hashes the file again, and keeps the stored digests of other files."""
    file, other = (make(tmp_path / name) for name in ("file", "other"))
    files.remember_digests({files.file_identity(each.stat()): SHA256 for each in (file, other)})
    FileDigestCache(tmp_path / "kept").keep([file, other])
    monkeypatch.setattr(files, "_digests", {})

    fresh = FileDigestCache(tmp_path / "kept", fresh=True)
    fresh.recall([file, other], tmp_path)
    recalled = files.known_digest(file.stat())
    files.remember_digests({files.file_identity(file.stat()): "0" * 64})
    fresh.keep([file])
    monkeypatch.setattr(files, "_digests", {})
    FileDigestCache(tmp_path / "kept").recall([file, other], tmp_path)

    assert recalled is None
    assert (files.known_digest(file.stat()), files.known_digest(other.stat())) == ("0" * 64, SHA256)


def test_digest_of_a_changed_file_is_not_stored(tmp_path: Path) -> None:
    """A changed file is not stored under its old digest, even if its timestamps are an hour old due to clock
    differences.
    """
    file = make(tmp_path / "file")
    files.remember_digests({files.file_identity(file.stat()): SHA256})
    make(file, CONTENT[:-1] + b"!")
    FileDigestCache(tmp_path / "kept").keep([file])

    FileDigestCache(tmp_path / "kept").recall([file], tmp_path)

    assert files.known_digest(file.stat()) is None


def test_projects_keep_each_others_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving the digests of one project keeps those of other projects."""
    first, second = make(tmp_path / "first"), make(tmp_path / "second")
    files.remember_digests({files.file_identity(file.stat()): SHA256 for file in (first, second)})
    FileDigestCache(tmp_path / "kept").keep([first])
    FileDigestCache(tmp_path / "kept").keep([second])
    monkeypatch.setattr(files, "_digests", {})

    FileDigestCache(tmp_path / "kept").recall([first, second], tmp_path)

    assert [files.known_digest(file.stat()) for file in (first, second)] == [SHA256, SHA256]


def test_digests_of_small_files_are_not_stored(tmp_path: Path) -> None:
    """Digests of small files are not stored, because hashing them is faster."""
    digests = FileDigestCache(tmp_path / "kept")
    digests.recall([make(tmp_path / "small", b"small")], tmp_path)
    files.sha256_of(tmp_path / "small")
    digests.keep([tmp_path / "small"])

    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("is_signed", [True, False])
@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff", b"[" * 10_000])
def test_damaged_digests(tmp_path: Path, content: bytes, is_signed: bool) -> None:
    """A damaged digest file is treated as missing."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "digests.json").write_bytes(add_checksum("digests.json", content) if is_signed else content)
    file = make(tmp_path / "file")

    FileDigestCache(tmp_path / "kept").recall([file], tmp_path)

    assert files.known_digest(file.stat()) is None
