"""Loading the lock; each reason why it cannot be used has its own message."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxgate.core.errors import LockError
from onnxgate.project.lock.lock_file import load_lock, load_lock_to_update, parse_lock
from onnxgate.project.lock.types import digest_values
from onnxgate.project.toml import loads

LOCKS = Path(__file__).parents[3] / "fixtures" / "locks"


def test_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error for a missing lock names the command that creates it."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LockError) as caught:
        load_lock(tmp_path / "onnxgate.lock")

    assert (caught.value.message, caught.value.hint) == ("`onnxgate.lock` does not exist", "run `onnxgate lock`")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version = 2\n[new]\n", "`onnxgate.lock` has format version 2; this version of onnxgate reads up to 1"),
        ("version = 1\n[models\n", "`onnxgate.lock` is damaged: expected "),
        ("[targets.a]\n", "`onnxgate.lock` is damaged: `version` is missing"),
        (
            "version = 1\n[targets.a]\npolicy = 1\nruntimes = []\n",
            "expected `str`, got `int` - at `$.targets[...].policy`",
        ),
        (
            "version = 1\n<<<<<<< HEAD\n[targets.a]\n=======\n[targets.b]\n>>>>>>> other\n",
            "`onnxgate.lock` has merge conflict markers at line 2",
        ),
    ],
)
def test_refused(text: str, expected: str) -> None:
    """A lock that is too new, damaged or has merge conflicts is an error with a hint."""
    with pytest.raises(LockError) as caught:
        parse_lock(text, "onnxgate.lock")

    assert expected in caught.value.message
    assert caught.value.hint


def test_newer_lock_suggests_an_upgrade() -> None:
    """The hint for a newer lock version is to upgrade onnxgate and not to recreate the lock."""
    with pytest.raises(LockError) as caught:
        parse_lock("version = 99\n", "onnxgate.lock")

    assert caught.value.hint == "upgrade onnxgate"


def test_newer_revision() -> None:
    """Keys that a newer revision added are ignored, but their tables must match their digests."""
    text = (LOCKS / "sample.lock").read_text(encoding="utf-8")
    toolchain = loads(text)["toolchain"]
    old = toolchain.pop("digest")
    added = text.replace("revision = 0\n", 'revision = 7\nnews = "x"\n').replace("[toolchain]", "[toolchain]\nnews = 1")
    newer = added.replace(old, digest_values({**toolchain, "news": 1}))

    assert parse_lock(text, "").models == parse_lock(newer, "").models
    assert parse_lock(newer, "").revision == 7
    with pytest.raises(LockError, match="the toolchain does not match `digest`"):
        parse_lock(added, "")


def test_newer_revision_is_not_rewritten(tmp_path: Path) -> None:
    """A lock of a newer revision is not rewritten, because the keys that are unknown here would be lost."""
    path = tmp_path / "onnxgate.lock"
    path.write_text((LOCKS / "sample.lock").read_text(encoding="utf-8").replace("revision = 0", "revision = 1"))

    with pytest.raises(LockError, match="has format revision 1; this version of onnxgate writes 0") as caught:
        load_lock_to_update(path, repair=True)

    assert caught.value.hint == "upgrade onnxgate"


def test_not_text(tmp_path: Path) -> None:
    """A lock that is not UTF-8 is an error."""
    (tmp_path / "onnxgate.lock").write_bytes(b"version = 1\n# \xff\n")

    with pytest.raises(LockError, match="it is not valid UTF-8"):
        load_lock(tmp_path / "onnxgate.lock")


def test_line_ends_of_windows(tmp_path: Path) -> None:
    """A lock with CRLF line endings and a byte order mark is equal to the original."""
    text = (LOCKS / "sample.lock").read_bytes()
    (tmp_path / "onnxgate.lock").write_bytes(b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n"))

    assert load_lock(LOCKS / "sample.lock") == load_lock(tmp_path / "onnxgate.lock")
