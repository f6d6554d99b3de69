"""Branches of a repository with one file changed, through GitHub's API: no checkout, no git, no credentials on disk.

A commit made here ends with a digest of its tree and its parent, so that commits of others on the same branch are
recognized.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import urllib.parse

import msgspec

from onnxgate.github.api import Api, ApiError, decode_answer

MAX_FILE_BYTES = 8 * 2**20
NOT_FOUND = 404
_TRAILER = re.compile(r"^Onnxgate-Upgrade: ([0-9a-f]{64})$", re.MULTILINE)


class _Object(msgspec.Struct, frozen=True):
    """A git object."""

    sha: str


class _Reference(msgspec.Struct, frozen=True):
    """A branch."""

    object: _Object


class _Commit(msgspec.Struct, frozen=True):
    """A commit."""

    message: str
    tree: _Object
    parents: tuple[_Object, ...]


class _File(msgspec.Struct, frozen=True):
    """A file. Its content is read as a blob, because this response omits the content of files larger than 1 MB."""

    type: str
    sha: str
    size: int


class _Blob(msgspec.Struct, frozen=True):
    """The content of a file."""

    content: str  # base64, with line breaks


class Branches:
    """The branches of one repository."""

    def __init__(self, api: Api, repository: str) -> None:
        self._api = api
        self._git = f"/repos/{repository}/git"
        self._contents = f"/repos/{repository}/contents"

    def find(self, branch: str) -> str:
        """Return the commit at the tip of a branch; "" if the branch does not exist.

        Raises:
            ApiError: a request failed.
        """
        try:
            answer = self._api.get(f"{self._git}/ref/heads/{urllib.parse.quote(branch)}")
        except ApiError as error:
            if error.status == NOT_FOUND:
                return ""
            raise
        return decode_answer(answer, _Reference).object.sha

    def read_file(self, commit: str, path: str) -> bytes:
        """Return the content of a file in a commit.

        Raises:
            ApiError: the file does not exist or is too large, or a request failed.
        """
        content = self.find_file(commit, path)
        if content is None:
            raise ApiError(0, f"`{path}` does not exist in commit {commit[:12]}")
        return content

    def find_file(self, commit: str, path: str) -> bytes | None:
        """Return the content of a file in a commit; None if it does not exist.

        Raises:
            ApiError: the file is too large, or a request failed.
        """
        try:
            answer = self._api.get(f"{self._contents}/{urllib.parse.quote(path)}", ref=commit)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return None
            raise
        if isinstance(answer, list):
            raise ApiError(0, f"`{path}` is a folder")
        file = decode_answer(answer, _File)
        if file.type != "file" or file.size > MAX_FILE_BYTES:
            raise ApiError(0, f"`{path}` is not a regular file of at most {MAX_FILE_BYTES // 2**20} MiB")
        blob = decode_answer(self._api.get(f"{self._git}/blobs/{file.sha}"), _Blob)
        try:
            return base64.b64decode(blob.content)
        except binascii.Error as error:
            raise ApiError(0, f"unexpected response from GitHub: {error}") from error

    def is_ours(self, commit: str) -> bool:
        """Return whether a commit was made by `commit_file` and has not been changed since.

        Raises:
            ApiError: a request failed.
        """
        made = self._read_commit(commit)
        digests = _TRAILER.findall(made.message)
        return len(made.parents) == 1 and digests[-1:] == [_digest_commit(made.tree.sha, made.parents[0].sha)]

    def commit_file(self, parent: str, path: str, text: str, message: str) -> str:
        """Create a commit that changes one file, and return it. No branch is changed.

        Raises:
            ApiError: a request failed.
        """
        entry = {"path": path, "mode": "100644", "type": "blob", "content": text}
        base = self._read_commit(parent).tree.sha
        tree = decode_answer(
            self._api.send("POST", f"{self._git}/trees", {"base_tree": base, "tree": [entry]}), _Object
        )
        signed = f"{message}\n\nOnnxgate-Upgrade: {_digest_commit(tree.sha, parent)}\n"
        content = {"message": signed, "tree": tree.sha, "parents": [parent]}
        return decode_answer(self._api.send("POST", f"{self._git}/commits", content), _Object).sha

    def point(self, branch: str, commit: str, *, exists: bool) -> None:
        """Create a branch, or replace the commits of an existing one.

        Raises:
            ApiError: a request failed.
        """
        if exists:
            name = urllib.parse.quote(branch)
            self._api.send("PATCH", f"{self._git}/refs/heads/{name}", {"sha": commit, "force": True})
        else:
            self._api.send("POST", f"{self._git}/refs", {"ref": f"refs/heads/{branch}", "sha": commit})

    def delete(self, branch: str) -> None:
        """Delete a branch.

        Raises:
            ApiError: a request failed.
        """
        self._api.send("DELETE", f"{self._git}/refs/heads/{urllib.parse.quote(branch)}")

    def _read_commit(self, commit: str) -> _Commit:
        return decode_answer(self._api.get(f"{self._git}/commits/{commit}"), _Commit)


def _digest_commit(tree: str, parent: str) -> str:
    return hashlib.sha256(f"{tree} {parent}".encode()).hexdigest()
