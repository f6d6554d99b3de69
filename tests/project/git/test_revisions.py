"""Models at other git revisions, with their data, and the errors if they are unavailable."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import pytest

from onnxgate.core.errors import UsageError
from onnxgate.project.git.revisions import (
    MissingAtRevisionError,
    Revision,
    resolve_data_path,
    resolve_revision,
    write_model_at_revision,
)
from tests.conftest import need
from tests.harness.models import make_external, parse, write
from tests.harness.repositories.checkout import commit, git

WEIGHTS = "g (float[N, 4] x) => (float[N, 4] y) <float[4] w = {1, 2, 3, 4}> { y = Add(x, w) }"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Create a repository whose first commit has a model with external data, which the second commit replaces."""
    folder = tmp_path / "a repository"
    model = parse(WEIGHTS)
    data = make_external(model, "data/w.bin")
    write(folder / "ml" / "m.onnx", model)
    (folder / "ml" / "data").mkdir()
    (folder / "ml" / "data" / "w.bin").write_bytes(data)
    commit(folder)
    git(folder, "tag", "old")
    write(folder / "ml" / "m.onnx")
    (folder / "ml" / "data" / "w.bin").unlink()
    write(folder / "ml" / "new.onnx")
    commit(folder)
    return folder


def _absent(revision: Revision, path: str, folder: Path) -> MissingAtRevisionError:
    with pytest.raises(MissingAtRevisionError) as raised:
        write_model_at_revision(revision, path, folder)
    return raised.value


def test_model_with_its_data(root: Path, tmp_path: Path) -> None:
    """The model and its data are restored in the same folder, and the checkout is unchanged."""
    before = git(root, "status", "--porcelain")
    file = write_model_at_revision(resolve_revision(root, "old"), "ml/m.onnx", tmp_path / "past").path
    (weight,) = onnx.load(file).graph.initializer

    assert onnx.numpy_helper.to_array(weight).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert (before, git(root, "status", "--porcelain")) == ("", "")


def test_any_name_of_a_revision(root: Path, tmp_path: Path) -> None:
    """A revision can be a tag, a relative name or a commit ID."""
    commits = {resolve_revision(root, name).commit for name in ("old", "HEAD~1", git(root, "rev-parse", "old")[:12])}

    assert commits == {git(root, "rev-parse", "old")}


@pytest.mark.parametrize("name", ["nowhere", "--help", "", "old:ml/m.onnx"])
def test_no_revision(root: Path, name: str) -> None:
    """An unknown revision is a usage error and is never passed to git as an option."""
    with pytest.raises(UsageError, match="does not exist in this clone"):
        resolve_revision(root, name)


def test_before_the_first_commit(root: Path) -> None:
    """The history of a complete clone has a beginning, and nothing older can be fetched."""
    first = git(root, "rev-parse", "HEAD~1")
    with pytest.raises(UsageError) as raised:
        resolve_revision(root, "HEAD~5")

    assert (raised.value.message, raised.value.hint) == (f"`--against HEAD~5`: `{first[:12]}` has no parent", None)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("releese/v2", "did you mean `release/v2`?"),
        ("releese/v2~1", "did you mean `release/v2~1`?"),
        ("nowhere", None),
    ],
)
def test_a_misspelled_revision(root: Path, name: str, hint: str | None) -> None:
    """The hint names a similar branch or tag; without a remote, there is nothing to fetch."""
    git(root, "branch", "release/v2")
    with pytest.raises(UsageError) as raised:
        resolve_revision(root, name)

    assert raised.value.hint == hint
    git(root, "remote", "add", "origin", str(root))
    with pytest.raises(UsageError) as raised:
        resolve_revision(root, name)
    assert str(raised.value.hint).startswith(
        f"{hint} If not, fetch the revision first" if hint else "fetch the revision first"
    )


def test_no_repository() -> None:
    """Outside of a git repository every revision is an error."""
    with pytest.raises(UsageError, match="the project is not in a git repository"):
        resolve_revision(None, "main")


def test_model_that_is_new(root: Path, tmp_path: Path) -> None:
    """A new model has no baseline and is not an error; glob characters in its name are matched literally."""
    new = _absent(resolve_revision(root, "old"), "ml/new.onnx", tmp_path / "a")

    assert (new.reason, new.is_new) == ("`ml/new.onnx` does not exist at `old`", True)
    assert _absent(resolve_revision(root, "old"), "ml/*.onnx", tmp_path / "b").is_new
    assert _absent(resolve_revision(root, "old"), "ml", tmp_path / "c").is_new


def test_data_that_are_not_there(root: Path, tmp_path: Path) -> None:
    """A model whose data is missing at the baseline cannot be compared."""
    model = parse(WEIGHTS)
    make_external(model, "lost.bin")
    write(root / "ml" / "m.onnx", model)
    commit(root)
    lost = _absent(resolve_revision(root, "HEAD"), "ml/m.onnx", tmp_path / "past")

    assert lost.reason == "`ml/lost.bin` does not exist at `HEAD`"


def test_links_and_other_files_have_a_reason(root: Path, tmp_path: Path) -> None:
    """A file that is not a model and a link are each reported with a reason."""
    (root / "ml" / "m.onnx").write_bytes(b"\xff" * 99)
    (root / "ml" / "link.onnx").symlink_to("m.onnx")
    commit(root)
    head = resolve_revision(root, "HEAD")

    assert "`ml/m.onnx` at `HEAD`: it is " in _absent(head, "ml/m.onnx", tmp_path / "a").reason
    assert _absent(head, "ml/link.onnx", tmp_path / "b").reason == "`ml/link.onnx` is a link at `HEAD`"


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "a\\w.bin"])
def test_data_outside_of_the_folder(root: Path, tmp_path: Path, location: str) -> None:
    """External data outside of the model's folder is neither read nor written."""
    model = parse(WEIGHTS)
    make_external(model, location)
    write(root / "ml" / "m.onnx", model)
    commit(root)
    outside = _absent(resolve_revision(root, "HEAD"), "ml/m.onnx", tmp_path / "past")

    assert outside.reason == f"`ml/m.onnx` at `HEAD` has external data outside the folder of the model: `{location}`"
    assert resolve_data_path("ml/m.onnx", location) is None


def _pointer(content: bytes) -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(content)}\n".encode()


@pytest.fixture
def content(root: Path) -> bytes:
    """Commit a model as a Git LFS pointer and return its content."""
    content = parse("g (float[N, 4] x) => (float[N, 4] y) { y = Tanh(x) }").SerializeToString()
    (root / "ml" / "m.onnx").write_bytes(_pointer(content))
    commit(root)
    return content


def test_pointer_with_local_content(root: Path, content: bytes, tmp_path: Path) -> None:
    """Content in the local Git LFS storage is used even if Git LFS is not installed."""
    oid = hashlib.sha256(content).hexdigest()
    stored = root / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(content)
    file = write_model_at_revision(resolve_revision(root, "HEAD", offline=True), "ml/m.onnx", tmp_path / "past").path

    assert (file.read_bytes(), file.is_symlink()) == (content, False)


def test_data_that_a_model_names_twice(root: Path, tmp_path: Path) -> None:
    """The second reference to a data file does not write through a hard link into the Git LFS storage."""
    model = parse(
        "g (float[4] x) => (float[4] y) <float[4] v = {1, 2, 3, 4}, float[4] w = {5, 6, 7, 8}> { y = Add(v, w) }"
    )
    data = make_external(model, "w.bin")
    model.graph.initializer[1].external_data[0].value = "./w.bin"
    write(root / "ml" / "m.onnx", model)
    (root / "ml" / "w.bin").write_bytes(_pointer(data))
    commit(root)
    oid = hashlib.sha256(data).hexdigest()
    stored = root / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(data)
    written = write_model_at_revision(resolve_revision(root, "HEAD", offline=True), "ml/m.onnx", tmp_path / "past")

    assert (stored.read_bytes(), written.path.with_name("w.bin").read_bytes()) == (data, data)


@pytest.mark.parametrize("offline", [True, False])
def test_pointer_with_unavailable_content(root: Path, content: bytes, tmp_path: Path, offline: bool) -> None:
    """If the content of a pointer cannot be fetched, the hint contains the command that fetches it."""
    need("git-lfs")
    lacking = _absent(resolve_revision(root, "HEAD", offline=offline), "ml/m.onnx", tmp_path / "past")

    assert lacking.reason.startswith("`ml/m.onnx` at `HEAD` is a Git LFS pointer (content not fetched)")
    assert lacking.hint == f'run `git lfs fetch origin {git(root, "rev-parse", "HEAD")} --include "ml/m.onnx"`'
    assert not lacking.is_new


def test_pointer_content_is_fetched(root: Path, tmp_path: Path) -> None:
    """A pointer's content and data are fetched from the remote, unless `--offline` is set."""
    need("git-lfs")
    model = parse(WEIGHTS)
    data = make_external(model, "w.bin")
    write(root / "ml" / "m.onnx", model)
    (root / "ml" / "w.bin").write_bytes(data)
    git(root, "lfs", "install", "--local")
    git(root, "lfs", "track", "*.onnx", "*.bin")
    git(root, "add", "--renormalize", ".")
    commit(root)
    origin, clone = tmp_path / "origin.git", tmp_path / "clone"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(root, "push", "--quiet", origin.as_uri(), "main")
    git(tmp_path, "-c", "filter.lfs.smudge=cat", "clone", "--quiet", origin.as_uri(), str(clone))
    git(clone, "lfs", "install", "--local", "--skip-smudge")
    (clone / ".lfsconfig").write_text("[lfs]\n\turl = http://127.0.0.1:9/\n")  # ignored
    offline = _absent(resolve_revision(clone, "HEAD", offline=True), "ml/m.onnx", tmp_path / "offline")
    file = write_model_at_revision(resolve_revision(clone, "HEAD"), "ml/m.onnx", tmp_path / "past").path

    assert offline.reason == "`ml/m.onnx` at `HEAD` is a Git LFS pointer (content not fetched)"
    assert np.frombuffer(file.with_name("w.bin").read_bytes(), np.float32).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert onnx.load(file).graph.node[0].op_type == "Add"


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Serve nothing; yield the URL, and the paths that are requested."""
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            """Suppress the request log."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"http://127.0.0.1:{http.server_port}", requests
    http.shutdown()
    http.server_close()


@pytest.mark.parametrize("setting", ["lfs.url", "remote.origin.lfsurl"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_lfs_server_of_the_repository_is_ignored(
    root: Path, tmp_path: Path, server: tuple[str, list[str]], setting: str, is_deleted: bool
) -> None:
    """`.lfsconfig`, which a pull request can change, does not choose the server; the remote or the user does."""
    need("git-lfs")
    url, requests = server
    (root / "ml" / "m.onnx").write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{7:064}\nsize 10\n")
    git(root, "config", "--file", ".lfsconfig", setting, f"{url}/untrusted")
    commit(root)
    git(root, "remote", "add", "origin", f"{url}/repository")
    if is_deleted:
        (root / ".lfsconfig").unlink()
    absent = _absent(resolve_revision(root, "HEAD"), "ml/m.onnx", tmp_path / "first")
    git(root, "config", "remote.origin.lfsurl", f"{url}/users")
    _absent(resolve_revision(root, "HEAD"), "ml/m.onnx", tmp_path / "second")

    assert ["/repository.git/info/lfs/objects/batch", "/users/objects/batch"] == requests
    assert "content not fetched): batch response: Repository or object not found" in absent.reason
    assert absent.hint.endswith("; onnxgate ignores the server in `.lfsconfig`")
